"""Statements: one page for each contributor about a payout, and the same as JSON.

A statement has everything that this contributor's amount follows from, and nobody else's numbers: only the pool, and
sums over all contributors. It is made from the ledger's record; the names and hashes of single images are added to the
JSON where the images are at hand and are those that were paid for.
"""

import hashlib
import json
import re
import shlex
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from diffcredit.errors import UserError
from diffcredit.payout.paying import ONE
from diffcredit.payout.recorded import Recorded
from diffcredit.payout.records import Payout, Row
from diffcredit.payout.taxes import Tax
from diffcredit.proofs.statements import FORMAT, VERSION, statement_digest
from diffcredit.report import payout_words as words
from diffcredit.report import statement_words
from diffcredit.report.calculation import steps
from diffcredit.report.markup import bundled, source_hash, template
from diffcredit.util.artifacts import write_text
from diffcredit.util.decimals import exactly
from diffcredit.util.sanitize import shortened

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from diffcredit.contributions import Works
    from diffcredit.study.study import Study

FOLDER = "statements"
MANY = 100  # statements, from which writing them takes seconds
LONGEST_NAME = 60  # characters of a file's name
HASH = 16  # hexadecimal digits: nobody finds a name with somebody else's
_HASHED = rf".*-[0-9a-f]{{{HASH}}}"  # a name that looks so may be somebody else's with its hash
_RESERVED = r"con|prn|aux|nul|com\d|lpt\d"  # by Windows, whatever the ending
_ODD = re.compile(rf"{_HASHED}|{_RESERVED}")


@dataclass(frozen=True)
class Statement:
    """One contributor's ``row`` of a ``recorded`` payout, and the single ``works``, if they are at hand. ``study_file``
    is the study file's name, ``file`` that of the statement's JSON file, ``tax`` what the payer states of taxes, and
    ``key`` what the file is signed with, if it is."""

    recorded: Recorded
    row: Row
    study_file: str
    file: str
    works: "Works | None" = None
    tax: Tax | None = None
    key: "Ed25519PrivateKey | None" = None

    @property
    def payout(self) -> Payout:
        return self.recorded.payout

    @property
    def head(self) -> str:
        """The ledger's head that covers it."""
        return self.recorded.head

    @property
    def withheld(self) -> Decimal:
        """What is withheld for tax of what is paid now."""
        rounding = Decimal(self.payout.policy["rounding"])
        return Decimal(0) if self.tax is None else self.tax.withheld(self.row.paid, rounding)

    @property
    def command(self) -> str:
        """The command that checks the ledger."""
        return f"diffcredit verify {shlex.quote(self.study_file)} --head {self.head}"

    @property
    def signer(self) -> str:
        """The fingerprint of the key that the JSON file is signed with; empty where it is not."""
        if self.key is None:
            return ""
        from diffcredit.proofs.signing import PublicKey

        return PublicKey.of(self.key).fingerprint

    @property
    def own_command(self) -> str:
        """The command that checks the statement without the ledger."""
        return f"diffcredit check {shlex.quote(self.file)}"


@exactly
def render_statement(statement: Statement) -> str:
    """Return the page's HTML; every text is escaped."""
    style = bundled("palette.css", "money.css")
    return template("statement.html.jinja").render(
        statement=statement,
        payout=statement.payout,
        row=statement.row,
        money=words.money_format(statement.payout),
        steps=steps(statement.payout, statement.row),
        warnings=words.warnings(statement.payout),
        words=words,
        say=statement_words,
        policy=f"default-src 'none'; style-src {source_hash(style)}; base-uri 'none'; form-action 'none'",
        style=Markup(style),
    )


@exactly
def statement_json(statement: Statement) -> str:
    """Return the statement for programs, signed if it has a key. Amounts are texts, so that no program rounds them."""
    name, proof = statement.row.contributor, statement.recorded.proof
    found: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "contributor": name,
        "payout": proof.shared,
        "row": proof.rows[name],
        "proof": {**proof.steps(name), "previous": statement.recorded.previous},
        "head": statement.head,
    }
    if statement.tax is not None:
        stated = {name: str(value) for name, value in asdict(statement.tax).items()}
        net = statement.row.paid - statement.withheld
        found["tax"] = {**stated, "withheld": str(statement.withheld), "transferred": str(net)}
    if statement.works is not None:
        found["images"] = [{"name": name, "sha256": digest} for name, digest in statement.works.images]
    if statement.key is not None:
        from diffcredit.proofs.signing import Signed, now, sign

        signed = Signed("statement", statement.payout.study, statement.head, statement_digest(found), now())
        found["signature"] = sign(statement.key, signed)
    return json.dumps(found, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def write_study_statements(
    study: "Study",
    recorded: Recorded,
    only: Collection[str] | None = None,
    taxes: Mapping[str, Tax] | None = None,
    key: "Ed25519PrivateKey | None" = None,
) -> list[Path]:
    """Write the statements of a payout, or ``only`` those of some contributors; return their pages. Each shows its
    contributor's part of ``taxes``, and is signed by the ``key`` if there is one.

    They lie in ``statements/`` of the results folder, those of a named period in a folder of its name there.
    """
    payout, known = recorded.payout, [row.contributor for row in recorded.payout.rows]
    for name in only or ():
        if name not in known:
            raise UserError(
                f"--only: {shortened(name)} is no contributor of this payout; there are: {', '.join(known)}"
            )
    folder = study.folder / FOLDER / ("" if payout.period == ONE else payout.period)
    files, works = file_names(known), _works(study, payout)
    chosen = [row for row in payout.rows if only is None or row.contributor in only]
    pages = []
    for done, row in enumerate(chosen):
        if len(chosen) > MANY:
            study.progress("statements", done, len(chosen))
        name = row.contributor
        tax = None if taxes is None else taxes.get(name)
        page = folder / f"{files[name]}.html"
        data = page.with_suffix(".json")
        statement = Statement(recorded, row, study.file.name, data.name, works.get(name), tax, key)
        write_text(page, render_statement(statement))
        write_text(data, statement_json(statement))
        pages.append(page)
    return pages


def file_names(contributors: Collection[str]) -> dict[str, str]:
    """Return a file's name without its ending for each contributor: plain letters and digits, whatever the name, with
    a part of the name's hash where letters were lost or two would be alike."""
    plain = {name: _plain_letters(name) for name in contributors}
    counts = [*plain.values()]
    return {
        name: letters
        if letters and letters == _lowered(name) and counts.count(letters) == 1 and not _ODD.fullmatch(letters)
        else f"{letters or 'contributor'}-{hashlib.sha256(name.encode()).hexdigest()[:HASH]}"
        for name, letters in plain.items()
    }


def _plain_letters(name: str) -> str:
    decomposed = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", decomposed)[:LONGEST_NAME].strip("-")


def _lowered(name: str) -> str:
    return name.lower().replace(" ", "-")


def _works(study: "Study", payout: Payout) -> "dict[str, Works]":
    """Return the works of contributors whose images are at hand and are those that were paid for."""
    try:
        contributions = study.contributions
    except UserError:
        return {}
    there = {row.contributor: row.works for row in payout.rows if row.contributor in contributions.givers}
    found = {name: contributions.works(name) for name in there}
    return {name: works for name, works in found.items() if works.digest == there[name]}
