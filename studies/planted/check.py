"""Checks what must hold of the planted-truth studies, prints each claim with its numbers, and draws the credits.

    python -m studies.planted.check results/planted/0 results/planted/1 --figures docs

Each folder is one that `studies.planted.make` wrote and whose studies `diffcredit run` finished. Ends with 1 where a
claim fails that must hold.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import comb
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import permutation_test, rankdata
from studies.planted.make import DEGREES, FILTERED, HALF, NOISE, TWINS, WHOLE, degree_of

from diffcredit.credit import Credits
from diffcredit.credit.credits import half_width
from diffcredit.study.study import Study

METHODS = {"twins": "exact", "degraded": "shapley"}
"""Axioms speak of the game itself, which is small enough to be evaluated whole; for an order the default will do."""
LEARNT = ("heldout_loss", "kid")
"""Properties that more data of the same kind should improve; both fall where they improve."""
SIGNIFICANCE = 0.05
FLIPS = SIGNIFICANCE / 6
"""Two tests by sign flips of each of three properties: so that true axioms pass all of them in 95 % of runs."""


@dataclass(frozen=True)
class Claim:
    """What is claimed of a study's credits, the numbers that tell, and whether they say so. ``expected``: neither an
    axiom nor the order of the degrees demands it, and it may fail in a sound study."""

    text: str
    numbers: str
    holds: bool
    expected: bool = False


@dataclass(frozen=True)
class Combination:
    """Σ weight·credit with its interval."""

    value: float
    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


def combination(credits: Credits, weights: NDArray[np.float64]) -> Combination:
    """The combination Σ weights·credits, weights (n,), at the credits' confidence. What the contributors' errors share,
    such as F(N)'s, cancels as it does in the combination; their biases are taken as independent."""
    value, variance = weights @ credits.values, ((weights @ credits.influence) ** 2).sum(keepdims=True)
    bias = np.sqrt((weights**2 @ credits.bias**2).reshape(1))
    half = half_width(variance, bias, credits.degrees, credits.confidence)[0]
    return Combination(float(value), float(value - half), float(value + half))


def twins_claims(contributors: Sequence[str], property: str, credits: Credits) -> list[Claim]:
    """What the axioms say of the copy and the filtered contributor, and what is expected of the half."""
    n = len(contributors)
    unit = dict(zip(contributors, np.eye(n), strict=True))
    total, average = credits.full - credits.empty, np.full(n, 1 / n)
    others = (np.ones(n) - unit[FILTERED]) / (n - 1)
    twins = combination(credits, unit[TWINS[0]] - unit[TWINS[1]])
    null, contrast = combination(credits, unit[FILTERED]), combination(credits, unit[FILTERED] - average)
    apart = combination(credits, others - unit[FILTERED])
    swapped = exchange(credits, contributors.index(TWINS[0]), contributors.index(TWINS[1]))
    joined = exchange(credits, contributors.index(FILTERED))
    claims = [
        Claim(
            "efficiency: credits sum to F(all) − F(none)",
            f"{credits.values.sum():.6g} and {total:.6g}",
            bool(np.isclose(credits.values.sum(), total, rtol=1e-9)),
        ),
        Claim("symmetry: the twins' difference is 0", str(twins), 0 in twins),
        Claim("symmetry, coalition by coalition (sign flips)", f"p = {swapped:.2g}", swapped >= FLIPS),
        Claim("null: the filtered contributor's credit is 0", str(null), 0 in null),
        Claim("null: credit − average is −average", f"{contrast}, {-total / n:.3g}", -total / n in contrast),
        Claim("null, coalition by coalition (sign flips)", f"p = {joined:.2g}", joined >= FLIPS),
        Claim(
            "the others' mean credit surely differs from the filtered one's", str(apart), 0 not in apart, expected=True
        ),
    ]
    if property in LEARNT:
        more = combination(credits, unit[HALF] - unit[WHOLE])
        claims.append(
            Claim("the half does not surely help more than the whole", str(more), more.high >= 0, expected=True)
        )
    return claims


def degraded_claims(contributors: Sequence[str], property: str, credits: Credits) -> list[Claim]:
    """All properties of this study rise with the degree: losses and distances because degradation hurts, colourfulness
    because noise is colourful."""
    degrees = np.array([degree_of(name) for name in contributors])
    of_degree = [(degrees == degree) / (degrees == degree).sum() for degree in range(DEGREES + 1)]
    means = [combination(credits, weights) for weights in of_degree[:DEGREES]]
    ends = combination(credits, of_degree[DEGREES - 1] - of_degree[0])
    by_degree, by_credit = _standard_ranks(degrees), _standard_ranks(credits.values)
    order = permutation_test(
        (by_credit,),
        lambda ranks, axis: (ranks * by_degree).sum(axis=axis),
        permutation_type="pairings",
        vectorized=True,
        alternative="greater",
        rng=np.random.default_rng(0),
    )
    noise = 1 + int((credits.values > credits.values[contributors.index(NOISE)]).sum())
    rising = all(low.value < high.value for low, high in pairwise(means))
    return [
        Claim("the mean credit rises with every degree", ", ".join(map(str, means)), rising, expected=True),
        Claim("the heaviest degree surely differs from the clean one", str(ends), ends.low > 0, expected=True),
        Claim(
            "credits are ordered by degree",
            f"Spearman {order.statistic:.2f}, p = {order.pvalue:.2g}",
            bool(order.pvalue < SIGNIFICANCE),
        ),
        Claim("pure noise has the highest credit", f"rank {noise} of {len(contributors)}", noise == 1, expected=True),
    ]


def _standard_ranks(values: NDArray) -> NDArray[np.float64]:
    """Ranks with mean 0 and norm 1: the product of two such vectors is Spearman's correlation."""
    ranks = rankdata(values) - (len(values) + 1) / 2
    return ranks / np.linalg.norm(ranks)


CLAIMS = {"twins": twins_claims, "degraded": degraded_claims}


def exchange(credits: Credits, i: int, j: int | None = None) -> float:
    """The chance, were F(S ∪ i) and F(S ∪ j) alike (F(S) without j) for all S, of a credit difference (a credit) as far
    from 0: the evaluations of each pair change places at random. It needs no model of the noise, but the values of all
    coalitions."""
    table, n = credits.table, len(credits.values)
    values = {tuple(row): value for row, value in zip(table.coalitions.tolist(), table.values, strict=True)}
    values |= {(False,) * n: credits.empty, (True,) * n: credits.full}
    players = n if j is None else n - 1  # a difference of two credits is the credit in a game that i and j enter as one
    pairs, weights = [], []
    for coalition, value in values.items():
        if coalition[i] and (j is None or not coalition[j]):
            other = list(coalition)
            other[i] = False
            if j is not None:
                other[j] = True
            pairs.append((value, values[tuple(other)]))
            weights.append(1 / (players * comb(players - 1, sum(coalition) - 1)))
    with_i, without = np.array(pairs).T
    scale = np.array(weights)
    return float(
        permutation_test(
            (with_i, without),
            lambda x, y, axis: ((x - y) * scale).sum(axis=axis),
            permutation_type="samples",
            vectorized=True,
            rng=np.random.default_rng(0),
        ).pvalue
    )


NOTES = {
    "twins": {TWINS[1]: "the same images", HALF: "half of them", FILTERED: "never used"},
    "degraded": {NOISE: "degree 4"},
}
"""What was planted, for the figures."""


def check(folders: Sequence[Path], figures: Path | None) -> bool:
    """Prints all claims of the studies in ``folders`` and whether each holds; True where all do that must."""
    holds = True
    for name, claims in CLAIMS.items():
        runs: list[Mapping[str, Credits]] = []
        contributors: Sequence[str] = ()
        for folder in folders:
            study = Study.load(folder / name)
            contributors = study.contributions.contributors
            runs.append(study.credits(METHODS[name]))
            for property, credits in runs[-1].items():
                for claim in claims(contributors, property, credits):
                    verdict = "holds" if claim.holds else "FAILS"
                    print(f"{verdict}  {folder / name}  {property}: {claim.text}: {claim.numbers}")
                    holds &= claim.holds or claim.expected
        if figures:
            from studies.planted.figures import draw  # matplotlib, which the claims do not need

            draw(contributors, NOTES[name], runs, figures / f"planted-{name}.svg", about_average=name == "degraded")
    return holds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--figures", type=Path)
    arguments = parser.parse_args()
    sys.exit(not check(arguments.folders, arguments.figures))


if __name__ == "__main__":
    main()
