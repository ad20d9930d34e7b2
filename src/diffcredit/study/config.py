"""What a study file may say, validated. Every error names the file, the key, the value and what is accepted."""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from diffcredit.coalitions import make_design
from diffcredit.contributions.sources import AUTO, source_options
from diffcredit.credit.precision import Correlation, CreditRule, TopK, Width
from diffcredit.credit.stopping import AllOf, AnyOf, Evaluations, Money, Rule, Time
from diffcredit.diffusion.settings import Count, PositiveInt, Sampling, Training
from diffcredit.errors import UserError, located
from diffcredit.util.plugins import refuse_plugin
from diffcredit.util.sanitize import LONGEST_VALUE, shortened
from diffcredit.util.store import is_url
from diffcredit.util.yamlfile import read_yaml

MODELS = ("pretrained", "autoencoder")  # options that name a folder or a model on the hub, whatever the family
PATHS = ("weights", "reference", "model")  # options of properties and extractors that may name a file or folder
FILES = ("weights", "reference")  # those of them that, of ours, name nothing else than that or a word
WORDS = ("contributions", "heldout")


def _without_nul(path: Any) -> Any:
    if "\0" in str(path):
        raise ValueError("a path without the character NUL is accepted")
    return path


_Path = Annotated[Path, AfterValidator(_without_nul)]


def _printable(name: str) -> str:
    if not name.strip() or not name.isprintable():
        raise ValueError("a name of printable characters is accepted")
    return name


_Name = Annotated[str, Field(max_length=100), AfterValidator(_printable)]
"""What tables, reports and the ledger call something."""


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that no folder can have, such as one that is too long
        return False


def _found(name: Any, options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The ``options`` of what is called ``name``, with files and folders beside the study file as their full paths;
    what is none of them may be a model on the hub, or a plug-in's own word. Those of an extractor lie in a mapping of
    their own."""

    def full(key: str, value: Any) -> Any:
        if key == "features" and isinstance(value, dict):
            return _found(value.get("name"), value, folder)
        if key not in PATHS or not isinstance(value, str) or value in ("", *WORDS) or value.startswith("~"):
            return value
        if _exists(folder / value):
            return str((folder / value).resolve())
        # where it lacks, the error must not depend on the working directory
        return str(folder.resolve() / value) if key in FILES and ":" not in str(name) else value

    return {key: full(key, value) for key, value in options.items()}


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that nothing can have
        return False


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Component(BaseModel):
    """A name and the options of what it names; those are checked when it is built."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class ContributionsSection(_Component):
    """Where the images are and whose they are; see :func:`diffcredit.contributions.load_contributions`."""

    source: str = AUTO
    path: _Path | None = None
    contributor: str = "contributor"
    resolution: int = 32
    at_least: int = 1
    draw: int | None = None
    holdout: float | _Path | None = None
    unreadable: Literal["stop", "skip"] = "stop"

    @model_validator(mode="after")
    def _known(self) -> Self:
        """Refuses what is neither a key here nor an option of the source; a plug-in's are checked when it is built."""
        if ":" not in self.source:
            with located("contributions"):
                accepted = [*type(self).model_fields, *source_options(self.source)]
            for name in self.options:
                if name not in accepted:
                    raise UserError(
                        f"contributions.{name[:LONGEST_VALUE]}: unknown key; accepted: {', '.join(accepted)}"
                    )
        return self

    @property
    def common(self) -> dict[str, Any]:
        """What every source's images are loaded with."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "source"}


class ModelSection(_Component):
    """The base model: its ``family`` with the family's options, and how it is trained (one that comes trained: how it
    was)."""

    family: str = "ddpm"
    train: Training

    def resolved(self, folder: Path) -> Self:
        """The same with models that are folders beside the study file as their full paths; others may be hub ids."""
        here = {
            key: str((folder / value).resolve())
            for key in MODELS
            if isinstance(value := self.options.get(key), str) and _is_folder(folder / value)
        }
        return type(self).model_validate({"family": self.family, "train": self.train, **self.options, **here})


class RetrainingSection(_Component):
    """``name`` tells two settings of one method apart in the ledger."""

    method: str
    name: _Name | None = None

    @property
    def recipe(self) -> str:
        return self.name or self.method


class PropertySection(_Component):
    """``as`` tells two settings of one property apart in the ledger."""

    name: str
    label: _Name | None = Field(default=None, alias="as")

    @model_validator(mode="before")
    @classmethod
    def _plain_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    def resolved(self, folder: Path) -> Self:
        """The same with files and folders beside the study file as their full paths."""
        options = _found(self.name, self.options, folder)
        return type(self).model_validate({"name": self.name, "as": self.label, **options})


class SurrogateSection(_Component):
    """A cheap stand-in for the properties; see :mod:`diffcredit.surrogates`."""

    name: str

    @model_validator(mode="before")
    @classmethod
    def _plain_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class DesignSection(_Section):
    """Which coalitions: a ``distribution`` of their sizes, and how often F(all) is evaluated.

    F(all) is in every credit, so its noise is worth averaging; F(none) is an untrained network and has none.
    """

    distribution: str = "uniform"
    seed: int = 0
    full_replicates: Annotated[int, Field(ge=1, le=1000)] = 3

    @field_validator("distribution")
    @classmethod
    def _known(cls, distribution: str) -> str:
        try:
            make_design(distribution)
        except UserError as error:
            raise ValueError(str(error).removeprefix(f"design {distribution!r}: ")) from None
        return distribution


_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Share = Annotated[float, Field(gt=0, lt=1)]


class MoneySection(_Section):
    """``amount`` of any currency, at the price of a worker's hour."""

    amount: _Positive
    per_hour: _Positive


def _target(key: str) -> BeforeValidator:
    """A plain number stands for a mapping with nothing but the target."""
    return BeforeValidator(lambda value: value if isinstance(value, dict) else {key: value})


class WidthSection(_Section):
    at_most: _Positive
    property: str | None = None


class CorrelationSection(_Section):
    at_least: _Share
    property: str | None = None


class TopSection(_Section):
    k: Annotated[int, Field(ge=1)]
    overlap: Annotated[float, Field(gt=0, le=1)] = 0.9
    property: str | None = None


class StopSection(_Section):
    """One rule, or several in ``any`` or ``all``; see :mod:`diffcredit.credit.stopping`."""

    evaluations: PositiveInt | None = None
    hours: _Positive | None = None
    money: MoneySection | None = None
    correlation: Annotated[CorrelationSection, _target("at_least")] | None = None
    width: Annotated[WidthSection, _target("at_most")] | None = None
    top: TopSection | None = None
    any: Annotated[tuple["StopSection", ...], Field(min_length=1)] | None = None
    all: Annotated[tuple["StopSection", ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if not given:
            raise ValueError(f"one rule is expected: {', '.join(type(self).model_fields)}")
        if len(given) > 1:
            raise ValueError(
                f"{' and '.join(given)} are several rules; join them: any: [{{…}}, {{…}}] ends the study with the "
                "first one reached, all: [{…}, {…}] when all are"
            )
        return self

    @property
    def rule(self) -> Rule:
        """The rule that the section describes."""
        if self.any is not None:
            return AnyOf(tuple(section.rule for section in self.any))
        if self.all is not None:
            return AllOf(tuple(section.rule for section in self.all))
        if self.money is not None:
            return Money(self.money.amount, self.money.per_hour)
        if self.correlation is not None:
            return Correlation(self.correlation.at_least, property=self.correlation.property)
        if self.width is not None:
            return Width(self.width.at_most, property=self.width.property)
        if self.top is not None:
            return TopK(self.top.k, self.top.overlap, property=self.top.property)
        return Time(self.hours) if self.hours is not None else Evaluations(cast(int, self.evaluations))


class ValidationSection(_Section):
    """The evidence that ``diffcredit validate`` asks for; see :mod:`diffcredit.validation.study`.

    Truth is ``coalitions`` of each of the ``shares`` α of all contributors, retrained from scratch with ``seeds``
    training seeds each, for as many ``steps`` as the base model, or so many. Beside the study's own retraining,
    ``retrainings`` are credited and compared, each with as many ``evaluations`` of the study's design, and
    ``leave_one_out`` of each.
    """

    shares: Annotated[tuple[_Share, ...], Field(min_length=1)] = (0.25, 0.5, 0.75)
    coalitions: Count = 100
    seeds: Annotated[int, Field(ge=1, le=1000)] = 2
    steps: PositiveInt | None = None
    retrainings: tuple[RetrainingSection, ...] = ()
    evaluations: Count = 100
    leave_one_out: bool = True

    @field_validator("shares")
    @classmethod
    def _in_order(cls, shares: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(shares)) < len(shares):
            raise ValueError("each share once is accepted")
        return tuple(sorted(shares))

    @property
    def truth(self) -> RetrainingSection:
        """The recipe of models that are retrained from scratch."""
        return RetrainingSection.model_validate(
            {"method": "from_scratch", **({} if self.steps is None else {"steps": self.steps})}
        )


class StudyConfig(_Section):
    """A study: everything that fixes the numbers, and where they are kept.

    ``threads`` is how many a process computes with on a CPU. Sums come out another way with another number, so
    it belongs to the study and not to the machine. ``keep`` is what stays of each evaluation, for properties that are
    added later. ``artifacts`` is where models and what is kept lie, a folder or an fsspec URL; else in ``results``.
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
    results: _Path | None = None
    ledger: Annotated[str, AfterValidator(_without_nul)] | None = Field(default=None, repr=False)  # hides passwords
    artifacts: Annotated[str, AfterValidator(_without_nul)] | None = Field(default=None, repr=False)  # as well
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
            raise ValueError(f"{twice[0]!r} is there twice; tell them apart with 'as: another-name'")
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
                    f"validation.retrainings: {name!r} is there twice, or the study's own; tell them apart with "
                    "'name: another-name'"
                )
        return self

    @model_validator(mode="after")
    def _stops_at_its_own_properties(self) -> Self:
        if all(
            section.label or ":" not in section.name for section in self.properties
        ):  # else plug-ins name themselves
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
        """The same with relative paths taken from ``folder``, the study file's."""

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
    """Refuses a rule on a property that is not one of the study's ``names``."""
    for leaf in rule.leaves():
        if isinstance(leaf, CreditRule) and leaf.property is not None and leaf.property not in names:
            raise UserError(f"stop: property {leaf.property!r} is not one of the study's; accepted: {', '.join(names)}")


def read_config(file: Path) -> StudyConfig:
    """The study file ``file``, with its relative paths resolved."""
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise UserError(f"{file}: a study file is a mapping with the keys {', '.join(_keys(StudyConfig))}")
    try:
        config = StudyConfig.model_validate(content)
    except ValidationError as error:
        raise UserError(f"{file}: {_sentences(error.errors())}") from None
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    if keys := list(_misplaced_booleans(content, config)):
        raise UserError(f"{file}: {keys[0]}: true and false are not accepted; a number is expected")
    for key, reference in _references(config):
        refuse_plugin(reference, f"{file}: {key}")
    return config.resolved(file.parent)


def _references(config: StudyConfig) -> Iterable[tuple[str, str]]:
    """The keys whose values name components, ours or plug-ins, and these names."""
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
    """The keys where true or false was given and taken for the number 1 or 0."""
    if isinstance(given, bool) and not isinstance(taken, bool):
        yield key
    elif isinstance(given, dict) and not isinstance(taken, dict):  # a section, not the value of an option
        for name, value in given.items():
            yield from _misplaced_booleans(value, getattr(taken, name, value), f"{key}.{name}" if key else name)
    elif isinstance(given, list) and isinstance(taken, tuple):
        for index, (value, item) in enumerate(zip(given, taken, strict=True)):
            yield from _misplaced_booleans(value, item, f"{key}.{index}")


_SECTIONS: dict[str, type] = {
    "contributions": ContributionsSection,
    "model": ModelSection,
    "train": Training,
    "retraining": RetrainingSection,
    "sampling": Sampling,
    "properties": PropertySection,
    "surrogates": SurrogateSection,
    "validation": ValidationSection,
    "retrainings": RetrainingSection,
    "design": DesignSection,
    "stop": StopSection,
    "any": StopSection,
    "all": StopSection,
    "money": MoneySection,
    "width": WidthSection,
    "correlation": CorrelationSection,
    "top": TopSection,
}


def _keys(section: type) -> list[str]:
    if issubclass(section, BaseModel):
        return [field.alias or name for name, field in section.model_fields.items()]
    return [field.name for field in dataclasses.fields(cast(Any, section))]


def _sentences(problems: Iterable[Any]) -> str:
    """Each key's problem, in words; at most three of them."""
    reasons: dict[str, list[str]] = {}
    values: dict[str, str] = {}
    for problem in problems:
        if problem["type"] == "too_short" and problem["input"]:
            continue  # only because its items are wrong, which other problems say
        key, section = _key(problem["loc"])
        value, reason = _problem(problem, section)
        values[key] = value
        reasons.setdefault(key, []).append(reason)
    return "; ".join(f"{key}: {values[key]}{' or '.join(reasons[key])}" for key in list(reasons)[:3])


def _key(location: tuple[int | str, ...]) -> tuple[str, type | None]:
    """The key as a study file's reader would write it, and the section there, if it is one."""
    parts: list[str] = []
    section: type | None = StudyConfig
    for part in location:
        parts.append(str(part)[:LONGEST_VALUE])
        section = section if isinstance(part, int) else _SECTIONS.get(part)
        if section is None:  # what follows names the alternatives of a type, not keys
            break
    return ".".join(parts) or "study", section


def _problem(problem: Any, section: type | None) -> tuple[str, str]:
    """What was given, and why it is not accepted."""
    kind = problem["type"]
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        *above, _ = problem["loc"]
        return "", f"unknown key; accepted: {', '.join(_keys(_key(tuple(above))[1] or StudyConfig))}"
    mapping = f"a mapping with the keys {', '.join(_keys(section))} is expected" if section else ""
    if kind in ("missing", "missing_argument"):
        return "", f"missing; {mapping or 'a value is expected'}"
    if kind in ("model_type", "dataclass_type"):
        reason = mapping
    elif kind in ("tuple_type", "too_short"):
        reason = "a list of at least one is expected"
    elif kind == "path_type":
        reason = "a path"
    else:
        message = problem["msg"].removeprefix("Value error, ")
        reason = message[0].lower() + message[1:]
    return f"{shortened(problem['input'])} is not accepted; ", reason
