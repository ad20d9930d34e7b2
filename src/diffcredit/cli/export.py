"""``diffcredit export`` and ``diffcredit import``: a study's ledger to one file, and back."""

from pathlib import Path
from typing import Annotated

import typer
import yaml

from diffcredit.cli.console import say
from diffcredit.cli.options import StudyArgument
from diffcredit.cli.signing import SignedByOption, SignOption, check_signed, key_of
from diffcredit.errors import UserError, located

ArchiveArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The archive, such as study.zip.")]


def export(
    study: StudyArgument,
    file: ArchiveArgument,
    with_models: Annotated[
        bool,
        typer.Option(
            "--with-models", help="Include the base model and everything else prepared, so that the study can continue."
        ),
    ] = False,
    sign: SignOption = None,
) -> None:
    """Write a study's ledger and study file as one archive: Parquet and JSON in a zip."""
    from diffcredit.ledger.archive import write_archive
    from diffcredit.study.study import Study
    from diffcredit.util.store import pull
    from diffcredit.util.yamlfile import read_yaml

    key, loaded = key_of(sign), Study.load(study)
    if file.exists():
        raise UserError(f"{file}: already exists; give a new file")
    with loaded.ledger(create=False) as ledger:
        rows, head = ledger.export(loaded.name)
    if with_models and loaded.cache.store is not None:
        pull(loaded.cache.store, loaded.cache.folder)
    models = loaded.cache.folder if with_models else None
    write_archive(file, rows, head, _portable(read_yaml(loaded.file)), models)
    stay = "contributions and what was kept" if with_models else "images, models and contributions"
    say(f"{file}: {len(rows):,} rows of {loaded.name}; {stay} stay where they are")
    if key is not None:
        from diffcredit.proofs.signing import sign_file

        say(f"Signed: {sign_file(key, file, 'archive', loaded.name, head)}")
    say(f"Head: {head}")


def restore(
    file: ArchiveArgument,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder for the study.")],
    signed_by: SignedByOption = None,
) -> None:
    """Restore an exported study: its study file, its ledger with the same head, and its models if included."""
    from diffcredit.ledger import Ledger
    from diffcredit.ledger.archive import read_archive, restore_models
    from diffcredit.util.artifacts import atomic_file, write_text

    study_file, place, models = folder / "study.yaml", folder / "ledger.db", folder / "models"
    for path in (study_file, place, models):
        if path.exists():
            raise UserError(f"{path}: already exists; give another folder")
    if signed_by is not None:
        check_signed(file, signed_by)
    rows, head, settings = read_archive(file)
    with located(file), atomic_file(place) as temporary:
        temporary.unlink()  # the database creates it
        with Ledger.open(temporary) as ledger:
            ledger.restore(rows, head)
        restored = restore_models(file, models)
    write_text(study_file, yaml.safe_dump(_portable(settings), allow_unicode=True, sort_keys=False))
    say(f"{study_file}: {len(rows):,} rows in {place.name}, as they were exported")
    if restored:
        say(f"{models}: {restored:,} files")
    say(f"Head: {head}")


def _portable(settings: dict[str, object]) -> dict[str, object]:
    """Return a study file's content without places of this machine, whose URLs may hold passwords."""
    return {key: value for key, value in settings.items() if key not in ("ledger", "results", "artifacts")} | {
        "results": "."
    }
