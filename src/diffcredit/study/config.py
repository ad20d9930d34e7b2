"""A study file, read and validated.

Every error names the file, the key, the value and what is accepted. The sections are in
:mod:`diffcredit.study.sections`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from diffcredit.credit.precision import CreditRule
from diffcredit.credit.stopping import Rule
from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import UserError
from diffcredit.study.problems import describe, keys_of
from diffcredit.study.sections import (
    ContributionsSection,
    DesignSection,
    ModelSection,
    PathWithoutNul,
    PropertySection,
    RetrainingSection,
    Section,
    StopSection,
    SurrogateSection,
    ValidationSection,
    without_nul,
)
from diffcredit.util.plugins import refuse_plugin
from diffcredit.util.store import is_url
from diffcredit.util.yamlfile import read_yaml


class StudyConfig(Section):
    """A study: everything that fixes the numbers, and where they are kept.

    ``threads`` is how many threads a process uses on a CPU. Their number changes the rounding of sums, so it belongs to
    the study and not to the machine. ``keep`` is what is kept of each evaluation, for properties that are added later.
    ``artifacts`` is the folder or fsspec URL for models and what is kept; by default, the folder ``results``.
    """

    name: Annotated[str, Field(max_length=100)]
    seed: Annotated[int, Field(ge=0)] = 0
    contributions: ContributionsSection
    model: ModelSection
    retraining: RetrainingSection
    sampling: Sampling = Sampling()
    properties: Annotated[tuple[PropertySection, ...], Field(min_length=1)]
    surrogates: tuple[SurrogateSection, ...] = ()
    design: DesignSection = DesignSection()
    stop: StopSection = StopSection(evaluations=500)
    validation: ValidationSection | None = None
    keep: Literal["images", "features", "model", "nothing"] = "nothing"
    results: PathWithoutNul | None = None
    ledger: Annotated[str, AfterValidator(without_nul)] | None = Field(default=None, repr=False)  # hides passwords
    artifacts: Annotated[str, AfterValidator(without_nul)] | None = Field(default=None, repr=False)  # as well
    device: str = "auto"
    threads: Annotated[int, Field(ge=1, le=1024)] = 1

    @field_validator("name")
    @classmethod
    def _names_a_folder(cls, name: str) -> str:
        if not re.fullmatch(r"\w[\w .-]*", name):
            raise ValueError("letters, digits, spaces and . _ - are accepted, a letter or digit first")
        return name

    @field_validator("device")
    @classmethod
    def _names_a_device(cls, device: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", device):
            raise ValueError("accepted: auto, cpu, cuda, cuda:1, …")
        return device

    @field_validator("properties")
    @classmethod
    def _distinct(cls, properties: tuple[PropertySection, ...]) -> tuple[PropertySection, ...]:
        names = [section.label or section.name for section in properties]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{twice[0]!r} is there twice; distinguish them with 'as: another-name'")
        return properties

    @field_validator("surrogates")
    @classmethod
    def _different(cls, surrogates: tuple[SurrogateSection, ...]) -> tuple[SurrogateSection, ...]:
        names = [section.name for section in surrogates]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{twice!r} is there twice; once is accepted")
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
    def _recipes_have_their_own_names(self) -> Self:
        names = [self.retraining.recipe, *(section.recipe for section in self.compared)]
        for name in names:
            if names.count(name) > 1:
                raise UserError(
                    f"validation.retrainings: {name!r} is there twice, or the study's own; distinguish them with "
                    "'name: another-name'"
                )
        return self

    @model_validator(mode="after")
    def _stops_at_its_own_properties(self) -> Self:
        # plug-ins without a label name themselves, which is known only once they are built
        if all(section.label or ":" not in section.name for section in self.properties):
            check_rule_properties(self.stop.rule, [section.label or section.name for section in self.properties])
        return self

    @property
    def compared(self) -> tuple[RetrainingSection, ...]:
        """The retrainings that validation compares with the study's own."""
        return self.validation.retrainings if self.validation else ()

    @property
    def results_folder(self) -> Path:
        return self.results or Path("results") / self.name

    def resolved(self, folder: Path) -> Self:
        """Return the same with relative paths taken from ``folder``, the study file's."""

        def absolute(path: Any) -> Any:
            return (folder / path).resolve() if isinstance(path, Path) else path

        contributions = self.contributions.model_copy(
            update={
                "path": absolute(self.contributions.path),
                "holdout": absolute(self.contributions.holdout),
            }
        )
        ledger = self.ledger
        if ledger is not None and "://" not in ledger:
            ledger = str(absolute(Path(ledger)))
        artifacts = self.artifacts
        if artifacts is not None and not is_url(artifacts):
            artifacts = str(absolute(Path(artifacts)))
        results = absolute(self.results_folder)
        return self.model_copy(
            update={
                "contributions": contributions,
                "model": self.model.resolved(folder),
                "properties": tuple(section.resolved(folder) for section in self.properties),
                "results": results,
                "ledger": ledger,
                "artifacts": artifacts,
            }
        )


def check_rule_properties(rule: Rule, names: Sequence[str]) -> None:
    """Refuse a rule on a property that is not one of the study's ``names``."""
    for leaf in rule.leaves():
        if isinstance(leaf, CreditRule) and leaf.property is not None and leaf.property not in names:
            raise UserError(f"stop: property {leaf.property!r} is not one of the study's; accepted: {', '.join(names)}")


def read_config(file: Path) -> StudyConfig:
    """Read the study file ``file``, with its relative paths resolved."""
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise UserError(f"{file}: a study file is a mapping with the keys {', '.join(keys_of(StudyConfig))}")
    try:
        config = StudyConfig.model_validate(content)
    except ValidationError as error:
        raise UserError(f"{file}: {describe(error.errors(), StudyConfig)}") from None
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    if keys := list(_misplaced_booleans(content, config)):
        raise UserError(f"{file}: {keys[0]}: true and false are not accepted; a number is expected")
    for key, reference in _references(config):
        refuse_plugin(reference, f"{file}: {key}")
    return config.resolved(file.parent)


def _references(config: StudyConfig) -> Iterable[tuple[str, str]]:
    """Yield the keys whose values name components, built-in or plug-ins, and these names."""
    yield "contributions.source", config.contributions.source
    yield "model.family", config.model.family
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
    """Yield the keys where true or false was given and read as the number 1 or 0."""
    if isinstance(given, bool) and not isinstance(taken, bool):
        yield key
    elif isinstance(given, dict) and not isinstance(taken, dict):  # a section, not the value of an option
        for name, value in given.items():
            yield from _misplaced_booleans(value, getattr(taken, name, value), f"{key}.{name}" if key else name)
    elif isinstance(given, list) and isinstance(taken, tuple):
        for index, (value, item) in enumerate(zip(given, taken, strict=True)):
            yield from _misplaced_booleans(value, item, f"{key}.{index}")
