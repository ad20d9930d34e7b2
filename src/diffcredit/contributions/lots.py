"""Lots: every contributor's images cut into parts of one size, each a player of the game.

A game values its players beside one another, so whoever splits an account into three plays three times. With lots, a
player stands for a number of images instead of a name, and three accounts have as many lots as one, give or take what
is left over. Which image is in which lot follows from a seed and the pixels: names and accounts do not change it.
"""

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions.records import HOUSE, Contributions
from diffcredit.errors import UserError

LOT, REST = " · lot ", " · rest"  # within the names of lots, so that no contributor's name may have them


def check_lots(lots: object) -> None:
    """Refuse all but None and a number of images from 2."""
    if lots is not None and (isinstance(lots, bool) or not isinstance(lots, int) or lots < 2):
        raise UserError(f"lots: {lots!r}; a number of images from 2, or null for none, is accepted")


def in_lots(contributions: Contributions, lot: int, seed: int) -> Contributions:
    """Return ``contributions`` with everybody's images cut into players of ``lot`` images, and a smaller rest.

    The players are called ``Ada · lot 1`` and, where some are left, ``Ada · rest``. Images go into lots by the SHA-256
    of ``seed`` and pixels; only among equal images do their names decide. House images stay whole.
    """
    check_lots(lot)
    _check_names(contributions)
    if lot > (most := int(contributions.counts.max())):
        raise UserError(f"lots: {lot}, but nobody has more than {most} training images; at most {most} is accepted")
    images, names = contributions.images, contributions.names
    player_of, whose = np.full(len(images), "", dtype=object), {}
    for index, person in enumerate(contributions.contributors):
        own = np.flatnonzero(contributions.owner == index).tolist()
        own.sort(key=lambda row: (_place(images[row], seed), names[row]))
        whole = len(own) // lot
        for first in range(0, len(own), lot):
            number = f"{first // lot + 1:0{len(str(whole))}d}"  # of fixed width: lots sort by their numbers
            player = f"{person}{REST}" if first + lot > len(own) else f"{person}{LOT}{number}"
            player_of[own[first : first + lot]] = player
            whose[player] = person
    players = tuple(sorted(whose))
    place = {player: index for index, player in enumerate(players)} | {"": HOUSE}
    return replace(
        contributions,
        contributors=players,
        owner=np.array([place[player] for player in player_of], dtype=np.int64),
        lot=lot,
        whose={player: whose[player] for player in players},
    )


def _check_names(contributions: Contributions) -> None:
    """Refuse contributors who are lots already, or are called like one."""
    if contributions.lot is not None:
        raise UserError("lots: these contributions are cut into lots already")
    for name in contributions.contributors:
        if LOT in name or name.endswith(REST):
            raise UserError(f"lots: {name!r} reads like the name of a lot; give that contributor another name")


def _place(image: NDArray[np.uint8], seed: int) -> bytes:
    """Return what orders a contributor's images: the SHA-256 of the seed and the pixels."""
    return hashlib.sha256(f"lots:{seed}:".encode() + image.tobytes()).digest()
