"""What the runs show: the validation's results, from the ledgers, and from the section that unlearning left."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from benchmarks.evidence.runs import SCRATCH, UNLEARNING
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.data import ValidationData
from diffcredit.validation.presentation.sections import Section
from diffcredit.validation.presentation.writing import read_section
from diffcredit.validation.statistics import LDSResult, compare_lds, lds
from diffcredit.validation.statistics.budget import BudgetResult, lds_by_cost
from diffcredit.validation.statistics.convergence import convergence_curves
from diffcredit.validation.statistics.counterfactual import CounterfactualResult, compare_removals, pooled_noise
from diffcredit.validation.statistics.fidelity import FidelityResult, compare_with_retraining
from diffcredit.validation.statistics.records import RecipeGame, Truth, game_credits
from diffcredit.validation.statistics.runtime import RuntimeResult, compare_runtimes, mean_of_known

FIRST = "shapley, sparsified"
"""The study's own credits."""
LEFT_OUT = "leave-one-out, sparsified"
RIVALS = (FIRST, "application_scores (max)", "training_property", "pixel_similarity (max)")
"""Whose top contributors were left out of models in the second run."""
RANDOM_RANKINGS = 3
REMOVED = "colourfulness"
"""The property whose credits said whom to leave out."""


@dataclass(frozen=True)
class Spread:
    """How far apart coalitions of half of the contributors are: standard deviations over coalitions of retrained
    models (mean of two seeds), of one seed's noise, and over coalitions of 5 to 7 of the study's recipe; the ``levels``
    of retrained models and of the recipe, as means of F; how far credits from either half of its evaluations agree
    (Spearman); and the LDS of credits from each third of them."""

    retrained: float
    seed: float
    recipe: float
    levels: tuple[float, float]
    halves: float
    thirds: tuple[float, ...]


@dataclass(frozen=True)
class Artefact:
    """``kernelshap`` on the study's evaluations, and on a game with the same F(∅) and F(N) and one value for all other
    coalitions: Spearman's correlation of the two sets of credits."""

    agreement: float


@dataclass(frozen=True)
class Repeated:
    """The study's recipe in the first run and in another: Pearson's correlation of its values, Spearman's of its
    credits."""

    values: float
    credits: float


@dataclass(frozen=True)
class Unlearned:
    """The third run's section, and how many contributors each of its coalitions has, in ascending order."""

    section: Section
    sizes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Findings:
    """Results by run and property; ``counterfactual`` of the second run, ``budgets`` and ``runtime`` of the first.
    ``of_several`` is fidelity without the coalitions of one contributor (second run)."""

    scores: Mapping[tuple[int, str], LDSResult]
    fidelities: Mapping[tuple[int, str], FidelityResult]
    of_several: Mapping[str, FidelityResult]
    spreads: Mapping[str, Spread]
    repeated: Mapping[tuple[int, str], Repeated]
    artefacts: Mapping[str, Artefact]
    counterfactual: CounterfactualResult
    budgets: Mapping[str, BudgetResult]
    runtime: RuntimeResult
    unlearned: Unlearned


def findings(contests: Sequence[ValidationData]) -> Findings:
    first, second, third = contests
    names = list(first.properties)
    games = {(run, name): each.games(name) for run, each in enumerate((first, second), 1) for name in names}
    truths = {(run, name): each.truths(name) for run, each in enumerate((first, second), 1) for name in names}
    known = [key for key, truth in truths.items() if truth]
    scores = {key: compare_lds(truths[key], contests[key[0] - 1].contenders(key[1])) for key in known}
    timings = [game for each in first.recipes if (game := first.timings(each)) is not None]
    scratch = _named(timings, first.scratch.name)
    rivals = {each.name: each for each in second.contenders(REMOVED)}
    removed = second.truth_values(REMOVED)
    retrained = {name: _named(games[2, name], second.scratch.name) for name in names}
    return Findings(
        scores=scores,
        fidelities={
            key: compare_with_retraining(some, _named(some, first.scratch.name))
            for key, some in games.items()
            if first.scratch.name in [game.recipe for game in some]
        },
        of_several={
            name: compare_with_retraining(list(map(_of_several, games[2, name])), _of_several(retrained[name]))
            for name in names
        },
        spreads={name: _spread(games[1, name], truths[1, name][0]) for name in names},
        repeated={
            (run, name): _repeated(_own(games[1, name]), _own(each.games(name)))
            for run, each in ((2, second), (3, third))
            for name in names
        },
        artefacts={name: _artefact(_own(games[1, name])) for name in names},
        counterfactual=compare_removals(
            [rivals[name] for name in RIVALS],
            removed,
            higher_is_better=True,
            draws=RANDOM_RANKINGS,
            seed=second.study.config.seed,
        ),
        budgets={name: _budget(first, games[1, name], truths[1, name]) for name in names},
        runtime=compare_runtimes(timings, scratch),
        unlearned=Unlearned(read_section(UNLEARNING), _sizes(third)),
    )


def _sizes(contest: ValidationData) -> tuple[int, ...]:
    """Of the coalitions that were retrained for unlearning."""
    with contest.study.ledger(create=False) as ledger:
        found = ledger.evaluations(contest.study.name, SCRATCH, status="done", purpose="validation")
    return tuple(sorted(coalition.count("1") for coalition in {each.coalition for each in found}))


def _named(games: Sequence[RecipeGame], recipe: str) -> RecipeGame:
    return next(game for game in games if game.recipe == recipe)


def _of_several(game: RecipeGame) -> RecipeGame:
    """Without the coalitions of one contributor."""
    kept = game.coalitions.sum(axis=1) > 1
    names = ("coalitions", "values", "training_seconds", "sampling_seconds")
    return dataclasses.replace(game, **{name: getattr(game, name)[kept] for name in names})


def _own(games: Sequence[RecipeGame]) -> RecipeGame:
    """The study's recipe comes first."""
    return games[0]


def _spread(games: Sequence[RecipeGame], truth: Truth) -> Spread:
    own, half = _own(games), truth.coalitions.shape[1] // 2
    near = np.abs(own.coalitions.sum(axis=1) - half) <= 1
    halves = [game_credits(own, "shapley", rows) for rows in _stretches(own, 2)]
    return Spread(
        retrained=float(truth.values.mean(axis=1).std(ddof=1)),
        seed=pooled_noise(list(truth.values)).variance ** 0.5,
        recipe=float(own.values[near].std(ddof=1)),
        levels=(float(truth.values.mean()), float(own.values[near].mean())),
        halves=float(spearmanr(*halves).statistic),
        thirds=tuple(
            lds(game_credits(own, "shapley", rows), truth.coalitions, truth.values).value for rows in _stretches(own, 3)
        ),
    )


def _stretches(game: RecipeGame, count: int) -> list[slice]:
    """Disjoint, of equal length."""
    length = len(game.values) // count
    return [slice(start, start + length) for start in range(0, count * length, length)]


def _artefact(game: RecipeGame) -> Artefact:
    flat = dataclasses.replace(game, values=np.full_like(game.values, game.values.mean()))
    both = [game_credits(each, "kernelshap") for each in (game, flat)]
    return Artefact(float(spearmanr(*both).statistic))


def _repeated(one: RecipeGame, other: RecipeGame) -> Repeated:
    values: FloatArray = np.corrcoef(one.values, other.values)
    credits = [game_credits(each, "shapley") for each in (one, other)]
    return Repeated(float(values[0, 1]), float(spearmanr(*credits).statistic))


def _budget(contest: ValidationData, games: Sequence[RecipeGame], truths: Sequence[Truth]) -> BudgetResult:
    scores = convergence_curves(games, truths, estimators=("shapley",))
    seconds = {game.recipe: mean_of_known(game.seconds) for game in games}
    return lds_by_cost(scores, games, truths, seconds, contest.seconds(contest.scratch))
