"""A study file, read and validated; its sections are in :mod:`diffcredit.study.sections`. Every error names the file,
the key, the value and what is accepted."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from diffcredit.credit.precision import CreditRule
from diffcredit.credit.stopping import Rule
from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import UserError, located
from diffcredit.study.data_section import ContributionsSection, HouseSection
from diffcredit.study.policy import PolicySection
from diffcredit.study.problems import keys_of, problems_of
from diffcredit.study.sections import (
    DesignSection,
    ModelSection,
    PathWithoutNul,
    PropertySection,
    ReferenceSetting,
    RetrainingSection,
    Section,
    StopSection,
    SurrogateSection,
    TextWithoutNul,
    ValidationSection,
)
from diffcredit.util.links import real_path
from diffcredit.util.plugins import refuse_plugin, require_allowed
from diffcredit.util.store import is_url
from diffcredit.util.yamlfile import read_yaml


def _matching(pattern: str, otherwise: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(otherwise)
        return text

    return AfterValidator(check)


_NAMES_A_FOLDER = _matching(r"\w[\w .-]*", "letters, digits, spaces and . _ - are accepted, a letter or digit first")
_NAMES_A_DEVICE = _matching(r"auto|cpu|cuda(:\d{1,3})?", "accepted: auto, cpu, cuda, cuda:1, …")


def _positive(value: Any) -> Any:
    """Refuse all but None, a number above 0, or a mapping to such numbers, with one message for both."""
    for number in value.values() if isinstance(value, dict) else [] if value is None else [value]:
        try:  # YAML 1.1 reads 1e-4 as a text
            positive = not isinstance(number, bool) and 0 < float(number) < math.inf
        except (TypeError, ValueError):
            positive = False
        if not positive:
            raise ValueError("a number above 0 is accepted, or {PROPERTY: number, …} for several properties")
    return value


def _in_payout(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Name the section where keys of a policy do not fit together, which pydantic does not."""
    with located("payout"):
        return validate(value)


_Payout = Annotated[
    Annotated[PolicySection, Tag("[model]")] | Annotated[PathWithoutNul, Tag("[place]")],
    Discriminator(lambda value: "[place]" if isinstance(value, str | Path) else "[model]"),
    WrapValidator(_in_payout),
]
_Amounts = Annotated[float | dict[str, float] | None, BeforeValidator(_positive)]


class StudyConfig(Section):
    """A study: everything that fixes the numbers, and where they are kept.

    ``seed`` is that of the evaluations and, unless their sections name others, of the data and the base model.
    ``retired`` are measured properties that nobody is shown any more. ``threads`` is how many threads a process uses on
    a CPU. Their number changes the rounding of sums, so it belongs to the study and not to the machine. ``keep`` is
    what is kept of each evaluation, for properties that are added later. ``artifacts`` is the folder or fsspec URL for
    models and what is kept; by default, the folder ``results``.
    ``reference`` is what contributors are compared with (:mod:`diffcredit.study.reference`).
    ``matters`` is the difference between contributors that matters, in the unit of the only property or of each.
    ``payout`` is the policy by which contributors are paid, or the file of it (:mod:`diffcredit.study.policy`).
    """

    name: Annotated[str, Field(max_length=100), _NAMES_A_FOLDER]
    seed: Annotated[int, Field(ge=0)] = 0
    contributions: ContributionsSection
    model: ModelSection
    retraining: RetrainingSection
    sampling: Sampling = Sampling()
    properties: Annotated[tuple[PropertySection, ...], Field(min_length=1)]
    retired: tuple[str, ...] = ()
    surrogates: tuple[SurrogateSection, ...] = ()
    reference: ReferenceSetting | None = None
    design: DesignSection = DesignSection()
    stop: StopSection = StopSection(evaluations=500)
    matters: _Amounts = None
    validation: ValidationSection | None = None
    payout: _Payout | None = None
    keep: Literal["images", "features", "model", "nothing"] = "nothing"
    results: PathWithoutNul | None = None
    ledger: TextWithoutNul | None = Field(default=None, repr=False)  # hides passwords
    artifacts: TextWithoutNul | None = Field(default=None, repr=False)  # as well
    device: Annotated[str, _NAMES_A_DEVICE] = "auto"
    threads: Annotated[int, Field(ge=1, le=1024)] = 1

    @field_validator("properties")
    @classmethod
    def _distinct(cls, properties: tuple[PropertySection, ...]) -> tuple[PropertySection, ...]:
        for name in _repeated([section.label or section.name for section in properties]):
            raise ValueError(f"{name!r} is there twice; distinguish them with 'as: another-name'")
        return properties

    @field_validator("surrogates")
    @classmethod
    def _different(cls, surrogates: tuple[SurrogateSection, ...]) -> tuple[SurrogateSection, ...]:
        for name in _repeated([section.name for section in surrogates]):
            raise ValueError(f"{name!r} is there twice; once is accepted")
        return surrogates

    @field_validator("stop")
    @classmethod
    def _ends(cls, stop: StopSection) -> StopSection:
        if not stop.rule.bounded():
            raise ValueError(
                "it might never be reached; bound it by evaluations, hours or money, as in "
                "any: [{evaluations: 500}, {correlation: 0.95}]"
            )
        return stop

    @model_validator(mode="after")
    def _names_fit_together(self) -> Self:
        for name in _repeated([self.retraining.recipe, *(section.recipe for section in self.compared)]):
            raise UserError(
                f"validation.retrainings: {name!r} is there twice, or the study's own; distinguish them with "
                "'name: another-name'"
            )
        _check_reference_model(self)
        named = {section.label or section.name.rpartition(":")[2] for section in self.properties}
        for name in named.intersection(self.retired):
            raise UserError(f"retired: {name!r} is one of the properties; take it out of one of the two lists")
        # plug-ins without a label name themselves, which is known only once they are built
        if all(section.label or ":" not in section.name for section in self.properties):
            self.check_names([section.label or section.name for section in self.properties])
        return self

    def check_names(self, names: Sequence[str]) -> None:
        """Refuse what the study says about a property that is not one of ``names``, those of its properties."""
        check_rule_properties(self.stop.rule, names)
        if isinstance(self.reference, Mapping):
            for name in sorted(set(names) ^ set(self.reference)):
                wrong = "missing" if name in names else "not one of the study's properties"
                raise UserError(f"reference.{name}: {wrong}; a number for each is expected: {', '.join(names)}")
        if isinstance(self.matters, Mapping):
            for name in set(self.matters) - set(names):
                raise UserError(f"matters: {name!r} is not one of the study's properties; accepted: {', '.join(names)}")
        elif self.matters is not None and len(names) > 1:
            raise UserError(
                f"matters: {self.matters:g} for {len(names)} properties; a number for each is accepted: "
                f"{{{', '.join(f'{name}: …' for name in names)}}}"
            )

    def stated_to_matter(self, name: str) -> float | None:
        """Return the difference that matters for the property ``name``, None where the study file states none."""
        return self.matters.get(name) if isinstance(self.matters, Mapping) else self.matters

    @property
    def has_house(self) -> bool:
        """Whether there are house images, which are in every coalition."""
        return self.contributions.house is not None

    @property
    def compared(self) -> tuple[RetrainingSection, ...]:
        """The retrainings that validation compares with the study's own."""
        return self.validation.retrainings if self.validation else ()

    @property
    def data_seed(self) -> int:
        """The seed that draws contributors and held-out images."""
        return self.seed if self.contributions.seed is None else self.contributions.seed

    @property
    def model_seed(self) -> int:
        """The seed of the base model's initialisation and training."""
        return self.seed if self.model.seed is None else self.model.seed

    @property
    def results_folder(self) -> Path:
        return self.results or Path("results") / self.name

    def resolved(self, folder: Path) -> Self:
        """Return a copy with full paths; relative ones start at ``folder``, where the study file lies."""

        def absolute(path: Any) -> Any:
            return real_path(folder / path) if isinstance(path, Path) else path

        def place(text: str | None, url: bool) -> str | None:
            return text if text is None or url else str(absolute(Path(text)))

        return self.model_copy(
            update={
                "contributions": self.contributions.resolved(folder),
                "model": self.model.resolved(folder),
                "properties": tuple(section.resolved(folder) for section in self.properties),
                "payout": absolute(self.payout),
                "results": absolute(self.results_folder),
                "ledger": place(self.ledger, "://" in (self.ledger or "")),
                "artifacts": place(self.artifacts, is_url(self.artifacts or "")),
            }
        )


def _repeated(names: list[str]) -> list[str]:
    return [name for name in names if names.count(name) > 1]


def check_rule_properties(rule: Rule, names: Sequence[str]) -> None:
    """Refuse a rule on a property that is not one of the study's ``names``."""
    for leaf in rule.leaves():
        if isinstance(leaf, CreditRule) and leaf.property is not None and leaf.property not in names:
            raise UserError(f"stop: property {leaf.property!r} is not one of the study's; accepted: {', '.join(names)}")


def _check_reference_model(config: StudyConfig) -> None:
    """Refuse a model as reference that the study does not have."""
    if config.reference == "house" and not config.has_house:
        raise UserError(
            "reference: 'house' needs house images: name them in contributions.house; or accepted: untrained, "
            "pretrained, or a number for each property"
        )
    if config.reference == "pretrained" and config.model.options.get("pretrained") is None:
        raise UserError(
            "reference: 'pretrained' needs a model that comes trained (model.pretrained); accepted here: house, "
            "untrained, or a number for each property"
        )


def read_config(file: Path) -> StudyConfig:
    """Read the study file ``file``, with its relative paths resolved."""
    return parse_config(read_yaml(file), file)


def parse_config(content: Any, file: Path) -> StudyConfig:
    """Validate the content of the study file ``file``."""
    with located(file):
        if not isinstance(content, dict):
            raise UserError(f"a study file is a mapping with the keys {keys_of(StudyConfig)}")
        try:
            config = StudyConfig.model_validate(content)
        except ValidationError as error:
            raise UserError(problems_of(error.errors(), StudyConfig)) from None
        for key in _misplaced_booleans(content, config):
            raise UserError(f"{key}: true and false are not accepted; a number is expected")
        for key, reference in references(config):
            refuse_plugin(reference, key)
    return config.resolved(file.parent)


def require_plugins(config: StudyConfig, file: Path) -> None:
    """Refuse plug-ins that the user has not allowed, all before any of them runs."""
    for key, reference in references(config):
        require_allowed(reference, f"{file}: {key}", file.parent)


def references(config: StudyConfig) -> Iterable[tuple[str, str]]:
    """Yield the key and the name of every component that the study file chooses, built-in or plug-in."""
    yield "contributions.source", config.contributions.source
    if isinstance(config.contributions.house, HouseSection):
        yield "contributions.house.source", config.contributions.house.source
    yield "model.family", config.model.family
    if isinstance(denoiser := config.model.options.get("denoiser"), str):
        yield "model.denoiser", denoiser
    yield "retraining.method", config.retraining.method
    for index, compared in enumerate(config.compared):
        yield f"validation.retrainings.{index}.method", compared.method
    for kind, sections in (("properties", config.properties), ("surrogates", config.surrogates)):
        for index, section in enumerate(sections):
            yield f"{kind}.{index}.name", section.name
            features = section.options.get("features")
            if isinstance(features, Mapping):
                yield f"{kind}.{index}.features.name", str(features.get("name"))
            elif isinstance(features, str):
                yield f"{kind}.{index}.features", features


def _misplaced_booleans(given: Any, taken: Any, key: str = "") -> Iterable[str]:
    """Yield the keys where true or false was ``given`` but ``taken`` as the number 1 or 0, which pydantic allows."""
    if isinstance(given, bool) and not isinstance(taken, bool):
        yield key
    elif isinstance(given, dict) and not isinstance(taken, dict):  # a section, not the value of an option
        for name, value in given.items():
            yield from _misplaced_booleans(value, getattr(taken, name, value), f"{key}.{name}" if key else name)
    elif isinstance(given, list) and isinstance(taken, tuple):
        for index, (value, item) in enumerate(zip(given, taken, strict=True)):
            yield from _misplaced_booleans(value, item, f"{key}.{index}")
