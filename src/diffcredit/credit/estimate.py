"""From evaluations to credits."""

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.credit.anchors import Surrogate, read_anchors
from diffcredit.credit.banzhaf import banzhaf, banzhaf_msr
from diffcredit.credit.credits import Credits
from diffcredit.credit.datamodel import datamodel, datamodel_lasso
from diffcredit.credit.exact import exact
from diffcredit.credit.least_squares import kernelshap, unshrunk
from diffcredit.credit.permutation import permutation
from diffcredit.credit.shapley import shapley
from diffcredit.credit.single_contributor import add_one_in, leave_one_out
from diffcredit.credit.table import Table, read_table
from diffcredit.errors import UserError, located

_WITHOUT_ANCHORS: dict[str, Callable[[Table, float], Credits]] = {
    "unshrunk": unshrunk,
    "kernelshap": kernelshap,
    "permutation": permutation,
    "exact": exact,
    "banzhaf": banzhaf,
    "banzhaf-msr": banzhaf_msr,
    "leave-one-out": leave_one_out,
    "add-one-in": add_one_in,
    "datamodel": datamodel,
    "datamodel-lasso": datamodel_lasso,
}
DEFAULT = "shapley"
METHODS = (DEFAULT, *_WITHOUT_ANCHORS)


def method_of(design: str) -> str:
    """What credits the evaluations of the design called so, where nobody asks for another method: Shapley values, or
    what there is without the sizes of coalitions that these need."""
    if design in ("leave-one-out", "add-one-in"):
        return design
    return "datamodel" if design.startswith("subset(") else DEFAULT


@overload
def estimate(
    coalitions: ArrayLike,
    values: Mapping[str, ArrayLike],
    *,
    empty: Mapping[str, float | Sequence[float]],
    full: Mapping[str, float | Sequence[float]],
    method: str = ...,
    size_distribution: str | ArrayLike = ...,
    confidence: float = ...,
    prior: ArrayLike | None = ...,
    surrogate: Surrogate | Sequence[Surrogate] | None = ...,
    seeds: ArrayLike | None = ...,
) -> dict[str, Credits]: ...


@overload
def estimate(
    coalitions: ArrayLike,
    values: ArrayLike,
    *,
    empty: float | Sequence[float],
    full: float | Sequence[float],
    method: str = ...,
    size_distribution: str | ArrayLike = ...,
    confidence: float = ...,
    prior: ArrayLike | None = ...,
    surrogate: Surrogate | Sequence[Surrogate] | None = ...,
    seeds: ArrayLike | None = ...,
) -> Credits: ...


def estimate(
    coalitions: ArrayLike,
    values: Any,
    *,
    empty: Any,
    full: Any,
    method: str = DEFAULT,
    size_distribution: str | ArrayLike = "uniform",
    confidence: float = 0.95,
    prior: ArrayLike | None = None,
    surrogate: Surrogate | Sequence[Surrogate] | None = None,
    seeds: ArrayLike | None = None,
) -> Credits | dict[str, Credits]:
    """Credits of n contributors from m evaluations.

    coalitions: (m, n) booleans. A repeated coalition is a replicate; the empty and the full coalition join
    the endpoints' replicates.
    values: (m,), F(S) of one property; or a mapping from several properties' names to theirs, with ``empty`` and
    ``full`` mappings too, which gives a mapping from the names to credits.
    empty, full: F(∅) and F(N). A sequence (even of one) holds noisy evaluations; their mean is used, and their
    noise widens all intervals alike. A plain number is taken as known exactly.
    method: of the Shapley value, whose credits sum to F(N) − F(∅): ``shapley`` (size-adjusted ridge with a Stein
    step, robust empirical-Bayes intervals), ``unshrunk`` (least squares, an interval for each contributor's own
    sake), ``kernelshap`` (the paper's constrained least squares), ``permutation`` (marginal contributions along
    nested coalitions), ``exact`` (from all coalitions). Others, which answer other questions: ``banzhaf``,
    ``banzhaf-msr``, ``leave-one-out``, ``add-one-in``, ``datamodel``, ``datamodel-lasso``.
    size_distribution: the design the coalitions were drawn with, or the n − 1 probabilities of the sizes 1..n−1.
    confidence: of each contributor's interval.
    prior: (n,), a cheap guess at the credits, or (n, k) of them; for ``shapley``. Scale and offset are fitted.
    surrogate: a cheap game G, as a function of coalitions (m, n) → (m,) or a `KnownSurrogate`, or several; for
    ``shapley``.
    seeds: (m,), the seed of each evaluation: rows of one coalition and one seed are one evaluation told twice,
    and are refused when their values differ.

    Raises UserError when the table is malformed, too short or contradicts ``size_distribution``.
    """
    if isinstance(values, Mapping):
        options: dict[str, Any] = {"method": method, "size_distribution": size_distribution, "confidence": confidence}
        options |= {"prior": prior, "surrogate": surrogate, "seeds": seeds}
        if (
            not (isinstance(empty, Mapping) and isinstance(full, Mapping))
            or {*values} - {*empty}
            or {*values} - {*full}
        ):
            raise UserError(
                f"empty and full: expected mappings with the keys {', '.join(map(str, values))}, as in values"
            )
        credits = {}
        for name in values:
            with located(name):
                credits[name] = estimate(coalitions, values[name], empty=empty[name], full=full[name], **options)
        return credits
    if method not in METHODS:
        raise UserError(f"method {method!r}: unknown; choose one of {', '.join(METHODS)}")
    if not (isinstance(confidence, Real) and 0 < confidence < 1):
        raise UserError(f"confidence: {confidence!r}; expected a number between 0 and 1, such as 0.95")
    if method != DEFAULT and not (prior is None and surrogate is None):
        raise UserError(f"method {method!r}: takes no prior and no surrogate; {DEFAULT} does")
    table = read_table(coalitions, values, empty, full, size_distribution, seeds)
    if method == DEFAULT:
        return shapley(table, confidence, read_anchors(table, np.asarray(coalitions), prior, surrogate))
    return _WITHOUT_ANCHORS[method](table, confidence)
