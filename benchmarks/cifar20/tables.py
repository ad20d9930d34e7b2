"""The page's own tables, each from the record alone."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, isfinite, log10

import numpy as np

from benchmarks.cifar20.record import PAPERS
from benchmarks.markdown import cell, mark, marked, scores_of, table
from diffcredit.coalitions import make_design
from diffcredit.errors import UserError
from diffcredit.report.records import CreditTable
from diffcredit.report.standings import standings
from diffcredit.validation.data import ValidationData
from diffcredit.validation.parts.lds import ADDITIVE, REPLICATES
from diffcredit.validation.presentation.sections import worded
from diffcredit.validation.statistics import LDSResult, compare_lds, linear_datamodeling_score
from diffcredit.validation.statistics.records import Contender, Truth, game_credits

KINDS = (
    "shapley",
    PAPERS,
    "banzhaf",
    "datamodel",
    "leave-one-out",
    "surrogate",
    "gradient",
    "influence",
    "similarity",
    "application",
    "control",
    "floor",
)
COUNTS = (50, 100, 200, 300, 400)
"""Evaluations, beside all."""
ESTIMATORS = {"shapley": "ours", "kernelshap": "the paper's estimator"}
THINNINGS = 20
SOME_COUNTS, DRAWS = (100, 300), 10
SOME = 3  # contributors at either end
STAGES = ("training", "sampling", "measuring")


def scores(results: Mapping[str, LDSResult], *, best: bool = False) -> list[str]:
    """A row a method, by kind and then by its mean LDS, or of each kind the ``best`` beside what others are compared
    with; a column a property whose values differ; above them the ceilings."""
    results = {
        title: each for title, each in results.items() if any(isfinite(score.spearman.value) for score in each.scores)
    }
    ceilings = [result.ceilings_at(result.middle).spearman for result in results.values()]
    rows = [
        [f"*{REPLICATES}*", "", *(cell(each and each.replicates) for each in ceilings)],
        [f"*{ADDITIVE}*", "", *(cell(each and each.additive) for each in ceilings)],
    ]
    own = next(iter(results.values())).against
    for name in _methods(list(results.values()), best=best):
        found = {title: scores_of(result, name) for title, result in results.items()}
        evaluations = next(score.contender.evaluations for some in found.values() for score in some)
        cells = [" ".join(marked(results[title], score) for score in some) or "–" for title, some in found.items()]
        if rows[-1][1:] == [str(evaluations or "–"), *cells] and name.endswith("(sum)"):
            continue  # where all have as many images, sums are means
        rows.append([f"**{name}**" if name == own else name, str(evaluations or "–"), *cells])
    return table(["method", "evaluations", *results], rows)


def _methods(results: Sequence[LDSResult], *, best: bool) -> list[str]:
    every = {score.contender.name: score.contender for result in results for score in result.scores}

    def mean(name: str) -> float:
        some = [score.spearman.value for result in results for score in scores_of(result, name)]
        return sum(some) / len(some) if some else -1.0

    def kind(name: str) -> int:
        category = every[name].category
        return KINDS.index(category) if category in KINDS else len(KINDS)

    order = sorted(every, key=lambda name: (kind(name), -mean(name)))
    if not best:
        return order
    first = {kind(name): name for name in reversed(order)}.values()
    return [name for name in order if name in (results[0].against, *first)]


def at_share(results: Mapping[str, LDSResult], share: float) -> dict[str, LDSResult]:
    """What they say of coalitions of this ``share`` alone."""
    return {
        title: replace(
            each,
            scores=each.at(share),
            ceilings=(each.ceilings_at(share),),
            differences=tuple(difference for difference in each.differences if difference.share == share),
        )
        for title, each in results.items()
    }


def by_count(contest: ValidationData, titles: Mapping[str, str]) -> list[str]:
    """A row an estimator and number of the study's first evaluations, a column a property of ``titles``, by its name:
    the LDS at the share nearest to ½; the paper's estimator is marked where it is significantly worse than ours."""
    columns: dict[str, dict[tuple[str, int], str]] = {}
    for prop, title in titles.items():
        game, truths = contest.game(contest.study.recipe, prop), contest.truths(prop)
        if game is None or not truths:
            continue
        every = len(game.values)
        contenders = {}
        for estimator, count in product(ESTIMATORS, (*(count for count in COUNTS if count < every), every)):
            with suppress(UserError):  # too few
                credits = game_credits(game, estimator, slice(count))
                contenders[estimator, count] = Contender(f"{estimator}, {count}", "", "", credits)
        truth = nearest_half(truths)
        columns[title] = {}
        for count in dict.fromkeys(count for _, count in contenders):  # the first is ours, and marks are against it
            some = {key: each for key, each in contenders.items() if key[1] == count}
            found = compare_lds([truth], list(some.values()))
            columns[title] |= {
                key: marked(found, score) for key, each in some.items() for score in scores_of(found, each.name)
            }
    keys = dict.fromkeys(key for column in columns.values() for key in column)
    rows = [
        [str(count), ESTIMATORS[estimator], *(column.get((estimator, count), "–") for column in columns.values())]
        for estimator, count in sorted(keys, key=lambda key: (key[1], list(ESTIMATORS).index(key[0])))
    ]
    return table(["evaluations", "credits by", *columns], rows)


def redrawn(contest: ValidationData, titles: Mapping[str, str]) -> list[str]:
    """The LDS of the study's own method from some of its evaluations, drawn at random: means and standard deviations
    over draws, which show how much depends on which were evaluated. Nothing where there are too few to draw from."""
    rows: dict[int, list[str]] = {}
    for prop in titles:
        game, truth = contest.game(contest.study.recipe, prop), nearest_half(contest.truths(prop))
        assert game is not None
        every, retrained = len(game.values), truth.values.mean(axis=1)
        for count in (count for count in SOME_COUNTS if count < every):
            scores = []
            for seed in range(DRAWS):
                places = np.random.default_rng(seed).permutation(every)[:count]
                own = replace(game, coalitions=game.coalitions[places], values=game.values[places])
                scores.append(linear_datamodeling_score(game_credits(own, "shapley"), truth.coalitions, retrained))
            rows.setdefault(count, []).append(_mean_and_deviation(scores))
    lines = [[str(count), *cells] for count, cells in rows.items()]
    return table(["evaluations", *titles.values()], lines) if lines else []


def as_many(contest: ValidationData, titles: Mapping[str, str]) -> list[str]:
    """A row another recipe: its LDS less that of the study's own recipe from as many evaluations, over the same
    coalitions; by the study's own method without surrogates."""
    rows: dict[str, list[str]] = {}
    for prop in titles:
        own, truth = contest.game(contest.study.recipe, prop), nearest_half(contest.truths(prop))
        assert own is not None
        for game in contest.games(prop)[1:]:
            count = min(len(game.values), len(own.values))
            pair = [
                Contender(each.recipe, "", each.recipe, game_credits(each, "shapley", slice(count)))
                for each in (own, game)
            ]
            (difference,) = compare_lds([truth], pair).differences
            beginning = [game.recipe, str(count)]
            rows.setdefault(game.recipe, beginning).append(cell(difference.spearman, "+.2f") + mark(difference))
    return table(["recipe", "evaluations of each", *titles.values()], [*rows.values()])


def _mean_and_deviation(scores: Sequence[float]) -> str:
    return f"{worded(float(np.mean(scores)), '.2f')} ± {worded(float(np.std(scores, ddof=1)), '.2f')}"


def thinned(contest: ValidationData, titles: Mapping[str, str]) -> list[str]:
    """The paper's estimator from evaluations of a uniform design that are thinned at random until their sizes are the
    Shapley kernel's, as the paper draws them, beside as many that are weighted: means and standard deviations of the
    LDS over thinnings."""
    rows: dict[str, list[str]] = {"thinned to the kernel's sizes": [], "as many as drawn, weighted": []}
    numbers = []
    for prop in titles:
        game, truths = contest.game(contest.study.recipe, prop), contest.truths(prop)
        assert game is not None
        truth = nearest_half(truths)
        wanted, retrained = make_design("kernel").size_probabilities(contest.n), truth.values.mean(axis=1)
        kept = (wanted / wanted.max())[game.coalitions.sum(axis=1) - 1]
        scores = []
        for seed in range(THINNINGS):
            random = np.random.default_rng(seed)
            some = np.flatnonzero(random.random(len(kept)) < kept)
            numbers.append(len(some))
            pair = []
            for design, places in (("kernel", some), ("uniform", random.permutation(len(kept))[: len(some)])):
                own = replace(
                    game, coalitions=game.coalitions[places], values=game.values[places], size_distribution=design
                )
                pair.append(linear_datamodeling_score(game_credits(own, "kernelshap"), truth.coalitions, retrained))
            scores.append(pair)
        for cells, some_scores in zip(rows.values(), zip(*scores, strict=True), strict=True):
            cells.append(_mean_and_deviation(some_scores))
    about = f"{round(np.mean(numbers))} evaluations"
    return table([about, *titles.values()], [[name, *cells] for name, cells in rows.items()])


def nearest_half(truths: Sequence[Truth]) -> Truth:
    return min(truths, key=lambda each: abs(each.share - 0.5))


def levelled(contest: ValidationData, titles: Mapping[str, str]) -> list[str]:
    """The LDS of the paper's estimator from all evaluations, with F(∅) as it was measured and with F(N) in its place.
    What one contributor is worth more than another does not depend on F(∅): it cancels in every difference."""
    rows: dict[str, list[str]] = {"F(∅) as measured": [], "F(N) in its place": []}
    for prop in titles:
        game, truths = contest.game(contest.study.recipe, prop), contest.truths(prop)
        assert game is not None
        truth = nearest_half(truths)
        for cells, empty in zip(rows.values(), (game.empty, game.full), strict=True):
            credits = game_credits(replace(game, empty=empty), "kernelshap")
            score = linear_datamodeling_score(credits, truth.coalitions, truth.values.mean(axis=1))
            cells.append(worded(score, ".2f"))
    return table(["", *titles.values()], [[name, *cells] for name, cells in rows.items()])


def of_sizes(contest: ValidationData, titles: Mapping[str, str]) -> list[str]:
    """The LDS of a datamodel from the study's evaluations of coalitions of all sizes, and of those near to half of the
    contributors alone, which are all that the LDS asks for."""
    n, rows = contest.n, []
    drawn = [
        task.coalition.count("1") for task in contest.design(contest.study.recipe).tasks if task.purpose == "estimate"
    ]
    for most in (n // 2, n // 5, n // 10):
        if sum(abs(size - n / 2) <= most for size in drawn) < 2 * n:  # too few to learn from
            continue
        cells, count = [], 0
        for prop in titles:
            game, truths = contest.game(contest.study.recipe, prop), contest.truths(prop)
            assert game is not None
            near = np.abs(game.coalitions.sum(axis=1) - n / 2) <= most
            some = {
                name: getattr(game, name)[near]
                for name in ("coalitions", "values", "training_seconds", "sampling_seconds")
            }
            truth, count = nearest_half(truths), int(near.sum())
            credits = game_credits(replace(game, **some), "datamodel")
            score = linear_datamodeling_score(credits, truth.coalitions, truth.values.mean(axis=1))
            cells.append(worded(score, ".2f"))
        rows.append([f"{max(1, n // 2 - most)} to {min(n - 1, n // 2 + most)}", f"{count}", *cells])
    return table(["labelers in a coalition", "evaluations", *titles.values()], rows)


def labelers(tables: Sequence[CreditTable], called: Mapping[str, str]) -> list[str]:
    """A row a contributor, in the order of what they are ``called``; a column a property: the rank, 1 helps most, and
    the credit with its interval; the three that help most are bold, the three that help least in italics."""
    tables = [each for each in tables if len(set(each.credit)) > 1]
    columns = [_credited(each) for each in tables]
    known = tables[0].contributors if tables else ()
    order = [name for name in called if name in known] + [name for name in known if name not in called]
    rows = [[called.get(name, name), *(column[name] for column in columns)] for name in order]
    return table(["labeler of", *(each.title for each in tables)], rows)


def _credited(credits: CreditTable) -> dict[str, str]:
    """Of each contributor."""
    places = standings(credits)
    narrowest = min(each.high - each.low for each in places)
    form, last = f".{max(0, 2 - ceil(log10(narrowest)))}f", len(places) - SOME
    found = {}
    for each in places:
        credit, low, high = (worded(value, form) for value in (each.credit, each.low, each.high))
        mark = "**" if each.rank <= SOME else "*" if each.rank > last else ""
        found[each.contributor] = f"{mark}{each.rank}{mark}: {credit} ({low} to {high})"
    return found


@dataclass(frozen=True)
class Spent:
    """Seconds of each stage for ``models`` of one recipe, made for one purpose."""

    recipe: str
    purpose: str
    models: int
    seconds: tuple[float, ...]

    @property
    def own(self) -> float:
        """During which a model has the GPU for itself or with its fleet: it is measured beside the next one's."""
        return sum(self.seconds[:2])


def spent(contest: ValidationData) -> list[Spent]:
    """By recipe and purpose, what cost most first; what is prepared once is not in the ledger."""
    found = []
    with contest.study.ledger(create=False) as ledger:
        for recipe in ledger.recipes(contest.study.name):
            done = ledger.evaluations(contest.study.name, recipe.name, status="done")
            for purpose in sorted({each.purpose for each in done}):
                some = [each.seconds for each in done if each.purpose == purpose]
                seconds = tuple(sum(each.get(stage, 0.0) for each in some) for stage in STAGES)
                found.append(Spent(recipe.name, purpose, len(some), seconds))
    return sorted(found, key=lambda each: -each.own)


def spending(found: Sequence[Spent]) -> list[str]:
    rows = [
        [each.recipe, each.purpose, f"{each.models:,}", *map(_seconds, each.seconds), f"{each.own / each.models:.2f} s"]
        for each in found
    ]
    sums = [sum(stage) for stage in zip(*(each.seconds for each in found), strict=True)]
    rows.append(["**all**", "", f"{sum(each.models for each in found):,}", *map(_seconds, sums), ""])
    return table(["retraining", "for", "models", *STAGES, "training and sampling of a model"], rows)


def _seconds(value: float) -> str:
    return f"{value:,.0f} s"
