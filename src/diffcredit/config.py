"""What a study file may say, validated. Every error names the file, the key, the value and what is accepted."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.errors import UserError


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Component(BaseModel):
    """A name and the options of what it names; those are checked when it is built."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class ContributionsSection(_Section):
    """Where the images are and whose they are; see :func:`diffcredit.contributions.load_contributions`."""

    source: str = "auto"
    path: Path | None = None
    contributor: str = "contributor"
    resolution: int = 32
    holdout: float | Path | None = None
    unreadable: Literal["stop", "skip"] = "stop"


class ModelSection(_Section):
    family: Literal["ddpm"] = "ddpm"
    preset: str
    train: Training


class RetrainingSection(_Component):
    """``name`` tells two settings of one method apart in the ledger."""

    method: str
    name: str | None = None

    @property
    def recipe(self) -> str:
        return self.name or self.method


class PropertySection(_Component):
    """``as`` tells two settings of one property apart in the ledger."""

    name: str
    label: str | None = Field(default=None, alias="as")

    @model_validator(mode="before")
    @classmethod
    def _plain_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class DesignSection(_Section):
    """Which coalitions: a ``distribution`` of their sizes, and how often each endpoint is evaluated."""

    distribution: Literal["uniform", "kernel", "exhaustive"] = "uniform"
    seed: int = 0
    endpoints: Annotated[int, Field(ge=1)] = 1


class StopSection(_Section):
    evaluations: Annotated[int, Field(ge=1)] = 500


class StudyConfig(_Section):
    """A study: everything that fixes the numbers, and where they are kept."""

    name: Annotated[str, Field(pattern=r"^[\w][\w .-]*$", max_length=100)]
    seed: Annotated[int, Field(ge=0)] = 0
    contributions: ContributionsSection
    model: ModelSection
    retraining: RetrainingSection
    sampling: Sampling = Sampling()
    properties: Annotated[tuple[PropertySection, ...], Field(min_length=1)]
    design: DesignSection = DesignSection()
    stop: StopSection = StopSection()
    results: Path | None = None
    ledger: str | None = None
    device: str = "auto"

    @field_validator("properties")
    @classmethod
    def _distinct(cls, properties: tuple[PropertySection, ...]) -> tuple[PropertySection, ...]:
        names = [section.label or section.name for section in properties]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{twice[0]!r} is there twice; tell them apart with 'as: another-name'")
        return properties

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
        results = absolute(self.results_folder)
        return self.model_copy(update={"contributions": contributions, "results": results})


def read_config(file: Path) -> StudyConfig:
    """The study file ``file``, with its relative paths resolved."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"{file}: cannot be read ({reason}); a study file is expected") from None
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{file}: not valid YAML ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict):
        raise UserError(f"{file}: a study file is a mapping with the keys {', '.join(StudyConfig.model_fields)}")
    try:
        return StudyConfig.model_validate(content).resolved(file.parent)
    except ValidationError as error:
        raise UserError(f"{file}: " + "; ".join(_sentence(problem) for problem in error.errors()[:3])) from None


def _sentence(problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"]) or "study"
    if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{key}: unknown key"
    if problem["type"] in ("missing", "missing_argument"):
        return f"{key}: missing"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{key}: {problem['input']!r} is not accepted; {message[0].lower() + message[1:]}"
