"""Priors and surrogates as control variates: what is known about the credits before any evaluation.

A surrogate G is a cheap game with known credits. For any b, φ(F) = b·φ(G) + φ(F − b·G). With G among the regressors
that are not shrunk, b is fitted, and evaluations are spent on what G misses. A prior has one number per contributor;
it is the additive surrogate G(S) = Σ_{i∈S} prior_i, with slopes by size. A useless one costs about one evaluation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.coalitions import make_design
from diffcredit.credit.credits import Credits
from diffcredit.credit.differences import exact
from diffcredit.credit.least_squares import unshrunk
from diffcredit.credit.regression import LEAST_NEW, independent_columns, regress, size_regressors
from diffcredit.credit.table import GameTable, float_array, read_table
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray, FloatArray

Game = Callable[[BoolArray], ArrayLike]

ENUMERATED = 12  # up to this many contributors, a surrogate is evaluated for all coalitions
TIMES, LEAST = 20, 4000  # with more contributors, for 20 n drawn coalitions, at least 4000


@dataclass(frozen=True, eq=False)
class KnownSurrogate:
    """A surrogate given by its ``values`` (m,) for the rows of the table and its own ``credits`` (n,), of which only
    differences count, with their ``standard_error`` (n,) if they are not exact."""

    values: ArrayLike
    credits: ArrayLike
    standard_error: ArrayLike | None = None


Surrogate = Game | KnownSurrogate


@dataclass(frozen=True, eq=False)
class ControlVariates:
    """Regressors that are not shrunk: the values (m, k) of k surrogates and l priors (n, l); what a unit of each adds
    to the credits' contrasts (n, k + l), with the standard errors (n, k + l) of that."""

    columns: FloatArray
    proxies: FloatArray
    contrasts: FloatArray
    errors: FloatArray


def surrogate_credits(coalitions: BoolArray, values: FloatArray, full: float, size_distribution: str) -> Credits:
    """Return the Shapley values of a game G that is cheap to evaluate, up to their common level.

    coalitions: (m, n), neither empty nor full, with G's values (m,); ``full`` is G(N), and G(∅) is taken to be 0. Exact
    if ``size_distribution`` is ``exhaustive``, otherwise estimated without shrinkage.
    """
    table = read_table(coalitions, values, 0.0, full, size_distribution)
    return (exact if size_distribution == "exhaustive" else unshrunk)(table, 0.95)


def read_control_variates(
    table: GameTable, coalitions: BoolArray, prior: ArrayLike | None, surrogate: Surrogate | Sequence[Surrogate] | None
) -> ControlVariates:
    """Check priors and surrogates; leave out any that the size and those before it already explain.

    coalitions: the rows as the caller gave them, to which a `KnownSurrogate`'s values belong.
    """
    surrogates = [
        _known(table, coalitions, game, name) if isinstance(game, KnownSurrogate) else _evaluated(table, game, name)
        for name, game in _named(surrogate)
    ]
    k, proxies = len(surrogates), _priors(prior, table.n)
    # x̃·prior without x̃, which would be kept with the table
    additive = table.coalitions @ proxies - np.outer(table.sizes / table.n, proxies.sum(axis=0))
    every = np.column_stack([*(column for column, _, _ in surrogates), additive])
    size_effects = size_regressors(table.sizes, table.n)
    kept = independent_columns(every, size_effects)
    # The constant takes a surrogate's level; a large one would leave only rounding of the differences.
    every = every - every.sum(axis=0) / max(len(every), 1)
    _require_slopes_left(table, np.hstack([size_effects, every[:, kept]]), len(kept))
    contrast = np.column_stack([*(credits for _, credits, _ in surrogates), proxies])
    error = np.column_stack([*(errors for _, _, errors in surrogates), np.zeros_like(proxies)])
    return ControlVariates(
        every[:, [i for i in kept if i < k]],
        proxies[:, [i - k for i in kept if i >= k]],
        contrast[:, kept] - contrast[:, kept].mean(axis=0),
        error[:, kept],
    )


def _require_slopes_left(table: GameTable, unshrunk: FloatArray, controls: int) -> None:
    """Raise UserError if size and control variates already fit any differences between the contributors."""
    if controls == 0 or len(unshrunk) <= unshrunk.shape[1]:
        return
    left = regress(table.centred, unshrunk, np.ones(len(unshrunk))).projected
    if np.linalg.norm(left) < LEAST_NEW * np.linalg.norm(table.centred):
        raise UserError(
            f"prior and surrogate: {controls} different ones fit any credits of {table.n} contributors and leave "
            "nothing to shrink; give fewer, or none with the method 'unshrunk'"
        )


def _named(surrogate: Surrogate | Sequence[Surrogate] | None) -> list[tuple[str, Surrogate]]:
    if surrogate is None:
        return []
    several = isinstance(surrogate, Sequence)
    named = (
        [(f"surrogate {i + 1}", game) for i, game in enumerate(surrogate)] if several else [("surrogate", surrogate)]
    )
    for name, game in named:
        if not (isinstance(game, KnownSurrogate) or callable(game)):
            raise UserError(f"{name}: {game!r}; expected a function of coalitions, a KnownSurrogate, or several")
    return named


def _priors(prior: ArrayLike | None, n: int) -> FloatArray:
    """Return (n, l): one column per prior, minus its mean."""
    if prior is None:
        return np.empty((n, 0))
    given = float_array("prior", prior)
    if given.shape[:1] != (n,) or given.ndim > 2 or not np.isfinite(given).all():
        raise UserError(
            f"prior of shape {given.shape}: expected ({n},) finite numbers, one per contributor, or ({n}, k)"
        )
    given = given.reshape(n, -1)
    centred = given - given.mean(axis=0)
    # Only differences count, and those of equal numbers are rounding.
    return np.where(np.abs(centred).max(axis=0) > 1e-12 * np.abs(given).max(axis=0), centred, 0.0)


def _known(
    table: GameTable, coalitions: BoolArray, surrogate: KnownSurrogate, name: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    values = _finite(f"{name}: values", surrogate.values, len(coalitions), "one per row")
    credits = _finite(f"{name}: credits", surrogate.credits, table.n, "one per contributor")
    # As sequences, since the rows may hold the empty and the full coalition.
    at = read_table(coalitions, values, [0.0], [0.0], "uniform")
    given = np.zeros(table.n) if surrogate.standard_error is None else surrogate.standard_error
    errors = _finite(f"{name}: standard_error", given, table.n, "none negative")
    if (errors < 0).any():
        raise UserError(f"{name}: standard_error: {errors.min()}; expected no negative number")
    return at.values, credits, errors


def _evaluated(table: GameTable, game: Game, name: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return G at the table's coalitions, its credits and their standard errors, from coalitions drawn for it."""
    n = table.n
    design, count = ("exhaustive", 2**n - 2) if n <= ENUMERATED else ("uniform", max(LEAST, TIMES * n))
    drawn = make_design(design).draw(n, 0, count)

    def values(coalitions: BoolArray) -> FloatArray:
        # A copy, so that a game may change its argument.
        return _finite(name, game(coalitions.copy()), len(coalitions), "one per coalition")

    # G(∅) and G(N) shift all credits by the same amount, and G(∅) may not exist: differences do not need them.
    credits = surrogate_credits(drawn, values(drawn), 0.0, design)
    return values(table.coalitions), credits.values, credits.standard_error


def _finite(name: str, given: ArrayLike, count: int, what: str) -> FloatArray:
    found = float_array(name, given)
    if found.shape != (count,) or not np.isfinite(found).all():
        raise UserError(f"{name} of shape {found.shape}; expected {count} finite numbers, {what}")
    return found
