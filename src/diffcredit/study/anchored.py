"""Anchors: heads of a study's ledger that somebody else has timestamped, entered in the ledger in turn."""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffcredit.errors import DiffcreditError, UserError, located
from diffcredit.execution.tasks import utc_now
from diffcredit.ledger import Entry, Ledger
from diffcredit.util.artifacts import atomic_file
from diffcredit.util.sanitize import shortened, single_line

if TYPE_CHECKING:
    from cryptography import x509

    from diffcredit.study.study import Study

KIND = "anchor"
FOLDER = "anchors"
FORMAT = 1


@dataclass(frozen=True)
class Anchor:
    """The ``head`` of the first ``number`` rows existed at a ``time``, ISO 8601 in UTC, by the timestamp of an
    ``authority`` whose root certificate has the SHA-256 ``root``."""

    head: str
    number: int
    time: str
    authority: str
    root: str

    def __str__(self) -> str:
        return (
            f"The head {self.head} (row {self.number:,}) existed at {self.time}, by the timestamp of "
            f"{single_line(self.authority)} under the root certificate with the SHA-256 {self.root}"
        )


def write_request(study: "Study") -> tuple[Path, Path]:
    """Write the present head as JSON, and a request for a timestamp of it; return their paths. A request that is there
    already stays: its response may be under way."""
    from diffcredit.proofs.anchors import document, request_for

    with study.ledger(create=False) as ledger:
        _refuse_changed(study, ledger)
        head = ledger.head(study.name)
    text = document(study.name, head.hash, head.number)
    place = study.folder / FOLDER / f"{head.number}-{head.hash[:12]}.json"
    request = place.with_suffix(".tsq")
    for path, make in ((place, lambda: text), (request, lambda: request_for(text))):
        if not path.exists():
            with atomic_file(path) as temporary:
                temporary.write_bytes(make())
    return place, request


def enter_anchor(study: "Study", response: Path, trusted: "list[x509.Certificate]") -> Anchor:
    """Check the response to a request of :func:`write_request`, and enter it in the ledger, once."""
    from diffcredit.proofs.anchors import LARGEST, check_timestamp, imprint_of, nonce_of
    from diffcredit.proofs.documents import read_document

    try:
        with response.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except OSError as error:
        raise UserError(f"{response}: cannot be read ({error.strerror or error})") from error
    if len(content) > LARGEST:
        raise UserError(f"{response}: more than {LARGEST:,} bytes; a timestamp response has some thousands")
    with located(response):
        place = _asked(study, imprint_of(content))
        stamp = check_timestamp(content, place.read_bytes(), trusted, nonce_of(place.with_suffix(".tsq").read_bytes()))
    asked = read_document(place)
    found = {
        "format": FORMAT,
        "head": asked["head"],
        "number": asked["number"],
        "time": stamp.time,
        "authority": stamp.authority,
        "certificates": list(stamp.certificates),
        "token": base64.b64encode(content).decode(),
    }
    with study.ledger(create=False) as ledger:
        _refuse_changed(study, ledger, asked["head"])
        entry = Entry(KIND, asked["head"], found, utc_now())
        ledger.enter(study.name, entry, lambda known, _: all(each.content != found for each in known))
    return Anchor(asked["head"], asked["number"], stamp.time, stamp.authority, stamp.root)


def anchors(study: "Study", ledger: Ledger) -> list[Anchor]:
    """Return the anchors in a study's ledger, each checked: its timestamp is valid by the certificates beside it, and
    its head is in the chain."""
    entries = ledger.entries(study.name, KIND)
    found = [_checked(study, entry.content) for entry in entries]
    if found:
        _refuse_changed(study, ledger, *(each.head for each in found))
    return found


def _checked(study: "Study", content: dict[str, Any]) -> Anchor:
    from diffcredit.proofs.anchors import check_timestamp, document, parse_certificates

    try:
        if content["format"] != FORMAT:
            raise ValueError(f"format {shortened(content['format'])}, expected {FORMAT}")
        head, number = content["head"], content["number"]
        if type(head) is not str or type(number) is not int:
            raise ValueError("a head and its number are expected")
        token = base64.b64decode(content["token"], validate=True)
        trusted = parse_certificates("\n".join(content["certificates"]).encode())
        stamp = check_timestamp(token, document(study.name, head, number), trusted)
        if (stamp.time, stamp.authority) != (content["time"], content["authority"]):
            raise ValueError("another time or authority than the timestamp has")
        return Anchor(head, number, stamp.time, stamp.authority, stamp.root)
    except (KeyError, TypeError, ValueError, AttributeError, DiffcreditError) as error:
        raise DiffcreditError(f"{study.file}: an anchor in the ledger is not valid: {error}") from None


def _asked(study: "Study", imprint: bytes) -> Path:
    """Return the file with the text that a response is of."""
    folder = study.folder / FOLDER
    for file in sorted(folder.glob("*.json")):
        if hashlib.sha256(file.read_bytes()).digest() == imprint:
            return file
    raise UserError(f"is of none of the heads in {folder}; diffcredit anchor writes what is to be timestamped")


def _refuse_changed(study: "Study", ledger: Ledger, *heads: str) -> None:
    if problems := ledger.audit(study.name, *heads).problems:
        raise DiffcreditError(f"{study.file}: the ledger was changed: {problems[0]}")
