"""House images: in every coalition, credited to nobody. They lie in a place of their own, or are those of contributors
who are named."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from diffcredit.contributions.sources import AUTO, Record, Source
from diffcredit.errors import UserError

FOLDER = "house/"  # before the names of house images from a place of their own


@dataclass(frozen=True)
class House:
    """A place of house images: what ``source`` reads at ``path``. Nobody needs to be named there."""

    path: str | Path | None = None
    source: str | Source = AUTO


def named_house(house: object, records: Sequence[Record]) -> frozenset[str]:
    """Return the contributors that ``house`` names, who must be among those of ``records``; none if it is a place."""
    if house is None or isinstance(house, str | Path | House):
        return frozenset()
    if not isinstance(house, Collection) or not all(isinstance(name, str) for name in house):
        raise UserError(f"house: {house!r}; a path, or a list of contributors' names, is accepted")
    there = sorted({record.contributor for record in records if record.contributor is not None})
    for name in house:
        if name not in there:
            raise UserError(f"house: {name!r} is no contributor; there are: {', '.join(there)}")
    return frozenset(house)


def place_of(house: object) -> House | None:
    """Return the place of the house images; None where there is none."""
    return House(house) if isinstance(house, str | Path) else house if isinstance(house, House) else None


def renamed(records: Sequence[Record], taken: Collection[str]) -> list[Record]:
    """Return the training images among ``records`` under names that are not ``taken``."""
    folder = FOLDER
    while any(folder + record.name in taken for record in records):
        folder = FOLDER + folder
    return [replace(record, name=folder + record.name) for record in records if not record.heldout]
