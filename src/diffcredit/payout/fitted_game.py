"""The game that a study's evaluations were fitted by, to ask what they would be if others handed in the images.

    F̂(S) = F(reference) + Σ_{i∈S} φ_i + c(|S|),   c(0) = c(n) = 0

The Shapley values of F̂ are the credits φ, since a function of the size alone gives everybody the same and c gives
nothing to all together. c is fitted to what the credits leave of the evaluations. A player who holds a part of a
player's images has that part of φ_i and counts as that part of a player in the size; an image that two hold counts
once. F̂ knows nothing of two contributors who teach the model the same thing with other images, nor of how soon a
contributor's own images repeat themselves: coalitions have all of a player's images or none.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from diffcredit.credit import Credits
from diffcredit.credit.regression import size_regressors
from diffcredit.errors import UserError
from diffcredit.payout.changes import Holdings
from diffcredit.util.arrays import BoolArray, FloatArray

IntArray = NDArray[np.intp]

ORDERS = 256  # orders of the players, each from every start
MOST_PLACES = 2**24  # places in all orders together, which limits their number in large games


@dataclass(frozen=True, eq=False)
class FittedGame:
    """``credits``, all of whose values sum to F(all) − F(reference), and the ``coefficients`` of c."""

    credits: Credits
    coefficients: FloatArray

    @classmethod
    def of(cls, credits: Credits) -> "FittedGame":
        """Fit c to the evaluations behind ``credits``. Raises UserError unless they are Shapley values."""
        if not credits.efficient:
            raise UserError(f"--what-if: needs Shapley values; the credits of the method {credits.method!r} are not")
        table = credits.table
        sizes = table.coalitions.sum(axis=1)
        terms = size_regressors(sizes, table.n).shape[1] - 2  # a line through the ends is in the credits
        found = cls(credits, np.zeros(max(terms, 0)))
        if terms <= 0:
            return found
        root = np.sqrt(table.replicates)
        left = table.values - found.values(table.coalitions)
        columns = found._columns(sizes.astype(np.float64))
        return cls(credits, np.linalg.lstsq(columns * root[:, None], left * root, rcond=None)[0])

    def values(self, coalitions: BoolArray) -> FloatArray:
        """Return F̂ (m,) of ``coalitions`` (m, n)."""
        return self.credits.empty + coalitions @ self.credits.values + self.curve(coalitions.sum(axis=1))

    def curve(self, sizes: FloatArray | IntArray) -> FloatArray:
        """Return c at ``sizes`` from 0 to n, in players; parts of players are accepted."""
        return self._columns(np.asarray(sizes, dtype=np.float64)) @ self.coefficients

    def _columns(self, sizes: FloatArray) -> FloatArray:
        """Return the regressors of c, (…, terms): those of the size without the line through their ends."""
        n = self.credits.table.n
        ends = size_regressors(np.array([0, n]), n, len(self.coefficients) + 2)
        t = sizes.reshape(-1, 1) / n
        columns = size_regressors(sizes.reshape(-1), n, ends.shape[1]) - (1 - t) * ends[0] - t * ends[1]
        return columns[:, 2:].reshape(*sizes.shape, -1)


@dataclass(frozen=True, eq=False)
class Shifted:
    """The fitted game's Shapley values where others hold the images: ``parts`` (q, n) · credits + ``level`` (q,).
    ``full`` is the value of everybody's model then."""

    parts: FloatArray
    level: FloatArray
    full: float

    def values(self, values: FloatArray) -> FloatArray:
        """Return (d, q) for credits (d, n)."""
        return values @ self.parts.T + self.level

    def credits(self, credits: Credits) -> Credits:
        """Return the credits (q,), with errors that follow from those of ``credits``."""
        influence, bias = self.parts @ credits.influence, self.parts @ credits.bias
        return replace(
            credits,
            values=self.values(credits.values),
            standard_error=np.sqrt((influence**2).sum(axis=1) + bias**2),
            influence=influence,
            bias=bias,
            full=self.full,
        )


def shifted(game: FittedGame, held: Holdings, orders: Iterable[IntArray] | None = None) -> Shifted:
    """Return the Shapley values of ``game`` where the images are ``held`` by others.

    Only c needs ``orders`` of the players: its values are averaged over them, by default over :func:`cyclic_orders`.
    """
    q, n = len(held.contributors.owner), game.credits.table.n
    cells, counts = np.unique(np.column_stack([held.source, held.holders]), axis=0, return_counts=True)
    source, holders = cells[:, 0], cells[:, 1:]
    weight = counts / _images(held, n)[source]
    parts = np.zeros((q, n))
    for side in holders.T:  # an image of two is worth half to each
        np.add.at(parts, (side, source), weight / 2)
    size = float(weight.sum())
    full = game.credits.empty + float(parts.sum(axis=0) @ game.credits.values) + float(game.curve(np.array(size)))
    return Shifted(parts, _level(game, q, holders, weight, cyclic_orders(q) if orders is None else orders), full)


def _images(held: Holdings, n: int) -> IntArray:
    """Return (n,): how many images each player of the game that was evaluated had."""
    return np.maximum(np.bincount(held.source, minlength=n), 1)


def _level(game: FittedGame, q: int, holders: IntArray, weight: FloatArray, orders: Iterable[IntArray]) -> FloatArray:
    """Return (q,): the Shapley values of c(size), with cells of images that weigh so much in the size."""
    total, count = np.zeros(q), 0
    for order in orders:
        rows = np.arange(len(order))[:, None]
        place = np.empty_like(order)
        place[rows, order] = np.arange(q)
        first = np.where(place[:, holders[:, 0]] <= place[:, holders[:, 1]], holders[:, 0], holders[:, 1])
        brought = np.zeros(order.shape)
        np.add.at(brought, (rows, place[rows, first]), weight)
        sizes = np.cumsum(brought, axis=1)
        gains = np.diff(game.curve(sizes), axis=1, prepend=0.0)
        np.add.at(total, order.ravel(), gains.ravel())
        count += len(order)
    return total / count


def cyclic_orders(q: int) -> Iterator[IntArray]:
    """Yield orders of q players, (q, q) at a time: a random one, begun at each of its players. So everybody has every
    place equally often, which leaves little to chance. The same every time."""
    generator = np.random.Generator(np.random.PCG64(0))
    shifts = (np.arange(q)[:, None] + np.arange(q)) % q
    for _ in range(max(min(ORDERS, MOST_PLACES // q**2), 1)):
        yield generator.permutation(q)[shifts]
