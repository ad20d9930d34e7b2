"""A folder for each contributor, with images at any depth below it."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from diffcredit.contributions.images import open_image
from diffcredit.contributions.names import contributor_name
from diffcredit.contributions.sources.files import check_inside, existing, files_below, is_image
from diffcredit.contributions.sources.record import Record
from diffcredit.errors import UserError


@dataclass(frozen=True)
class Folders:
    """A folder for each contributor."""

    def __call__(self, path: Path | None, contributor: str | None) -> list[Record]:
        """Return the images below ``path``; the top folder is the contributor unless ``contributor`` is None.

        Hidden files and files without an image's ending are ignored. A contributor's folder without any image is an
        error: somebody would be left out silently.
        """
        path = existing(path)
        records = []
        for name, file in files_below(path).items():
            if not is_image(file):
                continue
            check_inside(file, path)
            giver = None
            if contributor is not None:
                folder, slash, _ = name.partition("/")
                if not slash:
                    raise UserError(f"{file}: an image without contributor; put it in its contributor's folder")
                giver = contributor_name(folder, str(file))
            records.append(Record(name, giver, partial(open_image, file)))
        if contributor is not None:
            given = {record.contributor for record in records}
            for folder in sorted(path.iterdir()):
                visible = folder.is_dir() and not folder.name.startswith(".")
                if visible and contributor_name(folder.name, str(folder)) not in given:
                    raise UserError(f"{folder}: a contributor's folder without images; add images or remove it")
        return records
