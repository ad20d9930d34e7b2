"""Credits of a weighted sum of properties, from the properties' own."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from diffcredit.credit.credits import Credits
from diffcredit.credit.table import Table
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray


def mix(credits: Mapping[str, Credits], weights: Mapping[str, float]) -> Credits:
    """The credits for the property Σ_k w_k F_k, by linearity Σ_k w_k φ(F_k).

    weights: of any sign and sum, for some or all of the properties in ``credits``; a property without a weight, or with
    weight 0, has no part. All others must come from the same evaluations, by the same method, with the same confidence.

    Unit by unit, residuals tell how the properties' errors go together, and errors that cancel are seen to
    cancel. Of all else that is not known, and the worst is taken: errors of the endpoints, biases, the scatter of
    replicates, and errors without residuals (`Credits.residuals`) add up in absolute value. The influence of these has
    a column for each unit and property. One property's unknown interval makes the mix's unknown.

    The diagnostics are the weights, ``weight_NAME``. Raises UserError where properties cannot be mixed.
    """
    weights = {name: float(weight) for name, weight in weights.items() if weight != 0}
    _check(credits, weights)
    factors, sizes = list(weights.values()), [abs(weight) for weight in weights.values()]
    parts = [credits[name] for name in weights]
    return Credits.of(
        _mixed_table([part.table for part in parts], factors),
        "mix",
        _weighted(factors, [part.values for part in parts]),
        _mixed_influence(parts, factors),
        confidence=parts[0].confidence,
        bias=_weighted(sizes, [part.bias for part in parts]),
        degrees=min(part.degrees for part in parts),
        diagnostics={f"weight_{name}": weight for name, weight in weights.items()},
    )


def _mixed_influence(parts: Sequence[Credits], factors: Sequence[float]) -> FloatArray:
    if not all(np.isfinite(part.influence).all() for part in parts):
        return np.full_like(parts[0].influence, np.inf)
    units = [part.influence[:, :-2] for part in parts]
    if all(part.residuals for part in parts):
        errors = _weighted(factors, units)
    else:
        errors = _whatever_the_correlation([factor * unit for factor, unit in zip(factors, units, strict=True)])
    return np.hstack([errors, _weighted(np.abs(factors).tolist(), [part.influence[:, -2:] for part in parts])])


def _weighted(factors: Sequence[float], arrays: Sequence[FloatArray]) -> FloatArray:
    return np.sum([factor * array for factor, array in zip(factors, arrays, strict=True)], axis=0)


def _whatever_the_correlation(influences: Sequence[FloatArray]) -> FloatArray:
    """(n, Σu): an influence whose covariance no correlation between the parts' errors exceeds.

    By Cauchy and Schwarz (Σ a_k)² ≤ Σ a_k²/p_k for any shares p_k that sum to 1, with equality at p_k ∝ |a_k|.
    """
    norms = np.array([np.linalg.norm(influence) for influence in influences])
    total = norms.sum()
    roots = [math.sqrt(total / norm) if norm > 0 else 0.0 for norm in norms]
    return np.hstack([root * influence for root, influence in zip(roots, influences, strict=True)])


def _mixed_table(tables: Sequence[Table], factors: Sequence[float]) -> Table:
    first, sizes = tables[0], [abs(factor) for factor in factors]
    return Table(
        coalitions=first.coalitions,
        values=_weighted(factors, [table.values for table in tables]),
        replicates=first.replicates,
        scatter=_weighted(sizes, [np.sqrt(table.scatter) for table in tables]) ** 2,
        empty=_mixed_endpoint([table.empty for table in tables], factors),
        full=_mixed_endpoint([table.full for table in tables], factors),
        known=(all(table.known[0] for table in tables), all(table.known[1] for table in tables)),
        sizes_drawn=first.sizes_drawn,
    )


def _mixed_endpoint(evaluations: Sequence[FloatArray], factors: Sequence[float]) -> FloatArray:
    """Replicate by replicate, a single one serving for all; where their numbers differ, of the means."""
    most = max(len(part) for part in evaluations)
    if any(len(part) not in (1, most) for part in evaluations):
        evaluations = [part.mean(keepdims=True) for part in evaluations]
    return np.sum(np.broadcast_arrays(*(f * part for f, part in zip(factors, evaluations, strict=True))), axis=0)


def _check(credits: Mapping[str, Credits], weights: Mapping[str, float]) -> None:
    if not weights:
        raise UserError("weights: none but 0 given; at least one property's is expected")
    for name, weight in weights.items():
        if name not in credits:
            raise UserError(f"weights: {name!r} has no credits; accepted: {', '.join(credits)}")
        if not math.isfinite(weight):
            raise UserError(f"weights: {name!r}: {weight}; a finite number is accepted")
    reference, *others = weights
    a = credits[reference]
    for name in others:
        b = credits[name]
        for what, one, other in (
            ("method", a.method, b.method),
            ("confidence", a.confidence, b.confidence),
            ("contributors", a.table.n, b.table.n),
        ):
            if one != other:
                raise UserError(f"mix of {reference!r} and {name!r}: {what} {one} and {other}; one for all is expected")
        differing = _differing_rows(a.table, b.table)
        if differing:
            raise UserError(
                f"mix of {reference!r} and {name!r}: their evaluations differ in {differing} coalitions, which one of "
                "them lacks or has other replicates of; the same evaluations are expected"
            )


def _differing_rows(a: Table, b: Table) -> int:
    """How many coalitions only one of the tables has, or with other numbers of replicates."""
    if np.array_equal(a.coalitions, b.coalitions) and np.array_equal(a.replicates, b.replicates):
        return 0
    ours, theirs = _replicates(a), _replicates(b)
    return sum(ours.get(row) != theirs.get(row) for row in ours.keys() | theirs.keys())


def _replicates(table: Table) -> dict[bytes, int]:
    rows = np.packbits(table.coalitions, axis=1)
    return {row.tobytes(): int(count) for row, count in zip(rows, table.replicates, strict=True)}
