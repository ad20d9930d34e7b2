"""The bundled set: emoji by twelve designers of OpenMoji (CC BY-SA 4.0, see its ATTRIBUTION.md)."""

from dataclasses import dataclass, replace
from pathlib import Path

from diffcredit.contributions.sources.folders import Folders
from diffcredit.contributions.sources.imagefolder import ImageFolder
from diffcredit.contributions.sources.record import Record
from diffcredit.errors import UserError

BUNDLED = Path(__file__).parent.parent / "openmoji"


@dataclass(frozen=True)
class OpenMoji:
    """Emoji by their designers; nothing needs to be downloaded."""

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]:
        """Return the emoji of ``images`` by their designers, and those of ``heldout`` as held out."""
        if path is not None:
            raise UserError(f"path: {path}; the source openmoji is bundled and takes no path")
        kept_out = Folders()(BUNDLED / "heldout", None)
        return ImageFolder()(BUNDLED / "images", contributor) + [replace(record, heldout=True) for record in kept_out]
