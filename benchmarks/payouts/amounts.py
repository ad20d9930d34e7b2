"""Simulated studies with a null player and twins: are they paid what they should, and do intervals hold?"""

from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations
from typing import Any

import numpy as np

from benchmarks.payouts.worlds import BoolArray, FloatArray
from diffcredit import estimate, make_design
from diffcredit.credit import Credits
from diffcredit.payout.certainty import certainty
from diffcredit.payout.merit import Contributors, amounts, merits_of
from diffcredit.study.policy import PolicySection

POOL = 10_000.0
R = 0.3
N = 12
NULL, TWINS = 0, (1, 2)  # their places


@dataclass(frozen=True)
class Case:
    """A kind of study: its estimator, the rule of merit, evaluations, and the noise of one as a multiple of the true
    credits' deviation."""

    method: str
    merit: str
    evaluations: int
    noise: float

    @property
    def policy(self) -> PolicySection:
        return PolicySection.model_validate(
            {"property": "value", "fixed": "equal", "merit": self.merit, "r": str(R), "currency": "EUR"}
        )


CASES = [
    Case(method, merit, evaluations, noise)
    for method in ("shapley", "unshrunk")
    for merit in ("help", "least")
    for evaluations, noise in ((60, 2.0), (120, 2.0), (120, 0.5))
]


@dataclass(frozen=True, eq=False)
class Planted:
    """A game whose first player adds nothing to any coalition and whose second and third are interchangeable. F is a
    concave function of the number of all but the null player, plus members' effects and those of pairs."""

    effects: FloatArray
    pairs: FloatArray

    @classmethod
    def made(cls, generator: np.random.Generator) -> "Planted":
        effects = generator.normal(0.0, 1.0, N)
        pairs = np.triu(generator.normal(0.0, 0.15, (N, N)), 1)
        pairs = pairs + pairs.T
        first, second = TWINS
        effects[second], pairs[second], pairs[:, second] = effects[first], pairs[first], pairs[:, first]
        pairs[first, second] = pairs[second, first] = pairs[first, first] = pairs[second, second] = 0.0
        effects[NULL], pairs[NULL], pairs[:, NULL] = 0.0, 0.0, 0.0
        return cls(effects, pairs)

    def values(self, coalitions: BoolArray) -> FloatArray:
        x = coalitions.astype(np.float64)
        real = np.delete(x, NULL, axis=1).sum(axis=1)
        return 20 * real / (real + N / 4) + x @ self.effects + ((x @ self.pairs) * x).sum(axis=1) / 2

    @property
    def shapley(self) -> FloatArray:
        """The true credits, by hand: a pair's effect is halved, and the concave part is equal for all but the null
        player."""
        level = 20 * (N - 1) / (N - 1 + N / 4) / (N - 1)
        credits = self.effects + self.pairs.sum(axis=1) / 2 + level
        credits[NULL] = 0.0
        return credits


def study(case: Case, number: int, run: int = 0) -> tuple[Planted, Credits]:
    """Return the ``number``-th study of a kind; each ``run`` evaluates the same coalitions with other seeds."""
    seeds = number, case.evaluations, round(10 * case.noise)
    game = Planted.made(np.random.default_rng(seeds))
    generator, noise = np.random.default_rng([*seeds, run, 1]), case.noise * game.shapley.std()
    coalitions = make_design("uniform").draw(N, number, case.evaluations)
    ends = np.array([[False] * N, [True] * N]).repeat(3, axis=0)
    values = game.values(np.vstack([ends, coalitions]))
    values += noise * generator.standard_normal(len(values))
    credits = estimate(coalitions, values[6:], empty=values[:3].tolist(), full=values[3:6].tolist(), method=case.method)
    return game, credits


def measured(case: Case, studies: int) -> dict[str, Any]:
    """Pay simulated studies by the true and by the estimated credits, and count what the intervals hold."""
    people = Contributors.of({f"{player:02d}": 1 for player in range(N)}, {})
    inside, with_merit, null, excess, twins, apart, moved, again, overtaken, better = ([] for _ in range(10))
    for number in range(studies):
        game, credits = study(case, number)
        true = _paid(case, people, game.shapley)
        found = _paid(case, people, credits.values)
        sure = certainty(credits, people, case.policy, 1, Decimal(str(R)), POOL, np.zeros(N, dtype=np.bool_))
        held = (sure.low - 0.01 <= true) & (true <= sure.high + 0.01)
        inside.append(held)
        with_merit.append(true > (1 - R) * POOL / N + 0.01)
        null.append(held[NULL])
        excess.append(found[NULL] - true[NULL])
        first, second = TWINS
        twins.append(abs(found[first] - found[second]))
        apart.append(sure.low[first] > sure.high[second] or sure.low[second] > sure.high[first])
        moved.append(sure.moved)
        again.append(np.abs(_paid(case, people, study(case, number, 1)[1].values) - found).sum() / 2)
        order = np.argsort(-credits.values, kind="stable")
        overtaken.append(sure.overtaken[order[:-1]])
        better.append(np.diff(game.shapley[order]) > 0)
    covered = np.array(inside)
    return {
        "method": case.method,
        "merit": case.merit,
        "evaluations": case.evaluations,
        "noise": case.noise,
        "covered": float(covered.mean()),
        "covered_with_merit": float(covered[np.array(with_merit)].mean()),
        "null_covered": float(np.mean(null)),
        "null_excess": float(np.mean(excess)),
        "twins_differ": float(np.mean(twins)),
        "twins_apart": float(np.mean(apart)),
        "moved": float(np.mean(moved)),
        "moved_by_another_run": float(np.mean(again)),
        "overtaken": float(np.mean(overtaken)),
        "better": float(np.mean(better)),
    }


def exact_twins(studies: int) -> dict[str, float]:
    """Pay the null player and the twins by exact credits, from all coalitions: the largest deviations from the fixed
    part and from each other."""
    people = Contributors.of({f"{player:02d}": 1 for player in range(N)}, {})
    rows = np.array([np.isin(range(N), members) for size in range(N + 1) for members in combinations(range(N), size)])
    null, twins = 0.0, 0.0
    for number in range(studies):
        game = Planted.made(np.random.default_rng(number))
        values = game.values(rows)
        credits = estimate(rows[1:-1], values[1:-1], empty=float(values[0]), full=float(values[-1]), method="exact")
        merits = merits_of(credits, people, Case("exact", "help", 0, 0.0).policy, 1)
        found = amounts(merits[None], np.ones(N), R, POOL, 0.0, None)[0]
        null = max(null, abs(found[NULL] - (1 - R) * POOL / N))
        twins = max(twins, abs(found[TWINS[0]] - found[TWINS[1]]))
    return {"null": null, "twins": twins}


def _paid(case: Case, people: Contributors, credits: FloatArray) -> FloatArray:
    worth = credits - credits.min() if case.merit == "least" else credits
    return amounts(np.maximum(worth, 0.0)[None], np.ones(N), R, POOL, 0.0, None)[0]
