"""Changes to a contributor's statement, which ``diffcredit check`` reads by itself."""

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.tamper.judging import Read
from benchmarks.tamper.shown import Shown
from benchmarks.tamper.untouched import WORTHS, Untouched
from benchmarks.tamper.values import Impossible, other_json
from diffcredit.errors import DiffcreditError
from diffcredit.proofs.documents import read_document
from diffcredit.proofs.statements import check_statement


@dataclass(frozen=True)
class Statement:
    """A place for a copy of one of the statements' ``texts``, and the head that contributors have from elsewhere."""

    file: Path
    head: str
    texts: tuple[str, ...]

    def reads(self) -> list[Read]:
        return [self.check]

    def audit(self) -> Shown:
        """Compare the head, as ``diffcredit check --head`` does."""
        if check_statement(read_document(self.file), self.file).head != self.head:
            raise DiffcreditError("leads to another head")
        return {}

    def check(self) -> Shown:
        """Return what the statement says, where it is whole."""
        checked = check_statement(read_document(self.file), self.file)
        return {f"statement of {checked.contributor}": repr(checked)}


class Statements:
    def __init__(self, untouched: Untouched, folder: Path) -> None:
        folder.mkdir()
        self._file, self._untouched = folder / "statement.json", untouched
        below = untouched.file.parent / "results" / "statements"
        self._texts = tuple((below / f"{name}.json").read_text(encoding="utf-8") for name in WORTHS)

    def fresh(self) -> Statement:
        self._file.write_text(self._texts[0], encoding="utf-8")
        return Statement(self._file, self._untouched.head, self._texts)

    def expected(self) -> Shown:
        """Return what every untouched statement says."""
        found = {}
        for text in self._texts:
            self._file.write_text(text, encoding="utf-8")
            found |= Statement(self._file, self._untouched.head, self._texts).check()
        return found


def change_statement(copy: Statement, random: Random) -> str:
    """Write another JSON text in place of a statement's, or change a byte of it."""
    old = random.choice(copy.texts)
    if random.random() < 0.7:
        old = json.dumps(json.loads(old), separators=(",", ":"), ensure_ascii=False)
        new = other_json(old, random)
    else:
        place = random.randrange(len(old))
        new = old[:place] + chr(ord(old[place]) ^ (1 << random.randrange(7))) + old[place + 1 :]
    if new == old:
        raise Impossible
    copy.file.write_text(new, encoding="utf-8", errors="replace")
    place = next((here for here, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), 0)
    return f"{old[place : place + 60]!r} → {new[place : place + 60]!r}"
