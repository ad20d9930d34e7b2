"""Claims: who works on which evaluation now, so that several drivers of one study do not repeat each other's work.

A claim reserves one coalition and replicate of a recipe for a holder. It expires after a while and is renewed while the
work goes on. Its token is larger than that of every earlier claim of the same task: a holder that was away until its
claim expired can neither renew nor release what has become another's.

Claims save work and protect nothing. A result is accepted or refused by its values alone, whoever brings it and however
late.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Row, and_, func, insert, select, update

from diffcredit.ledger import tables
from diffcredit.ledger.keys import has_table, is_done, recipe_key, study_key
from diffcredit.util.events import event

LONGEST_LEASE = 600.0
"""The longest time for which a claim is valid, in seconds. An expiry further away was written by a clock that has been
put back since, and counts as past."""

MOST_TOKENS = 2**31 - 1  # PostgreSQL's largest integer


@dataclass(frozen=True)
class Claim:
    """A task reserved for ``holder``; ``token`` distinguishes it from other claims of the same task."""

    recipe_id: int
    coalition: str
    replicate: int
    holder: str
    token: int


@dataclass(frozen=True)
class CurrentClaim:
    """A claim that has not expired, as shown to people; ``seconds_left`` by the clock that all drivers share."""

    recipe: str
    coalition: str
    replicate: int
    holder: str
    seconds_left: float


def claim(
    connection: Connection, task: tuple[str, str, str, int], holder: str, seconds: float, gone: Callable[[str], bool]
) -> Claim | None:
    """Claim a task (study, recipe, coalition, replicate). Return None where it is done, and while another holder, who
    is not ``gone``, has a valid claim."""
    study, recipe, coalition, replicate = task
    row = {"recipe_id": recipe_key(connection, study, recipe), "coalition": coalition, "replicate": replicate}
    if is_done(connection, **row):
        return None
    now = _now(connection)
    there = connection.execute(select(tables.claims).filter_by(**row)).one_or_none()
    old = there if there is not None and _intact(there) else None  # a damaged claim holds nobody up
    if old is not None and now < old.expires <= now + LONGEST_LEASE and old.holder != holder and not gone(old.holder):
        return None
    if old is not None and old.expires and old.holder != holder:  # a released claim has expiry 0
        event("claim taken over", coalition=coalition, replicate=replicate, holder=holder, before=old.holder)
    token = 1 if old is None else old.token + 1
    new = {"token": token, "holder": holder, "expires": now + min(seconds, LONGEST_LEASE)}
    if there is None:
        connection.execute(insert(tables.claims).values(**row, **new))
    else:
        connection.execute(update(tables.claims).filter_by(**row).values(**new))
    return Claim(**row, holder=holder, token=token)


def renew(connection: Connection, claims: Iterable[Claim], seconds: float) -> list[Claim]:
    """Extend claims to ``seconds`` from now; return those that still belong to their holder."""
    expires = _now(connection) + min(seconds, LONGEST_LEASE)
    return [
        each
        for each in claims
        if connection.execute(update(tables.claims).where(_is(each)).values(expires=expires)).rowcount
    ]


def release(connection: Connection, claims: Iterable[Claim]) -> None:
    """Give back those claims that still belong to their holder; their rows stay, so that tokens keep growing."""
    for each in claims:
        connection.execute(update(tables.claims).where(_is(each)).values(expires=0.0))


def current(connection: Connection, study: str) -> list[CurrentClaim]:
    """Return the valid claims of a study's tasks, by recipe and holder."""
    study_id = study_key(connection, study)
    if not has_table(connection, tables.claims):  # a ledger of an older schema
        return []
    now, table = _now(connection), tables.claims.c
    query = (
        select(tables.recipes.c.name, table.coalition, table.replicate, table.holder, table.expires)
        .select_from(tables.claims)
        .join(tables.recipes)
        .where(tables.recipes.c.study_id == study_id, table.expires > now, table.expires <= now + LONGEST_LEASE)
        .order_by(tables.recipes.c.id, table.holder, table.coalition, table.replicate)
    )
    found = connection.execute(query.add_columns(table.token)).all()
    return [CurrentClaim(*row[:4], row.expires - now) for row in found if _intact(row)]


def _intact(row: Row) -> bool:
    """Return whether a claim is as it was written: SQLite keeps what is no text or number in any column."""
    is_text = isinstance(row.holder, str) and isinstance(row.coalition, str)
    is_number = isinstance(row.replicate, int) and isinstance(row.expires, float | int)
    return is_text and is_number and isinstance(row.token, int) and 0 <= row.token < MOST_TOKENS


def _is(claim: Claim) -> ColumnElement[bool]:
    """Return the condition for the row of ``claim``; none fulfils it once another holder has taken the task over."""
    return and_(*(tables.claims.c[name] == value for name, value in vars(claim).items()))


def _now(connection: Connection) -> float:
    """Return the seconds since 1970 by the clock that all drivers share: the server's, or for a file this machine's."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())
