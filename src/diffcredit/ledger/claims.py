"""Who works on what: claims that expire, so that several drivers of one study do nothing twice.

A claim is a promise to evaluate one coalition and replicate of a recipe, good for a while and renewed while the work
goes on. Its token grows with every claim of the same task: who was away for longer than the promise held can neither
renew nor give back what has become another's. Claims save work and guard nothing: a result is judged by its value
alone, whoever brings it and however late.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, func, insert, select, update

from diffcredit.ledger import tables
from diffcredit.util.events import event

LONGEST_LEASE = 600.0
"""Seconds that a claim is good for at most. An expiry further away was written by a clock that has since been put
back, and counts as past."""


@dataclass(frozen=True)
class Claim:
    """A task that ``holder`` has promised to evaluate; ``token`` tells it from claims of the same task before and
    after."""

    recipe_id: int
    coalition: str
    replicate: int
    holder: str
    token: int


@dataclass(frozen=True)
class CurrentClaim:
    """A task of the recipe called ``recipe`` that ``holder`` is about to evaluate, unless the promise is not renewed
    within ``seconds_left`` by the clock that all drivers share."""

    recipe: str
    coalition: str
    replicate: int
    holder: str
    seconds_left: float


def claim(
    connection: Connection,
    recipe_id: int,
    coalition: str,
    replicate: int,
    holder: str,
    seconds: float,
    gone: Callable[[str], bool],
) -> Claim | None:
    """A claim of a task for so many ``seconds``; None while it is somebody else's who is not ``gone``. The caller has
    seen that the task is not done."""
    now = _now(connection)
    task = {"recipe_id": recipe_id, "coalition": coalition, "replicate": replicate}
    old = connection.execute(select(tables.claims).filter_by(**task)).one_or_none()
    if old is not None and now < old.expires <= now + LONGEST_LEASE and old.holder != holder and not gone(old.holder):
        return None
    if old is not None and old.expires and old.holder != holder:  # one that was given back has no expiry
        event("claim taken over", coalition=coalition, replicate=replicate, holder=holder, before=old.holder)
    token = 1 if old is None else old.token + 1
    new = {"token": token, "holder": holder, "expires": now + min(seconds, LONGEST_LEASE)}
    if old is None:
        connection.execute(insert(tables.claims).values(**task, **new))
    else:
        connection.execute(update(tables.claims).filter_by(**task).values(**new))
    return Claim(**task, holder=holder, token=token)


def renew(connection: Connection, claims: Iterable[Claim], seconds: float) -> list[Claim]:
    """Prolongs claims to ``seconds`` from now; those that are still the holder's."""
    expires = _now(connection) + min(seconds, LONGEST_LEASE)
    return [
        each
        for each in claims
        if connection.execute(update(tables.claims).where(_is(each)).values(expires=expires)).rowcount
    ]


def release(connection: Connection, claims: Iterable[Claim]) -> None:
    """Gives claims back, those that are still the holder's."""
    for each in claims:
        connection.execute(update(tables.claims).where(_is(each)).values(expires=0.0))


def current(connection: Connection, study: str) -> list[CurrentClaim]:
    """The claims of a study's tasks that are good now, by recipe and holder."""
    now, table = _now(connection), tables.claims.c
    query = (
        select(tables.recipes.c.name, table.coalition, table.replicate, table.holder, table.expires)
        .select_from(tables.claims)
        .join(tables.recipes)
        .join(tables.studies)
        .where(tables.studies.c.name == study, table.expires > now, table.expires <= now + LONGEST_LEASE)
        .order_by(tables.recipes.c.id, table.holder, table.coalition, table.replicate)
    )
    return [CurrentClaim(*task, expires - now) for *task, expires in connection.execute(query)]


def _is(claim: Claim) -> ColumnElement[bool]:
    return and_(*(tables.claims.c[name] == value for name, value in vars(claim).items()))


def _now(connection: Connection) -> float:
    """Seconds since 1970 by the clock that all drivers share: the server's, or this machine's where the database is a
    file."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())
