"""From evaluations to credits."""

from collections.abc import Callable, Sequence

from numpy.typing import ArrayLike

from diffcredit.credit.credits import Credits
from diffcredit.credit.exact import exact
from diffcredit.credit.kernelshap import kernelshap
from diffcredit.credit.shapley import shapley
from diffcredit.credit.table import Table, read_table
from diffcredit.errors import UserError

METHODS: dict[str, Callable[[Table, float], Credits]] = {
    "exact": exact,
    "kernelshap": kernelshap,
    "shapley": shapley,
}


def estimate(
    coalitions: ArrayLike,
    values: ArrayLike,
    *,
    empty: float | Sequence[float],
    full: float | Sequence[float],
    method: str = "shapley",
    size_distribution: str = "uniform",
    confidence: float = 0.95,
) -> Credits:
    """Credits of n contributors from m evaluations; they sum to F(N) − F(∅).

    coalitions: (m, n) booleans. A repeated coalition is a replicate; the empty and the full coalition join
    the endpoints' replicates.
    values: (m,), F(S) of one property.
    empty, full: F(∅) and F(N). A sequence (even of one) holds noisy evaluations; their mean is used, and their
    noise widens all intervals alike. A plain number is taken as known exactly.
    method: ``shapley`` (size-adjusted ridge with a Stein step, robust empirical-Bayes intervals),
    ``kernelshap`` (constrained least squares) or ``exact`` (from all coalitions).
    size_distribution: the design the coalitions were drawn with; ``exact`` does not use it.
    confidence: of each contributor's interval.

    Raises UserError when the table is malformed, too short or contradicts ``size_distribution``.
    """
    if method not in METHODS:
        raise UserError(f"method {method!r}: unknown; choose one of {', '.join(METHODS)}")
    if not 0 < confidence < 1:
        raise UserError(f"confidence: {confidence}; expected a number between 0 and 1, such as 0.95")
    return METHODS[method](read_table(coalitions, values, empty, full, size_distribution), confidence)
