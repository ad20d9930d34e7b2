"""Credits for a weighted sum of properties, from the credits of each.

The Shapley value is linear: φ(Σ_k w_k F_k) = Σ_k w_k φ(F_k), and so are the other methods' targets. ``mix`` takes
named properties and weights; ``0.7 * a + 0.3 * b`` and ``a - b`` do the same for `Credits`:

>>> from diffcredit import estimate, make_design
>>> from diffcredit.credit import mix
>>> coalitions = make_design("uniform").draw(4, 0, 30)
>>> sharpness = estimate(coalitions, coalitions @ [1.0, 2.0, 0.0, 1.0], empty=0.0, full=4.0)
>>> variety = estimate(coalitions, coalitions @ [0.0, 1.0, 3.0, 1.0], empty=0.0, full=5.0)
>>> mix({"sharpness": sharpness, "variety": variety}, {"sharpness": 0.7, "variety": 0.3}).values.round(6).tolist()
[0.7, 1.7, 0.9, 1.0]

All parts must come from the same evaluations of the same contributors, by the same method, at the same confidence.
Then the residuals of each sampling unit show which errors of the properties cancel. Everything else is added as if
correlated in the worst direction: errors of F(∅) and F(N), biases, the scatter of replicates, and errors without signed
residuals (`Credits.residuals`). So mixing may make an interval too wide, never too narrow; it has the fewest degrees of
freedom of any part. If the interval of one part is unknown, so is that of the mix.

Pitfalls: a weight is a price per unit of its property, negative if lower is better. `a - b` is the difference between
two properties' credits; it does not compare two studies (`diffcredit compare` does that).
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from diffcredit.credit.table import GameTable
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray

if TYPE_CHECKING:
    from diffcredit.credit.credits import Credits


def mix(credits: "Mapping[str, Credits]", weights: Mapping[str, float]) -> "Credits":
    """Return the credits for the property Σ_k w_k F_k.

    weights: of any sign and sum, for some or all of the properties in ``credits``; properties without a weight, or
    with weight 0, are left out. Diagnostics: the weights, ``weight_NAME``. Raises UserError if they cannot be mixed.
    """
    weights = {name: float(weight) for name, weight in weights.items() if weight != 0}
    _check(credits, weights)
    factors, sizes = list(weights.values()), [abs(weight) for weight in weights.values()]
    parts = [credits[name] for name in weights]
    mixed = parts[0].of(
        _mixed_table([part.table for part in parts], factors),
        "mix",
        _weighted(factors, [part.values for part in parts]),
        _mixed_influence(parts, factors),
        confidence=parts[0].confidence,
        bias=_weighted(sizes, [part.bias for part in parts]),
        degrees=min(part.degrees for part in parts),
        diagnostics={f"weight_{name}": weight for name, weight in weights.items()},
    )
    units = {part.unit for part in parts}
    terms = (name if weight == 1 else f"{weight:g}·{name}" for name, weight in weights.items())
    return replace(
        mixed,
        property_name=" + ".join(terms).replace("+ -", "− "),
        unit=units.pop() if len(units) == 1 else "",
        # Lower is better only where that holds of every term, as of a sum of losses.
        higher_is_better=any(
            (factor > 0) == part.higher_is_better for factor, part in zip(factors, parts, strict=True)
        ),
        parts=tuple(zip(factors, parts, strict=True)),
    )


def combine(terms: "Sequence[tuple[float, Credits]]") -> "Credits":
    """Return the `mix` of weighted credits. A mix among them counts as its parts, so that sums may be nested.

    Parts are named by their property, or by their number if names are missing or repeated.
    """
    found: dict[int, tuple[float, Credits]] = {}
    for weight, credits in (part for term in terms for part in _parts(*term)):
        before = found[id(credits)][0] if id(credits) in found else 0.0
        found[id(credits)] = before + weight, credits
    names = [credits.property_name for _, credits in found.values()]
    usable = all(names) and max(Counter(names).values()) == 1
    labels = names if usable else [str(number + 1) for number in range(len(names))]
    weighted = dict(zip(labels, found.values(), strict=True))
    return mix(
        {label: credits for label, (_, credits) in weighted.items()},
        {label: weight for label, (weight, _) in weighted.items()},
    )


def _parts(weight: float, credits: "Credits") -> "Iterator[tuple[float, Credits]]":
    if not credits.parts:
        yield weight, credits
    for own_weight, part in credits.parts:
        yield from _parts(weight * own_weight, part)


def _mixed_influence(parts: "Sequence[Credits]", factors: Sequence[float]) -> FloatArray:
    if not all(np.isfinite(part.influence).all() for part in parts):
        return np.full_like(parts[0].influence, np.inf)
    units = [part.influence[:, :-2] for part in parts]
    if all(part.residuals for part in parts):
        errors = _weighted(factors, units)
    else:
        errors = _worst_case_influence([factor * unit for factor, unit in zip(factors, units, strict=True)])
    return np.hstack([errors, _weighted(np.abs(factors).tolist(), [part.influence[:, -2:] for part in parts])])


def _weighted(factors: Sequence[float], arrays: Sequence[FloatArray]) -> FloatArray:
    return np.sum([factor * array for factor, array in zip(factors, arrays, strict=True)], axis=0)


def _worst_case_influence(influences: Sequence[FloatArray]) -> FloatArray:
    """Return (n, Σu): an influence whose variances hold for any correlation between the parts' errors.

    By Cauchy and Schwarz (Σ a_k)² ≤ Σ a_k²/p_k for any p_k that sum to 1, with equality at p_k ∝ |a_k|.
    """
    norms = np.array([np.linalg.norm(influence) for influence in influences])
    total = norms.sum()
    roots = [math.sqrt(total / norm) if norm > 0 else 0.0 for norm in norms]
    return np.hstack([root * influence for root, influence in zip(roots, influences, strict=True)])


def _mixed_table(tables: Sequence[GameTable], factors: Sequence[float]) -> GameTable:
    first, sizes = tables[0], [abs(factor) for factor in factors]
    return GameTable(
        coalitions=first.coalitions,
        values=_weighted(factors, [table.values for table in tables]),
        replicates=first.replicates,
        scatter=_weighted(sizes, [np.sqrt(table.scatter) for table in tables]) ** 2,
        empty=_mixed_endpoint([table.empty for table in tables], factors),
        full=_mixed_endpoint([table.full for table in tables], factors),
        known=(all(table.known[0] for table in tables), all(table.known[1] for table in tables)),
        sizes_drawn=first.sizes_drawn,
        names=first.names,
    )


def _mixed_endpoint(evaluations: Sequence[FloatArray], factors: Sequence[float]) -> FloatArray:
    """Return the weighted sum replicate by replicate, or of the means if the properties have different numbers."""
    most = max(len(part) for part in evaluations)
    if any(len(part) not in (1, most) for part in evaluations):
        evaluations = [part.mean(keepdims=True) for part in evaluations]
    return np.sum(np.broadcast_arrays(*(f * part for f, part in zip(factors, evaluations, strict=True))), axis=0)


def _check(credits: "Mapping[str, Credits]", weights: Mapping[str, float]) -> None:
    if not weights:
        raise UserError("weights: all are 0; at least one property needs a weight that is not")
    for name, weight in weights.items():
        if name not in credits:
            raise UserError(f"weights: {name!r} has no credits; accepted: {', '.join(credits)}")
        if not math.isfinite(weight):
            raise UserError(f"weights: {name!r}: {weight}; a finite number is accepted")
    reference, *others = weights
    for name in others:
        difference = _difference(credits[reference], credits[name])
        if difference:
            raise UserError(f"mix of {reference!r} and {name!r}: {difference}")


def _difference(a: "Credits", b: "Credits") -> str:
    for what, one, other in (
        ("method", a.method, b.method),
        ("confidence", a.confidence, b.confidence),
        ("contributors", a.table.n, b.table.n),
    ):
        if one != other:
            return f"{what} {one} and {other}; expected the same for all"
    for own, theirs in zip(a.names, b.names, strict=True):
        if own != theirs:
            return f"contributors {own!r} and {theirs!r} in the same place; expected the same names in the same order"
    ours, theirs = _replicates(a.table), _replicates(b.table)
    differing = sum(ours.get(row) != theirs.get(row) for row in ours.keys() | theirs.keys())
    if differing:
        return (
            f"their evaluations differ in {differing} coalitions, which are missing from one of them or have other "
            "numbers of replicates; expected the same evaluations"
        )
    return ""


def _replicates(table: GameTable) -> dict[bytes, int]:
    rows = np.packbits(table.coalitions, axis=1)
    return {row.tobytes(): int(count) for row, count in zip(rows, table.replicates, strict=True)}
