"""The bundled set: emoji by twelve designers of OpenMoji (CC BY-SA 4.0, see its ATTRIBUTION.md)."""

from dataclasses import replace
from pathlib import Path

from diffcredit.contributions.sources.folders import folders
from diffcredit.contributions.sources.imagefolder import imagefolder
from diffcredit.contributions.sources.record import Record

BUNDLED = Path(__file__).parent.parent / "openmoji"


def openmoji(path: Path, contributor: str | None) -> list[Record]:
    """The emoji in ``path/images`` by their designers, and those in ``path/heldout``, which stay out of
    training whoever joins the game."""
    kept_out = folders(path / "heldout", None)
    return imagefolder(path / "images", contributor) + [replace(record, heldout=True) for record in kept_out]
