"""The manifest: what the ledger has besides rows of evaluations, so that its head covers all that decides a credit.

| kind of entry | says | entered by |
| --- | --- | --- |
| ``terms`` | the sections of the study file that decide what is shown, and are in no recipe or property | writers |
| ``images`` | the hash of each contributor's images, and of the house's | ``run`` |
| ``surrogate`` | a surrogate's values (:mod:`diffcredit.study.surrogates`) | who measures them |
| ``file`` | the SHA-256 of a file that results are read from | who writes that file, just before |
| ``credits`` | the credits that were published (:mod:`diffcredit.study.published`) | writers |

Writers are ``run``, ``measure``, ``validate`` and ``payout``. Whoever only reads compares, and never writes. A ledger
that no writer has seen since there are manifests has none, and nothing to compare.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffcredit.errors import UserError
from diffcredit.execution.tasks import utc_now
from diffcredit.ledger import ChangedRecord, Entry, Ledger, NoLedger, differences
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.sanitize import shortened

if TYPE_CHECKING:
    from diffcredit.contributions import Contributions
    from diffcredit.study.study import Study

TERMS, IMAGES, FILE = "terms", "images", "file"
SECTIONS: dict[str, Any] = {
    "design": {"distribution"},  # the rest decides what is evaluated
    "reference": True,
    "matters": True,
    "retired": True,
    "surrogates": True,
    "validation": True,
}
MOST_LINES = 3  # differences in a message
LONGEST_NAME = 255  # bytes, as file systems have it

Content = bytes | Mapping[str, bytes]
"""A file's content, or that of a folder's files by their names."""


def terms_of(study: "Study") -> dict[str, Any]:
    """Return what the study file says in the sections that decide what is shown. Defaults are left out, so that options
    which a later release adds change nothing."""
    return study.config.model_dump(mode="json", include=SECTIONS, exclude_defaults=True)


def enter_terms(study: "Study", ledger: Ledger) -> None:
    """Enter what the study file says now, unless it is what was entered last. What an older study has in files enters
    first: it counts as it is then, and no more later."""
    if is_older(study):
        _take_over(study)
    _enter_new(study, ledger, TERMS, TERMS, terms_of(study))


def _take_over(study: "Study") -> None:
    places = [*(study.folder / "baselines").glob("*.json"), *(study.folder / "validation").glob("*/section.json")]
    places += study.cache.folder.glob("quality-*.json")
    for place in sorted(places):
        place = place.parent if place.parent.parent.name == "validation" else place
        enter_file(study, place, content_of(place))
    if study.surrogates.names and study.evaluations() and study.surrogates.ready():
        study.surrogates.prepare()


def check_terms(study: "Study") -> None:
    """Refuse a study file that says something else than the ledger."""
    entered = _entries(study, TERMS).get(TERMS)
    lines = differences(entered[-1], terms_of(study)) if entered else []
    if lines:
        more = f"; and {len(lines) - MOST_LINES} more" if len(lines) > MOST_LINES else ""
        raise UserError(
            f"{study.file}: {'; '.join(lines[:MOST_LINES])}{more} (in the ledger → stated now): this decides what is "
            "shown; restore it, or have diffcredit run enter the change"
        )


def enter_images(study: "Study", ledger: Ledger, contributions: "Contributions") -> None:
    """Enter the hash of each contributor's images, as statements have it."""
    known = ledger.entries(study.name, IMAGES)
    if known and known[-1].content.get("fingerprint") == contributions.fingerprint:
        return  # hashing takes a while
    hashes = {name: contributions.works(name).digest for name in contributions.givers}
    content = {"fingerprint": contributions.fingerprint, "contributors": hashes}
    _enter_new(study, ledger, IMAGES, IMAGES, content)


def enter_file(study: "Study", file: Path, content: Content) -> None:
    """Enter a file that is about to be written, unless it is what was entered last. The file of a study that the ledger
    does not have yet is entered by whoever comes upon it later."""
    with suppress(NoLedger), study.ledger(create=False) as ledger:
        if study.name in ledger.studies():
            _enter_new(study, ledger, FILE, name_of(file), {"sha256": _hash(content)})


def is_entered(study: "Study", file: Path, content: Content) -> bool:
    """Return whether a file is in the manifest, or older than that; refuse one that is not as it was entered last."""
    entered = [each.get("sha256") for each in _entries(study, FILE).get(name_of(file), ())]
    if not entered:
        return is_older(study)
    if _hash(content) != entered[-1]:
        raise ChangedRecord(
            f"{study.file}: the record was changed: {file} is not as it was entered in the ledger; restore it, or "
            "remove it and have it made again"
        )
    return True


def is_older(study: "Study") -> bool:
    """Return whether no writer has seen a study since there are manifests, so that its files are in none."""
    return not _entries(study, TERMS)


def check_files(study: "Study") -> tuple[int, list[str]]:
    """Refuse the first file that is here and not as it was entered; return how many are, and the names of those that
    are missing."""
    names = list(_entries(study, FILE))
    if strange := next((name for name in names if not _is_name(name)), None):  # it would be read, wherever it leads
        raise ChangedRecord(f"{study.file}: the record was changed: {shortened(strange)} is no file of results")
    places = [place / name for name in names for place in (study.folder, study.cache.folder.parent)]
    here = [place for place in dict.fromkeys(places) if place.exists()]
    for place in here:
        is_entered(study, place, content_of(place))
    found = {name_of(place) for place in here}
    return len(here), [name for name in names if name not in found]


def is_missing(study: "Study", file: Path) -> bool:
    """Return whether a file was entered, and is not here."""
    return not file.exists() and name_of(file) in _entries(study, FILE)


def content_of(place: Path) -> Content:
    """Return the content of a file, or of all files in a folder but hidden ones, which are no results: file managers
    leave some."""
    if place.is_dir():
        files = (file for file in sorted(place.iterdir()) if file.is_file() and not file.name.startswith("."))
        return {file.name: file.read_bytes() for file in files}
    return place.read_bytes()


def name_of(file: Path) -> str:
    """Return the name of a file in the manifest: with its folder, wherever that lies."""
    return f"{file.parent.name}/{file.name}"


def _is_name(name: str) -> bool:
    """Return whether :func:`name_of` may have made a name."""
    parts = name.split("/")
    plain = len(parts) == 2 and not {"", ".", ".."} & {*parts} and "\0" not in name
    return plain and len(name.encode(errors="replace")) <= LONGEST_NAME


def _hash(content: Content) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    return fingerprint({name: hashlib.sha256(part).hexdigest() for name, part in content.items()})


def _entries(study: "Study", kind: str) -> dict[str, list[dict[str, Any]]]:
    """Return the contents of a study's entries of one kind by name, oldest first."""
    found: dict[str, list[dict[str, Any]]] = {}
    with suppress(NoLedger), study.ledger(create=False) as ledger:
        if study.name in ledger.studies():
            for each in ledger.entries(study.name, kind):
                found.setdefault(each.name, []).append(each.content)
    return found


def _enter_new(study: "Study", ledger: Ledger, kind: str, name: str, content: dict[str, Any]) -> None:
    """Add an entry, unless the last one of its name says the same."""

    def check(known: list[Entry], evaluated: bool) -> bool:
        last = [each.content for each in known if each.name == name][-1:]
        return last != [content]

    ledger.enter(study.name, Entry(kind, name, content, utc_now()), check)
