"""Identities: several accounts of one person become one contributor, so that splitting an account gains nothing."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from diffcredit.contributions.names import contributor_name
from diffcredit.contributions.sources import Record
from diffcredit.contributions.sources.tables import listed, rows, value
from diffcredit.errors import UserError, located
from diffcredit.util.sanitize import shortened
from diffcredit.util.yamlfile import read_yaml

KEY = "identities"
ACCOUNT, IDENTITY = "account", "identity"  # the columns of a CSV file

Identities = Mapping[str, Sequence[str]]
"""Each person's accounts."""


def read_identities(given: Identities | str | Path) -> dict[str, tuple[str, ...]]:
    """Return the accounts of each person: from a mapping, from a YAML file of one, or from a CSV file with the columns
    ``account`` and ``identity``."""
    if isinstance(given, Mapping):
        return _checked(given)
    file = Path(given)
    if not file.is_file():
        raise UserError(f"{KEY}: {file}: no file there; a YAML file, or a CSV file of accounts, is accepted")
    with located(f"{KEY}: {file}"):
        return _checked(
            _table(file) if file.suffix.lower() == ".csv" else read_yaml(file, "a mapping {person: [account, …]}")
        )


def merged(records: Sequence[Record], identities: Identities) -> list[Record]:
    """Return ``records`` with the person in place of the account. Refuse an account that is nobody's, and a person with
    the name of an account that is not theirs."""
    there = {record.contributor for record in records if record.contributor is not None}
    person_of = {account: person for person, accounts in identities.items() for account in accounts}
    for account in person_of:
        if account not in there:
            raise UserError(f"{KEY}: {account!r} is nobody's account; there are: {listed(sorted(there))}")
    for person, accounts in identities.items():
        if person in there and person not in accounts:
            raise UserError(
                f"{KEY}: {person!r} is an account too, but not one of that person's; list it, or give the person "
                "another name"
            )
    return [
        replace(record, contributor=person_of[record.contributor]) if record.contributor in person_of else record
        for record in records
    ]


def remaining(identities: Identities, people: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the identities of those who are among ``people``, sorted."""
    return {person: tuple(sorted(identities[person])) for person in sorted(identities) if person in people}


def _checked(given: Any) -> dict[str, tuple[str, ...]]:
    """Return identities under spelled-out names; refuse all but a mapping of people to lists of accounts of theirs."""
    if not isinstance(given, Mapping) or not given:
        raise UserError(f"{KEY}: {shortened(given)}; a mapping {{person: [account, …]}} is accepted")
    found: dict[str, tuple[str, ...]] = {}
    whose: dict[str, str] = {}
    for name, accounts in given.items():
        person = _name(name, KEY)
        if person in found:
            raise UserError(f"{KEY}: {person!r} is there twice; once is accepted")
        if isinstance(accounts, str) or not isinstance(accounts, Sequence) or not accounts:
            raise UserError(f"{KEY}.{person}: {shortened(accounts)}; a list of at least one account is accepted")
        found[person] = tuple(_name(account, f"{KEY}.{person}") for account in accounts)
        for account in found[person]:
            if account in whose:
                raise UserError(
                    f"{KEY}.{person}: {account!r} is an account of {whose[account]!r} already; once is accepted"
                )
            whose[account] = person
    return found


def _name(given: Any, where: str) -> str:
    if isinstance(given, bool) or not isinstance(given, str | int) or not str(given).strip():
        raise UserError(f"{where}: {shortened(given)}; names are accepted")
    return contributor_name(str(given), where)


def _table(file: Path) -> dict[str, list[str]]:
    """Return each person's accounts by a CSV file of one account a row."""
    found: dict[str, list[str]] = {}
    for line, row in rows(file):
        account, person = (_name(value(row, column, f"line {line}"), f"line {line}") for column in (ACCOUNT, IDENTITY))
        found.setdefault(person, []).append(account)
    return found
