"""Changes to an archive that ``diffcredit export`` wrote, which is then imported and read."""

import io
import json
import shutil
import warnings
import zipfile
from collections.abc import Callable
from contextlib import redirect_stdout
from copy import deepcopy
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.tamper.judging import Read
from benchmarks.tamper.shown import PARTS, Shown, audited
from benchmarks.tamper.untouched import Untouched
from benchmarks.tamper.values import Impossible, other_json, other_value, parsed
from diffcredit.cli.export import export, restore
from diffcredit.ledger.archive import DESCRIPTION, read_archive, write_archive
from diffcredit.proofs.rows import next_hash

Members = list[tuple[str, bytes]]
MEMBERS = (DESCRIPTION, "evaluations.parquet", "values.parquet")


class Archives:
    """Copies of a study's archive, in a folder where they are imported beside the images."""

    def __init__(self, untouched: Untouched, folder: Path) -> None:
        folder.mkdir()
        self._images, self.folder, self.head = untouched.file.parent / "images", folder / "study", untouched.head
        self._whole, self.file = folder / "whole.zip", folder / "study.zip"
        with redirect_stdout(io.StringIO()):
            export(str(untouched.file), self._whole)

    def fresh(self) -> "Archives":
        shutil.copyfile(self._whole, self.file)
        return self

    def reads(self) -> list[Read]:
        """Return what imports it and reads that, part by part."""
        return [self.restore, *(partial(part, self.folder / "study.yaml") for part in PARTS)]

    def audit(self) -> Shown:
        return audited(self.folder / "study.yaml", self.head)

    def restore(self) -> Shown:
        """Import the archive; show nothing. Raises what ``diffcredit import`` raises."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._images, self.folder / "images")
        with redirect_stdout(io.StringIO()):
            restore(self.file, self.folder)
        return {}

    def rewrite(self, change: Callable[[Members, Random], Members], random: Random) -> None:
        """Write the archive again with its files as ``change`` returns them."""
        with zipfile.ZipFile(self.file) as archive:
            members = change([(name, archive.read(name)) for name in archive.namelist()], random)
        packing = random.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
        with warnings.catch_warnings(), zipfile.ZipFile(self.file, "w", packing) as archive:
            warnings.simplefilter("ignore")  # of a name that is there twice
            for name, content in members:
                archive.writestr(zipfile.ZipInfo(name), content)


def change_member_rows(copy: Archives, random: Random) -> str:
    """Change, remove, insert, exchange or move rows, and leave the head as it was."""
    rows, head, study = read_archive(copy.file)
    words, changed = _other_rows(rows, random)
    _write(copy.file, changed, head, study)
    return words


def change_with_head(copy: Archives, random: Random) -> str:
    """Change rows, and state the head that these have."""
    rows, _, study = read_archive(copy.file)
    words, changed = _other_rows(rows, random)
    head = ""
    try:
        for kind, row in changed:
            head = next_hash(head, kind, row)
    except (TypeError, ValueError) as error:
        raise Impossible from error
    _write(copy.file, changed, head, study)
    return f"{words}; the head is theirs"


def change_bytes(copy: Archives, random: Random) -> str:
    """Change a byte, cut the archive off, or add to it."""
    content = bytearray(copy.file.read_bytes())
    act = random.choice(["byte", "byte", "byte", "cut", "end", "add"])
    place = random.randrange(len(content))
    if act == "cut":
        del content[place:]
    elif act == "add":
        content[place:place] = random.randbytes(4)
    else:
        place = place if act == "byte" else len(content) - 1 - random.randrange(300)
        content[place] ^= 1 << random.randrange(8)
    copy.file.write_bytes(content)
    return f"{act} at {place:,} of {len(content):,}"


def change_members(copy: Archives, random: Random) -> str:
    """Change the archive's files: their order, their number, their content, and what they are called."""
    act = random.choice(list(_MEMBERS))
    copy.rewrite(_MEMBERS[act], random)
    return act


def _other_rows(rows: Any, random: Random) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    changed = [(kind, deepcopy(row)) for kind, row in rows]
    place, other = random.randrange(len(rows)), random.randrange(len(rows))
    kind, row = changed[place]
    act = random.choice(["value", "value", "value", "json", "remove", "twice", "exchange", "cut", "kind"])
    if act == "value":
        column = random.choice(list(row))
        row[column] = other_value(row[column], [each[column] for _, each in rows if column in each], random)
        words = f"{kind}.{column} of row {place + 1}: {row[column]!r:.60}"
    elif act == "json":
        column = random.choice([name for name in row if isinstance(row[name], dict)] or [""])
        if not column:
            raise Impossible
        row[column] = parsed(other_json(json.dumps(row[column]), random))
        words = f"{kind}.{column} of row {place + 1}: {row[column]!r:.60}"
    elif act == "remove":
        del changed[place]
        words = f"row {place + 1} removed"
    elif act == "twice":
        changed.insert(other, deepcopy(changed[place]))
        words = f"row {place + 1} again, as {other + 1}"
    elif act == "exchange":
        changed[place], changed[other] = changed[other], changed[place]
        words = f"rows {place + 1} and {other + 1} exchanged"
    elif act == "cut":
        del changed[max(1, len(rows) - random.randint(1, 40)) :]
        words = "rows cut off"
    else:
        changed[place] = (random.choice(["entry", "migration", "value", "x"]), row)
        words = f"row {place + 1} is of another kind"
    if repr(changed) == repr(list(rows)):
        raise Impossible
    return words, changed


def _write(file: Path, rows: Any, head: str, study: Any) -> None:
    try:
        write_archive(file, rows, head, study)
    except Exception as error:  # what no archive can hold
        raise Impossible from error


def description_with(change: Callable[[dict[str, Any], Random], None]) -> Callable[[Members, Random], Members]:
    def made(members: Members, random: Random) -> Members:
        found = dict(members)
        content = json.loads(found[DESCRIPTION])
        change(content, random)
        return [(name, json.dumps(content).encode() if name == DESCRIPTION else each) for name, each in members]

    return made


def _spelled(members: Members, random: Random) -> Members:
    return [
        (name, other_json(each.decode(), random).encode("utf-8", "replace") if name == DESCRIPTION else each)
        for name, each in members
    ]


def _number(content: dict[str, Any], random: Random) -> None:
    row = random.choice(content["rows"])
    row["number"] = random.choice([0, -1, row["number"] + 1, 1, "1", 1.0, None, 10**30, True])


def _head(content: dict[str, Any], random: Random) -> None:
    content["head"] = random.choice([None, "", content["head"].upper(), content["head"][:-1], 7, "0" * 64, []])


def _format(content: dict[str, Any], random: Random) -> None:
    content["format"] = random.choice([None, 1.0, "1", 2, 0, [], True])


def _renamed(members: Members, random: Random) -> Members:
    place = random.randrange(len(members))
    name = members[place][0]
    new = random.choice([name.upper(), f"./{name}", f"/{name}", f"../{name}", name + " ", ""])
    return [(new, each) if here == place else (old, each) for here, (old, each) in enumerate(members)]


_MEMBERS: dict[str, Callable[[Members, Random], Members]] = {
    "reversed": lambda members, random: members[::-1],
    "one twice": lambda members, random: [*members, random.choice(members)],
    "one twice, the other empty": lambda members, random: [*members, (random.choice(MEMBERS), b"")],
    "one missing": lambda members, random: random.sample(members, len(members) - 1),
    "one more": lambda members, random: [
        *members,
        (random.choice(["x", "../x", "models/x.json", "study.yaml", "ledger.db"]), b"{}"),
    ],
    "two exchanged": lambda members, random: [
        (members[1][0], members[2][1]),
        (members[2][0], members[1][1]),
        members[0],
    ],
    "a name": _renamed,
    "the description otherwise": _spelled,
    "the number of a row": description_with(_number),
    "the head": description_with(_head),
    "the format": description_with(_format),
}
