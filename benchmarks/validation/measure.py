"""Do the intervals of the LDS cover, and how far off are its ceilings?

    python -m benchmarks validation

Two simulations with known answers: correlated samples of many kinds, for the choice of the interval; and games, of
which the infinite population of coalitions and seeds is known, for everything that validation says of the LDS.
"""

import json
from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import pearsonr, spearmanr

from benchmarks.validation.games import BoolArray, PairwiseGame, coalitions_of_half, pairwise_game
from benchmarks.validation.intervals import WORLDS, FloatArray, draw, intervals
from benchmarks.validation.page import write_page
from diffcredit.credit.correlations import correlation, jackknifed_correlation
from diffcredit.credit.mixed_model import restricted_likelihood
from diffcredit.credit.regression import regress
from diffcredit.validation.statistics import Contender, Estimate, Truth, compare_lds
from diffcredit.validation.statistics.ceilings import Ceiling, additive_predictions, mean_over_seeds
from diffcredit.validation.statistics.intervals import correlation_interval, seeds_interval

RESULTS = Path(__file__).parent / "results.json"
COALITIONS, SEEDS, CORRELATIONS = (20, 40, 100), (1, 2, 3), (0.0, 0.3, 0.6, 0.9)
POPULATION = 100_000
SAMPLES, COMPARED, RESAMPLES = 200, 200, 300
CONTRIBUTORS, GAMES, TRUTHS = (12, 20, 50), 4, 40
CROWD, GAME_SEEDS = 30_000, 2
ADDITIVE, NOISE = 0.7, 0.8  # of F's variance of 1; a seed's deviation

Rows = list[dict[str, Any]]


def main() -> None:
    results: dict[str, Any] = {"sizes": {"compared": COMPARED, "samples": SAMPLES, "truths": TRUTHS}}
    for part in (compared, shipped, games, null):
        results[part.__name__] = part()
        print(part.__name__, flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write_page(results, RESULTS.with_suffix(".md"))


def compared() -> Rows:
    """Coverage and width of every way to an interval of Spearman's correlation, one seed."""
    rows: Rows = []
    for world, rho in product(WORLDS, CORRELATIONS):
        said, values = draw(world, rho, POPULATION, 1, np.random.default_rng(0))
        truth = float(spearmanr(said, values[:, 0]).statistic)
        for count in COALITIONS:
            generator = np.random.default_rng([count, WORLDS.index(world), round(10 * rho)])
            resampled = generator.integers(count, size=(RESAMPLES, count))
            hits, widths = defaultdict(list), defaultdict(list)
            for _ in range(COMPARED):
                said, values = draw(world, rho, count, 1, generator)
                for name, (low, high) in intervals(said, values[:, 0], resampled).items():
                    hits[name].append(low <= truth <= high)
                    widths[name].append(high - low)
            rows += [
                {
                    "world": world,
                    "correlation": rho,
                    "coalitions": count,
                    "interval": name,
                    "coverage": float(np.mean(hits[name])),
                    "width": float(np.nanmean(widths[name])),
                }
                for name in hits
            ]
    return rows


def shipped() -> Rows:
    """Coverage of the interval in use and of the one over seeds, for all numbers of seeds."""
    rows: Rows = []
    for world, rho, seeds in product(WORLDS, CORRELATIONS, SEEDS):
        said, values = draw(world, rho, POPULATION, seeds, np.random.default_rng(0))
        truth = {
            "spearman": float(spearmanr(said, values.mean(axis=1)).statistic),
            "pearson": float(pearsonr(said, values.mean(axis=1)).statistic),
            "over seeds": float(spearmanr(said, values[:, 0]).statistic),
        }
        for count in COALITIONS:
            generator = np.random.default_rng([count, WORLDS.index(world), round(10 * rho), seeds])
            hits = defaultdict(list)
            for _ in range(SAMPLES):
                said, values = draw(world, rho, count, seeds, generator)
                means = mean_over_seeds(values)
                for kind in ("spearman", "pearson"):
                    found = correlation_interval(jackknifed_correlation(said, means, kind), 0.95)
                    hits[kind].append(covers(found, truth[kind]))
                if seeds > 1:
                    by_seed = np.array([correlation(said, column, "spearman") for column in values.T])
                    hits["over seeds"].append(covers(seeds_interval(by_seed, 0.95), truth["over seeds"]))
            coverage = {name: float(np.mean(each)) for name, each in hits.items()}
            rows.append({"world": world, "correlation": rho, "coalitions": count, "seeds": seeds, **coverage})
    return rows


def games() -> Rows:
    """All that `lds` says, over games: coverage of its intervals, and the ceilings' bias."""
    rows: Rows = []
    for n in CONTRIBUTORS:
        worlds = [world_of(n, index) for index in range(GAMES)]
        for count in COALITIONS:
            said = defaultdict(list)
            for each in worlds:
                for name, pairs in truths_of(each, count).items():
                    said[name] += pairs
            rows.append(
                {"contributors": n, "coalitions": count, **{name: judged(pairs) for name, pairs in said.items()}}
            )
    return rows


def judged(pairs: list[tuple[Estimate, float]]) -> dict[str, float]:
    """Estimates with the truth they are of."""
    bounded = [(estimate, truth) for estimate, truth in pairs if np.isfinite(estimate.low)]
    return {
        "truth": float(np.mean([truth for _, truth in pairs])),
        "bias": float(np.mean([estimate.value - truth for estimate, truth in pairs])),
        "coverage": float(np.mean([covers(estimate, truth) for estimate, truth in bounded])),
    }


@dataclass(frozen=True, eq=False)
class World:
    """A game, credits that contend in it, and its population: coalitions with F, noise-free and as seeds show it."""

    index: int
    game: PairwiseGame
    credits: dict[str, FloatArray]
    crowd: BoolArray
    quiet: FloatArray
    loud: FloatArray


def world_of(n: int, index: int) -> World:
    generator = np.random.default_rng([n, index])
    game, best = pairwise_game(n, ADDITIVE, generator)
    credits = {"best": best, "good": blurred(best, 0.7, generator), "poor": blurred(best, 1.5, generator)}
    crowd = coalitions_of_half(n, CROWD, generator)
    quiet = game.values(crowd)
    loud = quiet + NOISE / GAME_SEEDS**0.5 * generator.standard_normal(CROWD)
    return World(index, game, credits, crowd, quiet, loud)


def truths_of(of: World, count: int) -> dict[str, list[tuple[Estimate, float]]]:
    """Estimates from truths of ``count`` coalitions, with the truth they are of."""
    generator = np.random.default_rng([of.game.n, count, of.index])
    score = {name: float(spearmanr(of.crowd @ each, of.loud).statistic) for name, each in of.credits.items()}
    quiet, loud = of.quiet, of.loud
    found, learned = [], []
    for _ in range(TRUTHS // GAMES):
        coalitions = coalitions_of_half(of.game.n, count, generator)
        noise = NOISE * generator.standard_normal((count, GAME_SEEDS))
        truth = Truth(0.5, coalitions, of.game.values(coalitions)[:, None] + noise)
        found.append(compare_lds([truth], [Contender(name, "", "", each) for name, each in of.credits.items()]))
        learned.append(learned_score(coalitions, truth.values.mean(axis=1), of.crowd, loud))
    scores = {name: [result.scores[place].spearman for result in found] for place, name in enumerate(of.credits)}
    ceilings = [result.ceilings[0] for result in found]
    best = {"Spearman": float(spearmanr(quiet, loud).statistic), "Pearson": float(pearsonr(quiet, loud).statistic)}
    parts = [result.scores[1].of_ceiling for result in found]
    additive = [each.spearman.additive for each in ceilings]
    return {
        **{f"LDS of {name}": [(each, score[name]) for each in scores[name]] for name in of.credits},
        "good less best": [(result.differences[0].spearman, score["good"] - score["best"]) for result in found],
        "poor less best": [(result.differences[1].spearman, score["poor"] - score["best"]) for result in found],
        "ceiling of F without noise, Spearman": [(known(each.spearman), best["Spearman"]) for each in ceilings],
        "ceiling of F without noise, Pearson": [(known(each.pearson), best["Pearson"]) for each in ceilings],
        "good as a part of that ceiling": [(part, score["good"] / best["Spearman"]) for part in parts if part],
        "additive ceiling, for a fit to as many coalitions": [(each, float(np.mean(learned))) for each in additive],
        "additive ceiling, for the best additive model": [(each, score["best"]) for each in additive],
    }


def known(ceiling: Ceiling) -> Estimate:
    assert ceiling.replicates is not None, "there are two seeds"
    return ceiling.replicates


def null() -> Rows:
    """The additive ceiling where F is noise alone, which it should say is 0."""
    rows: Rows = []
    for n, count in product(CONTRIBUTORS, COALITIONS):
        generator = np.random.default_rng([n, count])
        found = []
        for _ in range(TRUTHS):
            coalitions, values = coalitions_of_half(n, count, generator), generator.standard_normal(count)
            found.append(correlation(additive_predictions(coalitions, values), values, "spearman"))
        error = float(np.std(found) / len(found) ** 0.5)
        rows.append({"contributors": n, "coalitions": count, "mean": float(np.mean(found)), "standard error": error})
    return rows


def learned_score(coalitions: BoolArray, means: FloatArray, crowd: BoolArray, values: FloatArray) -> float:
    """The LDS over the ``crowd`` of an additive model fitted to ``coalitions``, as the additive ceiling fits it."""
    count = len(means)
    regression = regress(coalitions.astype(np.float64), np.ones((count, 1)), np.ones(count))
    slopes = regression.fit(restricted_likelihood(regression.spectrum, means).ridge).linear_map @ means
    return float(spearmanr(crowd @ slopes, values).statistic)


def blurred(credits: FloatArray, noise: float, generator: np.random.Generator) -> FloatArray:
    return credits + noise * credits.std() * generator.standard_normal(len(credits))


def covers(estimate: Estimate, truth: float) -> bool:
    return estimate.low <= truth <= estimate.high
