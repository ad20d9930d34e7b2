"""`estimate`: from evaluated coalitions to credits.

F is any function of coalitions: the game. ``estimate`` needs F of some coalitions, F(∅) and F(N); `diffcredit.credit`
has an example. The default, ``shapley``, estimates φ_i = Σ_{S∌i} |S|!(n−|S|−1)!/n! · (F(S∪{i}) − F(S)).

Pitfalls
- ``size_distribution`` must name the design that drew the coalitions; a wrong one biases the credits. Plain
  contradictions are refused, small ones cannot be seen.
- One noisy evaluation of an endpoint is a list of one, ``full=[0.7]``. A plain number means "known exactly".
- Choose the method before you see its credits. How the default works: `diffcredit.credit.shapley`, docs/estimator.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.credit.banzhaf import banzhaf, banzhaf_msr
from diffcredit.credit.control_variates import Surrogate, read_control_variates
from diffcredit.credit.credits import Credits
from diffcredit.credit.datamodel import datamodel, datamodel_lasso
from diffcredit.credit.differences import exact, one_by_one
from diffcredit.credit.least_squares import kernelshap, unshrunk
from diffcredit.credit.permutation import permutation
from diffcredit.credit.shapley import shapley
from diffcredit.credit.table import GameTable, read_table
from diffcredit.errors import UserError

_OTHERS: dict[str, Callable[[GameTable, float], Credits]] = {
    "unshrunk": unshrunk,
    "kernelshap": kernelshap,
    "permutation": permutation,
    "exact": exact,
    "banzhaf": banzhaf,
    "banzhaf-msr": banzhaf_msr,
    "leave-one-out": partial(one_by_one, method="leave-one-out"),
    "add-one-in": partial(one_by_one, method="add-one-in"),
    "datamodel": datamodel,
    "datamodel-lasso": datamodel_lasso,
}
DEFAULT = "shapley"
ESTIMATOR = 1
"""The version of the estimators: a higher one where the same table gives other credits than before."""
METHODS = (DEFAULT, *_OTHERS)


def method_of(design: str) -> str:
    """Return the method to use by default for a design: ``shapley``, or another if the design leaves out sizes that it
    needs."""
    if design in ("leave-one-out", "add-one-in"):
        return design
    return "datamodel" if design.startswith("subset(") else DEFAULT


def estimate(
    coalitions: ArrayLike,
    values: ArrayLike,
    *,
    empty: float | Sequence[float],
    full: float | Sequence[float],
    names: Sequence[str] | None = None,
    higher_is_better: bool = True,
    method: str = DEFAULT,
    size_distribution: str | ArrayLike = "uniform",
    confidence: float = 0.95,
    prior: ArrayLike | None = None,
    surrogate: Surrogate | Sequence[Surrogate] | None = None,
) -> Credits:
    """Estimate the credits of n contributors from m evaluations.

    coalitions: (m, n) booleans. A repeated coalition is a replicate.
    values: (m,), F(S) of one property.
    empty, full: F(∅) and F(N). A sequence (even of one) holds noisy evaluations: their mean is used, their noise widens
    all intervals, and rows of the empty or full coalition are added to them. A plain number is known exactly; with it,
    such rows are refused.
    names: (n,), the contributors', all different; "0", "1", … by default.
    higher_is_better: which way the property is better; it turns `Credits.help` and ranks, and changes no credit.
    method: for the Shapley value, whose credits sum to F(N) − F(∅): ``shapley``, ``unshrunk`` (least squares, with
    intervals that cover for each contributor), ``kernelshap`` (the paper's constrained least squares), ``permutation``
    (marginal contributions along nested coalitions), ``exact`` (from all coalitions). For other values: ``banzhaf``,
    ``banzhaf-msr``, ``leave-one-out``, ``add-one-in``, ``datamodel``, ``datamodel-lasso``.
    size_distribution: the design the coalitions were drawn with, or the n − 1 probabilities of the sizes 1..n−1.
    confidence: of each contributor's interval.
    prior: (n,), a cheap guess at the credits, or (n, k) for k of them; for ``shapley``. Scale and offset are fitted.
    surrogate: for ``shapley``: a cheap game, a function of coalitions (m, n) → (m,), or a `KnownSurrogate`, or several.

    Raises UserError if the table is malformed, too short or contradicts ``size_distribution``.
    """
    if method not in METHODS:
        raise UserError(f"method {method!r}: unknown; choose one of {', '.join(METHODS)}")
    if not (isinstance(confidence, Real) and 0 < confidence < 1):
        raise UserError(f"confidence: {confidence!r}; expected a number between 0 and 1, such as 0.95")
    if method != DEFAULT and not (prior is None and surrogate is None):
        raise UserError(f"method {method!r}: takes no prior and no surrogate; {DEFAULT} does")
    table = read_table(coalitions, values, empty, full, size_distribution, names)
    if method == DEFAULT:
        found = shapley(table, confidence, read_control_variates(table, np.asarray(coalitions), prior, surrogate))
    else:
        found = _OTHERS[method](table, confidence)
    return replace(found, higher_is_better=higher_is_better)
