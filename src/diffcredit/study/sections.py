"""The sections of a study file, each validated by itself; that of the data is in :mod:`.data_section`."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from diffcredit.coalitions import make_design
from diffcredit.credit.precision import Correlation, TopK, Width
from diffcredit.credit.stopping import AllOf, AnyOf, Evaluations, Money, Rule, Time
from diffcredit.diffusion.settings import Count, PositiveInt, Prompts, Training
from diffcredit.errors import UserError
from diffcredit.util.links import real_path

# options of every family that name a folder or a model on the hub
FOLDERS = ("pretrained", "autoencoder", "text_encoder")
MODELS = (*FOLDERS, "adapter")  # and a file or a folder
PATHS = ("weights", "reference", "model")  # options of properties and extractors that may name a file or folder
FILES = ("weights", "reference")  # of PATHS, those that built-in components always read as a file, a folder or a word
WORDS = ("contributions", "heldout")  # values of these options that name a part of the data instead of a path


def _without_nul(path: Any) -> Any:
    if "\0" in str(path):
        raise ValueError("a path without the character NUL is accepted")
    return path


PathWithoutNul = Annotated[Path, AfterValidator(_without_nul)]
TextWithoutNul = Annotated[str, AfterValidator(_without_nul)]


def _printable(name: str) -> str:
    if not name.strip() or not name.isprintable():
        raise ValueError("a name of printable characters is accepted")
    return name


Seed = Annotated[int, Field(ge=0)]
_Name = Annotated[str, Field(max_length=100), AfterValidator(_printable)]
"""A name as tables, reports and the ledger show it."""


def _with_full_paths(name: Any, options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the ``options`` of the component ``name``, and those of its extractor under ``features``, with files and
    folders in ``folder`` as full paths. Other values stay: they may be models on the hub, or mean something to a
    plug-in."""

    def full(key: str, value: Any) -> Any:
        if key == "features" and isinstance(value, dict):
            return _with_full_paths(value.get("name"), value, folder)
        if key not in PATHS or not isinstance(value, str) or value in ("", *WORDS) or value.startswith("~"):
            return value
        if _exists(folder / value):
            return str(real_path(folder / value))
        # where it is missing, the error must not depend on the working directory
        return str(real_path(folder) / value) if key in FILES and ":" not in str(name) else value

    return {key: full(key, value) for key, value in options.items()}


def _exists(path: Path, *, as_folder: bool = False) -> bool:
    try:
        return path.is_dir() if as_folder else path.exists()
    except (OSError, ValueError):  # a name that nothing can have, such as one that is too long
        return False


def _no_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is expected")
    return value


_Number = Annotated[float, BeforeValidator(_no_boolean), Field(allow_inf_nan=False)]
ReferenceSetting = Annotated[
    Annotated[Literal["house", "untrained", "pretrained"], Tag("[model]")]
    | Annotated[dict[str, _Number], Tag("[numbers]")],
    Discriminator(lambda value: "[model]" if isinstance(value, str) else "[numbers]"),
]
"""The reference in a study file: a model, or a number for each property."""


class Section(BaseModel):
    """A mapping with known keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Component(BaseModel):
    """A component's name and its options, which are checked when the component is built."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class ModelSection(Component):
    """The base model: its ``family`` with the family's options, and how it is trained, or was trained elsewhere.

    ``seed`` is that of its initialisation and training (None: the study's).
    """

    family: str = "ddpm"
    train: Training
    seed: Seed | None = None

    def resolved(self, folder: Path) -> Self:
        """Return the section with models in ``folder`` as full paths; other models may be ids of the hub."""
        given = {key: value for key in MODELS if isinstance(value := self.options.get(key), str)}
        here = {
            key: str(real_path(folder / value))
            for key, value in given.items()
            if _exists(folder / value, as_folder=key in FOLDERS)
        }
        own = given.get("adapter", "~")
        if "adapter" not in here and ":" not in self.family and not own.startswith("~"):
            # it is on no hub, and where it is missing, the error must not depend on the working directory
            here["adapter"] = str(real_path(folder) / own)
        return self.model_copy(update=here)


class RetrainingSection(Component):
    """A retraining; ``name`` distinguishes two settings of one method in the ledger."""

    method: str
    name: _Name | None = None

    @property
    def recipe(self) -> str:
        return self.name or self.method


class _NamedSection(Component):
    """A component that the study file may also give as its name alone."""

    name: str

    @model_validator(mode="before")
    @classmethod
    def _plain_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class PropertySection(_NamedSection):
    """A property; ``as`` distinguishes two settings of one property in the ledger. It measures the images generated for
    ``prompts`` (None: all images)."""

    label: _Name | None = Field(default=None, alias="as")
    prompts: Prompts | None = None

    def resolved(self, folder: Path) -> Self:
        """Return the section with files and folders in ``folder`` as full paths."""
        options = _with_full_paths(self.name, self.options, folder)
        own = {"name": self.name, "as": self.label, "prompts": self.prompts}
        return type(self).model_validate({**own, **options})


class SurrogateSection(_NamedSection):
    """A cheap stand-in for the properties; see :mod:`diffcredit.surrogates`."""


class DesignSection(Section):
    """The coalitions: the ``distribution`` of their sizes, and how often F(all) is evaluated: it enters every credit,
    so its noise is worth averaging. With house images F(none) is evaluated as often; without any it is an untrained
    network's and has no noise."""

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


class _MoneySection(Section):
    amount: _Positive  # in any currency
    per_hour: _Positive  # the price of one worker


def _target(key: str) -> BeforeValidator:
    """Accept a plain number for a mapping with only the target ``key``."""
    return BeforeValidator(lambda value: value if isinstance(value, dict) else {key: value})


class _WidthSection(Section):
    at_most: _Positive
    property: str | None = None


class _CorrelationSection(Section):
    at_least: _Share
    property: str | None = None


class _TopSection(Section):
    k: Annotated[int, Field(ge=1)]
    overlap: Annotated[float, Field(gt=0, le=1)] = 0.9
    property: str | None = None


class StopSection(Section):
    """One rule, or several in ``any`` or ``all``; see :mod:`diffcredit.credit.stopping`."""

    evaluations: PositiveInt | None = None
    hours: _Positive | None = None
    money: _MoneySection | None = None
    correlation: Annotated[_CorrelationSection, _target("at_least")] | None = None
    width: Annotated[_WidthSection, _target("at_most")] | None = None
    top: _TopSection | None = None
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


class ValidationSection(Section):
    """The evaluations of ``diffcredit validate``; see :mod:`diffcredit.validation`.

    For the truth, ``coalitions`` coalitions of each of the ``shares`` α of all contributors are retrained from scratch,
    each with ``seeds`` training seeds and for ``steps`` steps (None: as many as the base model). In addition to the
    study's own retraining, ``retrainings`` are credited and compared, each from ``evaluations`` of the study's design
    and, with ``leave_one_out``, from leaving out each contributor.
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
        """The retraining from scratch."""
        return RetrainingSection.model_validate(
            {"method": "from_scratch", **({} if self.steps is None else {"steps": self.steps})}
        )
