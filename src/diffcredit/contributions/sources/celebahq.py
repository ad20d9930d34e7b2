"""CelebA-HQ; its identities are the contributors.

It is read as CelebAMask-HQ distributes it (https://github.com/switchablenorms/CelebAMask-HQ): ``CelebA-HQ-img/0.jpg``
and so on, and ``CelebA-HQ-to-CelebA-mapping.txt`` (``idx orig_idx orig_file``, a header first). The identities come
with CelebA itself: ``identity_CelebA.txt`` (``000001.jpg 2880``), here or in the folder above.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from diffcredit.contributions.images import open_image
from diffcredit.contributions.names import contributor_name
from diffcredit.contributions.sources.files import check_inside, existing, files_below, folder_with, is_image
from diffcredit.contributions.sources.record import Record
from diffcredit.contributions.sources.tables import words
from diffcredit.errors import UserError

FOLDER, IMAGES = "CelebAMask-HQ", "CelebA-HQ-img"
MAPPING, IDENTITIES = "CelebA-HQ-to-CelebA-mapping.txt", "identity_CelebA.txt"
HEADER = ["idx", "orig_idx", "orig_file"]


@dataclass(frozen=True)
class CelebAHQ:
    """Portraits by identity. The published study uses ``at_least: 15`` and ``draw: 50`` with this source."""

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]:
        """Return the images by the numbers of their identities.

        ``path`` is the folder or the one above. Every image must be in the mapping and have an identity, and every row
        of the mapping must have its image.
        """
        folder = folder_with(existing(path), FOLDER, IMAGES)
        originals = _originals(folder / MAPPING)
        identities = {} if contributor is None else _identities(folder)
        images = folder / IMAGES
        records = []
        for name, file in files_below(images).items():
            if not is_image(file):
                continue
            check_inside(file, images)
            if name not in originals:
                raise UserError(f"{file}: an image without contributor: {MAPPING} has no row for it")
            original, giver = originals.pop(name), None
            if contributor is not None:
                if original not in identities:
                    raise UserError(
                        f"{file}: an image without contributor: {IDENTITIES} has no row for {original}, its original"
                    )
                giver = identities[original]
            records.append(Record(name, giver, partial(open_image, file)))
        if originals:
            raise UserError(f"{images / min(originals)}: does not exist, but is listed in {MAPPING}")
        return records


def _originals(mapping: Path) -> dict[str, str]:
    """Return the name of CelebA's file by that of CelebA-HQ, ``"0.jpg": "119613.jpg"``."""
    originals: dict[str, str] = {}
    for line, row in words(mapping, len(HEADER)):
        if row == HEADER:
            continue
        name = f"{row[0]}.jpg"
        if name in originals:
            raise UserError(f"{mapping}:{line}: {row[0]} is in an earlier line already")
        originals[name] = row[2]
    return originals


def _identities(folder: Path) -> dict[str, str]:
    """Return the identity on each of CelebA's files."""
    places = [folder / IDENTITIES, folder.parent / IDENTITIES]
    table = next((place for place in places if place.is_file()), None)
    if table is None:
        raise UserError(f"{places[0]}: does not exist, nor does {places[1]}; it comes with CelebA")
    identities: dict[str, str] = {}
    for line, (name, identity) in words(table, 2):
        if name in identities:
            raise UserError(f"{table}:{line}: {name} is in an earlier line already")
        identities[name] = contributor_name(identity, f"{table}:{line}")
    return identities
