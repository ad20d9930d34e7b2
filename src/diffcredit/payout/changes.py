"""Changes of who hands in what: false names, copies, departures.

    split=NAME:3    NAME hands in the same images under three names
    copy=A:B        A hands in copies of all of B's images as well
    leave=NAME      NAME hands in nothing

A change is followed image by image: each image belongs to a player of the game that was evaluated, and to the players
who would hold it after the change. Accounts are cut into lots as contributors are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diffcredit.errors import UserError
from diffcredit.payout.merit import Contributors
from diffcredit.util.sanitize import shortened

FORMS = "split=NAME:3, copy=A:B and leave=NAME are accepted"
MOST_NAMES = 100  # of one split


@dataclass(frozen=True)
class Change:
    """What contributor ``who`` does: ``split`` the images among ``parts`` names, ``copy`` those of ``other``, or
    ``leave``."""

    kind: str
    who: int
    other: int | None = None
    parts: int = 1


@dataclass(frozen=True, eq=False)
class Holdings:
    """Who holds which images after a change.

    ``contributors`` are the accounts that are then paid, each of the contributor ``person`` (k,) of before. ``source``
    (m,) is each image's player before the change, ``holders`` (m, 2) are its players after it, one player twice if only
    one has it. Images that nobody hands in any more are left out.
    """

    contributors: Contributors
    person: tuple[int, ...]
    source: NDArray[np.intp]
    holders: NDArray[np.intp]


def read_change(text: str, names: Sequence[str]) -> Change:
    """Return the change that ``text`` describes, of contributors called ``names``."""
    kind, _, rest = text.partition("=")
    if kind == "leave":
        return Change("leave", _place(rest, names, text))
    if kind == "split":
        name, _, count = rest.rpartition(":")
        if not (count.isascii() and count.isdigit() and 2 <= int(count[:9]) <= MOST_NAMES):
            raise _refused(text, f"a number of names from 2 to {MOST_NAMES} is expected behind the colon")
        return Change("split", _place(name, names, text), parts=int(count))
    if kind == "copy":
        # Names may have colons themselves.
        cuts = [place for place, sign in enumerate(rest) if sign == ":"]
        pairs = [(rest[:cut], rest[cut + 1 :]) for cut in cuts]
        if not pairs:
            raise _refused(text, FORMS)
        first, second = next((pair for pair in pairs if {*pair} <= {*names}), pairs[0])
        who, other = _place(first, names, text), _place(second, names, text)
        if who == other:
            raise _refused(text, "two different contributors are expected")
        return Change("copy", who, other)
    raise _refused(text, FORMS)


def _place(name: str, names: Sequence[str], text: str) -> int:
    if name not in names:
        shown = ", ".join(shortened(each) for each in names[:10])
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        raise _refused(text, f"{shortened(name)} is no contributor; there are: {shown}{more}")
    return list(names).index(name)


def _refused(text: str, why: str) -> UserError:
    return UserError(f"--what-if: {shortened(text)} is not accepted; {why}")


def holdings(change: Change, contributors: Contributors, images: Sequence[int], lot: int | None) -> Holdings:
    """Return who holds what after a ``change``, where the players of ``contributors`` have so many ``images`` (p,)."""
    source = np.repeat(np.arange(len(images)), images)
    person = np.array(contributors.owner, dtype=np.intp)[source]
    accounts = [(i, name, np.flatnonzero(person == i)) for i, name in enumerate(contributors.names)]
    i, name, own = accounts.pop(change.who)
    if change.kind == "split":
        if len(own) < change.parts:
            raise UserError(f"--what-if: {name!r} has {len(own)} images, too few for {change.parts} names")
        parts = np.array_split(own, change.parts)
        accounts += [(i, f"{name} ({number})", part) for number, part in enumerate(parts, 1)]
    elif change.kind == "copy":
        accounts.append((i, name, np.concatenate([own, np.flatnonzero(person == change.other)])))
    if not accounts:
        raise UserError(f"--what-if: {name!r} is the only contributor, so nobody would be left")
    return _held(accounts, source, lot)


def _held(accounts: Sequence[tuple[int, str, NDArray[np.intp]]], source: NDArray[np.intp], lot: int | None) -> Holdings:
    holders = np.full((len(source), 2), -1, dtype=np.intp)
    owner, whole = list[int](), list[int]()
    for account, (_, _, held) in enumerate(accounts):
        size = len(held) if lot is None else lot
        players = [held[first : first + size] for first in range(0, len(held), size)]
        for images in players:
            taken = holders[images, 0] >= 0  # by an earlier account: one of the two is a copy
            holders[images[~taken], 0] = len(owner)
            holders[images, 1] = len(owner)
            owner.append(account)
        whole.append(sum(len(images) == size for images in players))
    kept = holders[:, 0] >= 0
    after = Contributors(
        names=tuple(name for _, name, _ in accounts),
        owner=tuple(owner),
        images=tuple(len(held) for _, _, held in accounts),
        lots=None if lot is None else tuple(whole),
    )
    return Holdings(after, tuple(i for i, _, _ in accounts), source[kept], holders[kept])
