"""The section ``contributions`` of a study file: where the images are, whose they are, and which of them play."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, StrictInt, Tag, model_validator

from diffcredit.contributions.near_copies.finding import DISTANCE
from diffcredit.contributions.near_copies.records import Credit, NearCopyRule
from diffcredit.contributions.sources import AUTO, source_options
from diffcredit.errors import UserError, located
from diffcredit.study.sections import Component, PathWithoutNul, Section, Seed
from diffcredit.util.links import real_path
from diffcredit.util.sanitize import LONGEST_VALUE


def _full(folder: Path, value: Any) -> Any:
    return real_path(folder / value) if isinstance(value, Path) else value


class SourceSection(Component):
    """A source of images, with its options."""

    source: str = AUTO
    path: PathWithoutNul | None = None

    @property
    def _place(self) -> str:
        """The section's key in the study file."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _known(self) -> Self:
        """Refuse unknown keys; those of a plug-in are checked when it is built."""
        if ":" not in self.source:
            with located(self._place):
                accepted = [*type(self).model_fields, *source_options(self.source)]
            for name in self.options:
                if name not in accepted:
                    raise UserError(
                        f"{self._place}.{name[:LONGEST_VALUE]}: unknown key; accepted: {', '.join(accepted)}"
                    )
        return self


class HouseSection(SourceSection):
    """Where house images are; nobody needs to be named there."""

    @property
    def _place(self) -> str:
        return "contributions.house"


def _path_alone(value: Any) -> Any:
    """Accept a path for a mapping with only that."""
    return {"path": value} if isinstance(value, str | Path) else value


_Names = Annotated[tuple[str, ...], Field(min_length=1)]
_House = Annotated[
    Annotated[HouseSection, BeforeValidator(_path_alone), Tag("[place]")] | Annotated[_Names, Tag("[names]")],
    Discriminator(lambda value: "[names]" if isinstance(value, list | tuple) else "[place]"),
]


_Account = str | StrictInt
_Identities = Annotated[
    Annotated[dict[_Account, tuple[_Account, ...]], Tag("[names]")] | Annotated[PathWithoutNul, Tag("[place]")],
    Discriminator(lambda value: "[place]" if isinstance(value, str | Path) else "[names]"),
]


class NearCopiesSection(Section):
    """Who is credited for near-copies; see :class:`diffcredit.contributions.NearCopyRule`."""

    credit: Credit
    dates: PathWithoutNul | None = None
    date: str = "date"
    distance: StrictInt = DISTANCE
    pairs: PathWithoutNul | None = None

    @property
    def rule(self) -> NearCopyRule:
        return NearCopyRule(self.credit, self.dates, self.date, self.distance, self.pairs)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that the section names."""
        return tuple(file for file in (self.dates, self.pairs) if file is not None)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        try:
            _ = self.rule
        except UserError as error:
            raise UserError(f"contributions.{error}") from error
        return self


class ContributionsSection(SourceSection):
    """Where the images are and whose they are; see :func:`diffcredit.contributions.load_contributions`. ``house`` is
    the place of the house images, or the contributors whose images are the house's. ``identities`` are the accounts of
    each person, or the file of them. ``near_copies`` is who is credited for near-copies (None: they count like other
    images). ``seed`` draws contributors, held-out images and lots (None: the study's)."""

    contributor: str = "contributor"
    resolution: int = 32
    at_least: int = 1
    draw: int | None = None
    holdout: float | PathWithoutNul | None = None
    unreadable: Literal["stop", "skip"] = "stop"
    house: _House | None = None
    identities: _Identities | None = None
    near_copies: NearCopiesSection | None = None
    lots: Annotated[StrictInt, Field(ge=2)] | None = None
    seed: Seed | None = None

    @property
    def _place(self) -> str:
        return "contributions"

    @property
    def common(self) -> dict[str, Any]:
        """The options that all sources have, but for the source, the house, near-copies, and the seed, which may be the
        study's."""
        apart = ("source", "house", "near_copies", "seed")
        return {name: getattr(self, name) for name in type(self).model_fields if name not in apart}

    def resolved(self, folder: Path) -> Self:
        """Return the section with relative paths taken from ``folder``."""
        places = {key: _full(folder, getattr(self, key)) for key in ("path", "holdout", "identities")}
        house = self.house
        if isinstance(house, HouseSection):
            house = house.model_copy(update={"path": _full(folder, house.path)})
        near_copies = self.near_copies
        if near_copies is not None:
            files = {key: _full(folder, getattr(near_copies, key)) for key in ("dates", "pairs")}
            near_copies = near_copies.model_copy(update=files)
        return self.model_copy(update={**places, "house": house, "near_copies": near_copies})
