"""What is known of the credits before, and is not shrunk: priors and surrogates.

A surrogate G is a game with known credits: φ(F) = Σ b_k φ(G_k) + φ(F − Σ b_k G_k), whatever the b. With G among
the unshrunk regressors b is fitted, and evaluations are spent on what G misses. A prior, one number a
contributor, is the additive surrogate G(S) = Σ_{i∈S} prior_i; its slopes change with the size as the credits' do.
One that says nothing gets b ≈ 0 and costs one evaluation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.coalitions import make_design
from diffcredit.credit.exact import exact
from diffcredit.credit.least_squares import unshrunk
from diffcredit.credit.numbers import read_numbers
from diffcredit.credit.regression import LEAST_NEW, independent_columns, regress, size_regressors
from diffcredit.credit.table import Table, read_table
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray, FloatArray

Game = Callable[[BoolArray], ArrayLike]

# Up to this n all coalitions are asked of a surrogate; beyond, so many times n, and at least so many.
ENUMERATED = 12
TIMES = 20
LEAST = 4000


@dataclass(frozen=True, eq=False)
class KnownSurrogate:
    """A surrogate given by its ``values`` (m,) at the table's coalitions, row for row, and its own ``credits``
    (n,), of which only the differences count, with their ``standard_error`` (n,) where they are not exact."""

    values: ArrayLike
    credits: ArrayLike
    standard_error: ArrayLike | None = None


Surrogate = Game | KnownSurrogate


@dataclass(frozen=True, eq=False)
class Anchors:
    """Unshrunk directions: columns (m, k) of surrogates' values, proxies (n, l) of priors, and what a unit of
    each adds to the credits' contrasts (n, k + l), with the deviation (n, k + l) of their errors."""

    columns: FloatArray
    proxies: FloatArray
    contrasts: FloatArray
    errors: FloatArray


def read_anchors(
    table: Table,
    coalitions: BoolArray,
    prior: ArrayLike | None,
    surrogate: Surrogate | Sequence[Surrogate] | None,
) -> Anchors:
    """What is given; an anchor that says nothing beside the size and the anchors before it is left out.

    coalitions: the rows as the caller gave them, which a `KnownSurrogate` values.
    """
    columns, contrasts, errors = [], [], []
    for name, game in _named(surrogate):
        if isinstance(game, KnownSurrogate):
            column, contrast, error = _known(table, coalitions, game, name)
        else:
            column, contrast, error = _asked(table, game, name)
        columns.append(column)
        contrasts.append(contrast)
        errors.append(error)
    proxies = _priors(prior, table.n)
    every = np.column_stack([*columns, table.centred @ proxies, np.empty((len(table.values), 0))])
    size_effects = size_regressors(table.sizes, table.n)
    kept = independent_columns(every, size_effects)
    # A surrogate's level is the constant's, and large beside its differences it would drown them in rounding.
    every = every - every.sum(axis=0) / max(len(every), 1)
    _require_something_left(table, np.hstack([size_effects, every[:, kept]]), len(kept))
    k = len(columns)
    contrast = np.column_stack([*contrasts, proxies, np.empty((table.n, 0))])
    error = np.column_stack([*errors, np.zeros_like(proxies), np.empty((table.n, 0))])
    return Anchors(
        every[:, [i for i in kept if i < k]],
        proxies[:, [i - k for i in kept if i >= k]],
        contrast[:, kept] - contrast[:, kept].mean(axis=0),
        error[:, kept],
    )


def _require_something_left(table: Table, unshrunk: FloatArray, anchors: int) -> None:
    """Raises where the anchors, beside the size, already fit any differences between the contributors."""
    if anchors == 0 or len(unshrunk) <= unshrunk.shape[1]:
        return
    left = regress(table.centred, unshrunk, np.ones(len(unshrunk))).projected
    if np.linalg.norm(left) < LEAST_NEW * np.linalg.norm(table.centred):
        raise UserError(
            f"prior and surrogate: {anchors} that differ fit whatever credits {table.n} contributors have, and leave "
            "nothing to shrink; give fewer, or none with the method 'unshrunk'"
        )


def _named(surrogate: Surrogate | Sequence[Surrogate] | None) -> list[tuple[str, Surrogate]]:
    if surrogate is None:
        return []
    if isinstance(surrogate, Sequence):
        return [_named_one(f"surrogate {index + 1}", game) for index, game in enumerate(surrogate)]
    return [_named_one("surrogate", surrogate)]


def _named_one(name: str, game: Surrogate) -> tuple[str, Surrogate]:
    if not (isinstance(game, KnownSurrogate) or callable(game)):
        raise UserError(f"{name}: {game!r}; expected a function of coalitions, a KnownSurrogate, or several")
    return name, game


def _priors(prior: ArrayLike | None, n: int) -> FloatArray:
    """(n, l): one column a prior, less its mean."""
    if prior is None:
        return np.empty((n, 0))
    given = read_numbers("prior", prior)
    if given.shape[:1] != (n,) or given.ndim > 2 or not np.isfinite(given).all():
        raise UserError(f"prior of shape {given.shape}: expected ({n},) finite numbers, one a contributor, or ({n}, k)")
    given = given.reshape(n, -1)
    centred = given - given.mean(axis=0)
    # Only differences count, and those of equal numbers are rounding.
    return np.where(np.abs(centred).max(axis=0) > 1e-12 * np.abs(given).max(axis=0), centred, 0.0)


def _known(
    table: Table, coalitions: BoolArray, surrogate: KnownSurrogate, name: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    values = read_numbers(f"{name}: values", surrogate.values)
    credits = read_numbers(f"{name}: credits", surrogate.credits)
    if values.shape != (len(coalitions),) or not np.isfinite(values).all():
        raise UserError(f"{name}: values of shape {values.shape}; expected {len(coalitions)} finite numbers, one a row")
    if credits.shape != (table.n,) or not np.isfinite(credits).all():
        raise UserError(f"{name}: credits of shape {credits.shape}; expected {table.n} finite numbers")
    at = read_table(coalitions, values, 0.0, 0.0, "uniform")
    if surrogate.standard_error is None:
        return at.values, credits, np.zeros(table.n)
    errors = read_numbers(f"{name}: standard_error", surrogate.standard_error)
    if errors.shape != (table.n,) or not np.isfinite(errors).all() or (errors < 0).any():
        raise UserError(f"{name}: standard_error of shape {errors.shape}; expected {table.n} numbers, none negative")
    return at.values, credits, errors


def _asked(table: Table, game: Game, name: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """G at the table's coalitions, its credits and their standard errors, from as many coalitions as it takes."""
    n = table.n
    design, count = ("exhaustive", 2**n - 2) if n <= ENUMERATED else ("uniform", max(LEAST, TIMES * n))
    drawn = make_design(design).draw(n, 0, count)
    ask = _checked(game, name)
    # G(∅) and G(N) shift all credits alike, and G(∅) may not exist: differences never need them.
    game_table = read_table(drawn, ask(drawn), 0.0, 0.0, design)
    credits = exact(game_table, 0.95) if design == "exhaustive" else unshrunk(game_table, 0.95)
    return ask(table.coalitions), credits.values, credits.standard_error


def _checked(game: Game, name: str) -> Callable[[BoolArray], FloatArray]:
    def ask(coalitions: BoolArray) -> FloatArray:
        # A copy: what a game does to its argument is its own affair.
        values = read_numbers(name, game(coalitions.copy()))
        if values.shape != (len(coalitions),) or not np.isfinite(values).all():
            raise UserError(f"{name}: values of shape {values.shape}; expected {len(coalitions)} finite numbers")
        return values

    return ask
