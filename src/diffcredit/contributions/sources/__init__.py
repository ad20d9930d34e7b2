"""Where contributions come from: one file a source, each a function from a path to records."""

from pathlib import Path

from diffcredit.contributions.sources.folders import folders
from diffcredit.contributions.sources.imagefolder import METADATA, imagefolder
from diffcredit.contributions.sources.npz import npz
from diffcredit.contributions.sources.openmoji import BUNDLED, openmoji
from diffcredit.contributions.sources.record import Record, Source
from diffcredit.errors import UserError

__all__ = ["BUNDLED", "SOURCES", "Record", "Source", "detect"]

SOURCES: dict[str, Source] = {
    "folders": folders,
    "imagefolder": imagefolder,
    "npz": npz,
    "openmoji": openmoji,
}


def detect(path: Path) -> str:
    """The name of the source that reads what lies at ``path``."""
    if path.is_dir():
        return "imagefolder" if any((path / name).is_file() for name in METADATA) else "folders"
    if path.name in METADATA:
        return "imagefolder"
    if path.suffix.lower() == ".npz":
        return "npz"
    raise UserError(f"{path}: a folder, {', '.join(METADATA)} or an .npz file is accepted")
