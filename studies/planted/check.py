"""Checks what must hold of the planted-truth studies, prints each claim with its numbers, and draws the credits.

    python -m studies.planted.check results/planted/0 results/planted/1 --figures docs

Each folder is one that `studies.planted.make` wrote and whose studies `diffcredit run` finished. Ends with 1 where a
claim fails that must hold.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import permutation_test, rankdata
from studies.planted.make import (
    DEGREES,
    FILTERED,
    HALF,
    LABELS,
    NOISE,
    POOR,
    SHARED,
    TWINS,
    WHOLE,
    degree_of,
    label_of,
)

from diffcredit.baselines.study import kept_baselines
from diffcredit.credit import Credits
from diffcredit.credit.credits import half_width
from diffcredit.errors import UserError
from diffcredit.study.study import Study
from diffcredit.util.arrays import FloatArray

if TYPE_CHECKING:
    from studies.planted.figures import Quantity

METHODS = {"twins": "exact", "degraded": "shapley", SHARED: "shapley"}
"""Axioms speak of the game itself, which is small enough to be evaluated whole; for an order the default will do."""
CONDITIONAL = "conditional_sampling"
SURE = ("heldout_loss", "colourfulness")
"""Properties by which bad photocopies must help less: they are blurred and have no colours. The kernel distance should
see it too, but is noisy with so few images."""
ALIKE = 0.01
"""Two credits of a method are alike if they differ by less than this share of the difference that evaluations find."""
LEARNT = ("heldout_loss", "kid")
"""Properties that more data of the same kind should improve; both fall where they improve."""
SIGNIFICANCE = 0.05
FLIPS = SIGNIFICANCE / 6
"""Two tests by sign flips of each of three properties: so that true axioms pass all of them in 95 % of runs."""


@dataclass(frozen=True)
class Claim:
    """What is claimed of a study's credits, the numbers that tell, and whether they say so. ``expected``: neither an
    axiom nor the order of what was planted demands it, and it may fail in a sound study."""

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


def shared_labels_claims(contributors: Sequence[str], property: str, credits: Credits) -> list[Claim]:
    """Within each label, those who give emoji as they are help more than the one who gives photocopies of them."""
    claims = []
    for label in LABELS:
        more = combination(credits, sign_of(credits) * good_or_poor(contributors, label))
        text = f"{label}: the good ones surely help more than the poor one"
        claims.append(Claim(text, str(more), more.low > 0, expected=property not in SURE))
    return claims


def conditional_claims(
    contributors: Sequence[str], property: str, credits: Credits, conditional: FloatArray, corrected: Credits
) -> list[Claim]:
    """Sampling the full model with everybody's labels gives all of a label one credit, ``conditional`` (n,), such that
    more is better. ``corrected`` are the credits of that surrogate corrected by the evaluations of ``credits``."""
    about_average, claims = conditional - conditional.mean(), []
    for label in LABELS:
        weights = good_or_poor(contributors, label)
        good, poor = about_average[weights > 0].mean(), about_average[weights < 0].mean()
        found = abs(weights @ credits.values)
        numbers = f"{good:.3g} and {poor:.3g}: {abs(good - poor):.1g}, beside {found:.3g} by evaluations"
        text = f"{label}: conditional sampling gives the good ones and the poor one the same"
        claims.append(Claim(text, numbers, bool(abs(good - poor) < ALIKE * found)))
    labels = np.array([label_of(name) for name in contributors])
    means = [about_average[labels == label].mean() for label in LABELS]
    text = f"conditional sampling distinguishes {' from '.join(LABELS)}"
    apart = abs(means[0] - means[1]) > np.ptp(about_average[labels == labels[0]])
    claims.append(Claim(text, " and ".join(f"{mean:.3g}" for mean in means), bool(apart), expected=True))
    for claim in shared_labels_claims(contributors, property, corrected):
        claims.append(replace(claim, text=f"corrected by evaluations: {claim.text}"))
    return claims


def good_or_poor(contributors: Sequence[str], label: str) -> NDArray[np.float64]:
    """(n,) the weights of the mean of a label's good contributors minus its poor one."""
    own = np.array([label_of(name) == label for name in contributors])
    poor = np.array([name.endswith(POOR) for name in contributors])
    return (own & ~poor) / (own & ~poor).sum() - (own & poor)


def sign_of(credits: Credits) -> int:
    return 1 if credits.higher_is_better else -1


CLAIMS = {"twins": twins_claims, "degraded": degraded_claims, SHARED: shared_labels_claims}


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
    SHARED: {f"{called} {POOR}": "photocopies" for called in LABELS.values()},
}
"""What was planted, for the figures."""


SHOWN: "Mapping[str, Quantity]" = {"twins": "credit", "degraded": "credit − average", SHARED: "help"}
"""What the figures show."""


@dataclass(frozen=True)
class Run:
    """A finished study: the credits of its evaluations alone, those by conditional sampling, and what is claimed of
    each property."""

    contributors: Sequence[str]
    credits: Mapping[str, Credits]
    conditional: Mapping[str, FloatArray]
    claims: Sequence[tuple[str, Claim]]


def run_of(name: str, study: Study) -> Run:
    contributors, credits = study.contributions.contributors, study.credits(METHODS[name], corrected=False)
    claims = [
        (property, claim) for property, each in credits.items() for claim in CLAIMS[name](contributors, property, each)
    ]
    if name != SHARED:
        return Run(contributors, credits, {}, claims)
    conditional, corrected = conditional_credits(study), study.credits(METHODS[name])
    for property, sampled in conditional.items():
        found = conditional_claims(contributors, property, credits[property], sampled, corrected[property])
        claims += [(property, claim) for claim in found]
    return Run(contributors, credits, conditional, claims)


def conditional_credits(study: Study) -> dict[str, FloatArray]:
    """The credits by conditional sampling for each property that they exist for, such that more is better."""
    found = {each.property: each.helpfulness for each in kept_baselines(study) if each.found.method == CONDITIONAL}
    if not found:
        raise UserError(f"{study.file}: not there yet: diffcredit baselines {study.file} --method {CONDITIONAL}")
    return {property: values for property, values in found.items() if property is not None}


def check(folders: Sequence[Path], figures: Path | None) -> bool:
    """Prints all claims of the studies in ``folders`` and whether each holds; True where all do that must."""
    holds = True
    for name in CLAIMS:
        runs = [run_of(name, Study.load(folder / name)) for folder in folders]
        for folder, run in zip(folders, runs, strict=True):
            for property, claim in run.claims:
                verdict = "holds" if claim.holds else "FAILS"
                print(f"{verdict}  {folder / name}  {property}: {claim.text}: {claim.numbers}")
                holds &= claim.holds or claim.expected
        if figures:
            from studies.planted.figures import draw  # matplotlib, which the claims do not need

            file, contributors = figures / f"planted-{name}.svg", runs[0].contributors
            sampled = [run.conditional for run in runs]
            draw(contributors, NOTES[name], [run.credits for run in runs], file, shown=SHOWN[name], sampled=sampled)
    return holds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--figures", type=Path)
    arguments = parser.parse_args()
    sys.exit(not check(arguments.folders, arguments.figures))


if __name__ == "__main__":
    main()
