"""The contest that validation judges: which recipes take part, what is evaluated for it, and what came of that.

Every recipe is evaluated on the beginning of the study's own design, with its own endpoints; truth is apart. All of it
is in the study's ledger, and what is there is not evaluated again.
"""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from diffcredit.baselines.study import StudyBaseline, helpfulness, kept_baselines
from diffcredit.coalitions import decode, encode, make_design
from diffcredit.credit import KnownSurrogate, estimate
from diffcredit.credit.estimate import DEFAULT, method_of
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.execution import Task
from diffcredit.ledger import Evaluation, NoLedger, PropertyRecord
from diffcredit.ledger.purposes import TRUTH_REPLICATE, UNLEARNING_REPLICATE
from diffcredit.study.reserved import LEAST_TRUTH, truth_coalitions, truth_tasks
from diffcredit.study.schedule import studied
from diffcredit.study.sections import ValidationSection
from diffcredit.util.seeds import derive_seed
from diffcredit.validation.crediting import credits_of
from diffcredit.validation.records import Contender, RecipeGame, Truth
from diffcredit.validation.runtime import mean_of_known

if TYPE_CHECKING:
    from diffcredit.study.recipe import Recipe
    from diffcredit.study.study import Study

ESTIMATORS = {
    "shapley": "shapley",
    "kernelshap": "shapley",
    "unshrunk": "shapley",
    "banzhaf": "banzhaf",
    "datamodel": "datamodel",
}
"""What credits a game's design, and the kind of credits that it gives."""
STAGES = ("training", "sampling")
UNLEARNED = 10  # coalitions whose images are compared with those of retrained models


@dataclass(frozen=True, eq=False)
class Work:
    """Evaluations of one recipe that a part of the validation rests on: ``tasks``, and at most so many more that are
    ``unforeseen`` until another part is there. The part looks at the images of those that are ``seen``."""

    recipe: "Recipe"
    tasks: Sequence[Task]
    what: str
    unforeseen: int = 0
    seen: Sequence[Task] = ()

    def missing(self) -> list[Task]:
        """Those of the tasks that the ledger lacks."""
        done = self._done()
        return [task for task in self.tasks if task.key not in done]

    def unseen(self) -> list[Task]:
        """Those that are done, but whose images, which are to be looked at, are not there: they were not kept, or lie
        on a machine that is gone."""
        keeper = self.recipe.recorded_keeper() if self.seen else None
        if keeper is None:
            return []
        done = self._done()
        there = [task for task in self.seen if task.key in done]
        return [task for task in there if "images" not in keeper.kept(task)]

    def _done(self) -> set[tuple[str, int]]:
        return {each.key for each in self.recipe.evaluations(status="done")}


class Contest:
    """The study's own recipe, those that its file compares with it, and models retrained from scratch.

    ``baselines`` take part too; None: those that are kept in the study's folder. What came of it is told from the
    ledger alone: neither a model nor fitted properties need to be there.
    """

    def __init__(self, study: "Study", baselines: Sequence[StudyBaseline] | None = None) -> None:
        self.study, self.baselines = study, baselines
        self.settings = study.config.validation or ValidationSection()
        self.n = study.contributions.n
        asked = study.recipe_with(self.settings.truth, self.settings.evaluations)
        self.evaluations = len(list(asked.schedule().coalitions()))  # a finite design may have fewer
        self.scratch = study.recipe_with(self.settings.truth, self.evaluations)
        self.compared = [study.recipe_with(section, self.evaluations) for section in self.settings.retrainings]
        self.recipes = [study.recipe, *self.compared]
        if self.scratch.name not in [each.name for each in self.recipes]:
            self.recipes.append(self.scratch)
        for each in self.recipes:
            if each.name == self.scratch.name and each.section != self.settings.truth:
                raise UserError(
                    f"{study.file}: {each.name!r} is the name of the models that are retrained as truth, and of a "
                    "retraining with other settings; give that one a 'name' of its own, or set validation.steps to its "
                    "steps"
                )
        self._rehearsed: dict[str, tuple[int | None, int]] = {}
        self._drawn: dict[tuple[str, int], dict[tuple[str, int], int]] = {}
        self._warned: set[str] = set()  # of recipes whose evaluations are truth's

    @property
    def estimators(self) -> dict[str, str]:
        """What credits the study's design, with the kind of credits: what its own credits are by comes first."""
        own = method_of(self.study.config.design.distribution)
        # a design of one method's own coalitions has no other credits
        return {own: ESTIMATORS[own], **ESTIMATORS} if own in ESTIMATORS else {own: own}

    # What is evaluated.
    def truth(self) -> Work:
        """The reserved coalitions, retrained from scratch."""
        return Work(self.scratch, self._truth_tasks, "retraining from scratch: truth")

    @cached_property
    def _truth_tasks(self) -> list[Task]:
        return truth_tasks(self.study.config, self.n)

    def design(self, each: "Recipe") -> Work:
        """A recipe's endpoints, and the beginning of the design."""
        schedule = each.schedule()
        return Work(each, [*schedule.endpoints, *schedule.coalitions()], f"evaluating coalitions by {each.name}")

    def leave_one_out(self, each: "Recipe") -> Work:
        """Everybody but one, of each contributor in turn, beside the endpoints."""
        rows = ~np.eye(self.n, dtype=np.bool_)
        tasks = [Task(encode(row), TRUTH_REPLICATE, "validation") for row in rows]
        return Work(each, [*each.schedule().endpoints, *tasks], f"leaving one out by {each.name}")

    def unlearning(self, each: "Recipe") -> Work:
        """A few coalitions of the Shapley kernel, whose images are kept; retrained from scratch with two seeds."""
        seeds = 2 if each.name == self.scratch.name else 1
        keeping = self.study.recipe_with(each.section, self.evaluations, keep="images")
        rows = make_design("kernel", derive_seed(self.study.config.seed, "unlearning")).draw(self.n, 0, UNLEARNED)
        coalitions = dict.fromkeys(encode(row) for row in rows)
        tasks = [
            Task(coalition, UNLEARNING_REPLICATE + seed, "validation")
            for seed in range(seeds)
            for coalition in coalitions
        ]
        return Work(keeping, tasks, f"unlearning by {each.name}", seen=tasks)

    # What came of it.
    @cached_property
    def properties(self) -> dict[str, PropertyRecord]:
        """The study's properties in its ledger."""
        try:
            with self.study.ledger(create=False) as ledger:
                known = ledger.studies().get(self.study.name)
                records = ledger.properties(self.study.name) if known else []
        except NoLedger:
            known = None
        if known is None:
            raise UserError(f"{self.study.file}: nothing is evaluated yet; diffcredit run comes first")
        mine = list(self.study.contributions.contributors)
        if known["contributors"] != mine:
            raise UserError(
                f"{self.study.file}: contributions: the ledger's evaluations are of {len(known['contributors'])} "
                f"contributors, {_some(known['contributors'])}; the study file's are {len(mine)}, {_some(mine)}"
            )
        names = studied(self.study.config, records)
        return {record.name: record for record in records if record.name in names}

    def truths(self, prop: str) -> list[Truth]:
        """Of each share for which enough coalitions have been retrained: those that have all of their seeds, or else
        with fewer seeds."""
        values = self._values(self.scratch.evaluations(), prop, ("truth",))
        found = []
        for share in self.settings.shares:
            coalitions = [encode(row) for row in truth_coalitions(self.study.config, self.n, share)]
            for seeds in range(self.settings.seeds, 0, -1):
                keys = {each: [(each, TRUTH_REPLICATE + seed) for seed in range(seeds)] for each in coalitions}
                whole = [each for each in coalitions if all(key in values for key in keys[each])]
                if len(whole) >= min(LEAST_TRUTH, len(coalitions)) or seeds == 1:
                    break
            if len(whole) >= LEAST_TRUTH:
                rows = np.array([decode(each) for each in whole])
                found.append(Truth(share, rows, np.array([[values[key] for key in keys[each]] for each in whole])))
        return found

    def lacking_truth(self, prop: str) -> str:
        """Why a property has no truth, in words."""
        known, found = self.truth_values(prop), []
        for share in self.settings.shares:
            coalitions = [encode(row) for row in truth_coalitions(self.study.config, self.n, share)]
            found.append(f"{sum(each in known for each in coalitions)} of {len(coalitions)} at share {share:g}")
        return f"truth coalitions with a value: {', '.join(found)}; an interval needs at least {LEAST_TRUTH}"

    def game(self, each: "Recipe", prop: str) -> RecipeGame | None:
        """What a recipe's evaluations say of a property, those of truth's coalitions left out; None where there are
        none."""
        every, purposes = each.evaluations(), ("estimate", "endpoint")
        evaluations = {_key(one): one for one in every if one.status == "done" and one.purpose in purposes}
        values = self._values(every, prop, purposes)
        truth = {task.coalition for task in self._truth_tasks}  # a share of too few has none
        recorded = [key for key, one in evaluations.items() if one.purpose == "estimate" and key in values]
        kept = [key for key in recorded if key[0] not in truth]
        if len(kept) < len(recorded) and each.name not in self._warned:
            self._warned.add(each.name)
            warnings.warn(
                f"{each.name}: {len(recorded) - len(kept)} evaluations of coalitions that are truth's are left out "
                "of the credits that are validated",
                DiffcreditWarning,
                stacklevel=1,
            )
        # as many as were tried: one that failed has its place too
        place = self._places(each, len({_key(one) for one in every if one.purpose == "estimate"}))
        kept.sort(key=lambda key: (place.get(key, len(place)), key))
        endpoints = [key for key, one in evaluations.items() if one.purpose == "endpoint" and key in values]
        empty = [values[key] for key in sorted(endpoints) if "1" not in key[0]]
        full = [values[key] for key in sorted(endpoints) if "1" in key[0]]
        if not kept or not empty or not full:
            return None
        seconds = {stage: np.array([evaluations[key].seconds.get(stage, math.nan) for key in kept]) for stage in STAGES}
        return RecipeGame(
            recipe=each.name,
            method=self._method(each),
            steps=self._steps(each)[0],
            size_distribution=self.study.config.design.distribution,
            coalitions=np.array([decode(key[0]) for key in kept]),
            values=np.array([values[key] for key in kept]),
            empty=tuple(empty[:1]),  # an untrained network: known without noise
            full=tuple(full),
            training_seconds=seconds["training"],
            sampling_seconds=seconds["sampling"],
            preparation=self._preparation(each, mean_of_known(seconds["training"])),
        )

    def _places(self, each: "Recipe", count: int) -> dict[tuple[str, int], int]:
        """Where the first ``count`` tasks stand in a recipe's design, which takes long to draw."""
        if (each.name, count) not in self._drawn:
            drawn = islice(each.schedule().coalitions(), count)
            self._drawn[each.name, count] = {task.key: index for index, task in enumerate(drawn)}
        return self._drawn[each.name, count]

    def timings(self, each: "Recipe") -> RecipeGame | None:
        """All of a recipe's evaluations with their seconds, whatever they were for; None where there are none."""
        done = [one for one in each.evaluations(status="done") if "1" in one.coalition]
        if not done:
            return None
        seconds = {stage: np.array([one.seconds.get(stage, math.nan) for one in done]) for stage in STAGES}
        return RecipeGame(
            recipe=each.name,
            method=self._method(each),
            steps=self._steps(each)[0],
            size_distribution=self.study.config.design.distribution,
            coalitions=np.array([decode(one.coalition) for one in done]),
            values=np.full(len(done), math.nan),
            empty=(),
            full=(),
            training_seconds=seconds["training"],
            sampling_seconds=seconds["sampling"],
        )

    def truth_values(self, prop: str) -> dict[str, list[float]]:
        """The helpfulness of every coalition that was retrained from scratch as truth, a value a seed; of everybody
        also as an endpoint, with other seeds."""
        found: dict[str, list[float]] = {}
        for (coalition, _), value in sorted(
            self._values(self.scratch.evaluations(), prop, ("truth", "endpoint")).items()
        ):
            if "1" in coalition:
                found.setdefault(coalition, []).append(value)
        return found

    def games(self, prop: str) -> list[RecipeGame]:
        """Of every recipe that has one, the study's own first."""
        found = [self.game(each, prop) for each in self.recipes]
        return [game for game in found if game is not None]

    def contenders(self, prop: str) -> list[Contender]:
        """Everybody's credits for a property: the study's own first, then those of other estimators and recipes, and
        the baselines that were computed."""
        unit, found = self.unit(), []
        for each in self.recipes:
            game = self.game(each, prop)
            if game is not None:
                seconds = float(np.nansum(game.seconds)) + (0 if math.isnan(game.preparation) else game.preparation)
                for method, category in self.estimators.items():
                    with suppress(UserError):  # one that cannot be had from these evaluations
                        name, credits = f"{method}, {each.name}", credits_of(game, method)
                        found.append(Contender(name, category, each.name, credits, len(game.values), seconds / unit))
            if "leave-one-out" not in self.estimators:
                found += self._left_one_out(each, prop, unit)
        return [*self._corrected(prop), *found, *self._surrogates(prop), *self._baselines(prop, unit)]

    def unit(self) -> float:
        """The seconds of one retraining with its sampling; NaN where none was made yet, or none was timed."""
        return self.seconds(self.scratch)

    def seconds(self, each: "Recipe") -> float:
        """The mean seconds of a recipe's evaluations, whatever they were for; NaN where there are none, or none was
        timed."""
        seconds = [_seconds(one) for one in each.evaluations(status="done") if "1" in one.coalition]
        return float(np.mean(seconds)) if sum(seconds) > 0 else math.nan

    def standing_in(self, prop: str, game: RecipeGame | None = None) -> dict[str, KnownSurrogate]:
        """The surrogates of a property as helpfulness, with their values at the coalitions of ``game``; none where what
        they need is not measured."""
        surrogates = self.study.surrogates
        if not surrogates.names or not surrogates.ready():
            return {}
        coalitions = np.zeros((0, self.n), dtype=np.bool_) if game is None else game.coalitions
        higher = self.properties[prop].higher_is_better
        return {
            name: KnownSurrogate(
                helpfulness(np.asarray(each.values), higher),
                helpfulness(np.asarray(each.credits), higher),
                each.standard_error,
            )
            for name, each in zip(surrogates.standing_in(prop), surrogates.known(prop, coalitions), strict=True)
        }

    def price(self, game: RecipeGame, surrogates: Sequence[str]) -> float:
        """How many evaluations of ``game`` cost as much as what these surrogates fine-tune and sample together; where
        seconds are not known, an evaluation for each model that is fine-tuned."""
        work = self.study.surrogates.work(self.n, len(game.values), surrogates)
        training, sampling = mean_of_known(game.training_seconds), mean_of_known(game.sampling_seconds)
        if not training + sampling > 0:
            return float(work.fine_tunings)
        return (work.fine_tunings * training + work.samplings * sampling) / (training + sampling)

    def _corrected(self, prop: str) -> list[Contender]:
        """The credits of the study's surrogates, corrected by its evaluations; their cost is not known."""
        game = self.game(self.study.recipe, prop)
        known = {} if game is None else self.standing_in(prop, game)
        if game is None or not known:
            return []
        with suppress(UserError):  # where the evaluations are too few
            credits = estimate(
                game.coalitions,
                game.values,
                empty=game.empty,
                full=game.full,
                size_distribution=game.size_distribution,
                surrogate=list(known.values()),
            ).values
            name = f"shapley with {', '.join(known)}, {self.study.recipe.name}"
            return [Contender(name, DEFAULT, self.study.recipe.name, credits, len(game.values))]
        return []

    def _surrogates(self, prop: str) -> list[Contender]:
        """Each surrogate's own credits, which no evaluation corrects."""
        return [
            Contender(f"surrogate {name}", "surrogate", "", np.asarray(each.credits))
            for name, each in self.standing_in(prop).items()
        ]

    def _left_one_out(self, each: "Recipe", prop: str, unit: float) -> list[Contender]:
        work = self.leave_one_out(each)
        done = each.evaluations(status="done")
        values = self._values(done, prop, ("validation", "endpoint"))
        keys = [task.key for task in work.tasks]
        if not all(key in values for key in keys):
            return []
        left = [key for key, task in zip(keys, work.tasks, strict=True) if task.purpose == "validation"]
        credits = estimate(
            np.array([decode(coalition) for coalition, _ in left]),
            [values[key] for key in left],
            empty=values[keys[0]],
            full=[values[key] for key in keys if "0" not in key[0]],
            method="leave-one-out",
            size_distribution="leave-one-out",
        ).values
        seconds = sum(_seconds(one) for one in done if _key(one) in left)
        name = f"leave-one-out, {each.name}"
        return [Contender(name, "leave-one-out", each.name, credits, len(left), seconds / unit)]

    def _baselines(self, prop: str, unit: float) -> list[Contender]:
        higher = self.properties[prop].higher_is_better
        return [
            Contender(
                each.found.name,
                each.category,
                "",
                # what measures the property itself is turned round where lower is better
                helpfulness(each.found.credits, each.property is None or higher),
                cost=each.found.seconds / unit,
            )
            for each in (kept_baselines(self.study) if self.baselines is None else self.baselines)
            if each.property in (None, prop) and _distinguishes(each)
        ]

    def _values(
        self, evaluations: Iterable[Evaluation], prop: str, purposes: Iterable[str]
    ) -> dict[tuple[str, int], float]:
        """The helpfulness of ``evaluations`` that are done, by coalition and replicate."""
        sign = 1 if self.properties[prop].higher_is_better else -1
        return {
            _key(one): sign * value.value
            for one in evaluations
            if one.status == "done" and one.purpose in purposes
            for value in one.values
            if value.property == prop and value.value is not None
        }

    def _steps(self, each: "Recipe") -> tuple[int | None, int]:
        """The training steps of a coalition's model, and of what is prepared before the first."""
        if each.name not in self._rehearsed:  # pruning takes its time
            rehearsal = each.rehearse(self.study.prepared.start())
            self._rehearsed[each.name] = (
                rehearsal.coalition.steps if rehearsal.coalition else None,
                rehearsal.preparation.steps if rehearsal.preparation else 0,
            )
        return self._rehearsed[each.name]

    def _method(self, each: "Recipe") -> str:
        """What a recipe shares with those that differ from it in their steps alone: the method's name; where another
        recipe has that with other settings, the name of the first of them."""
        alike = [one for one in self.recipes if _but_steps(one) == _but_steps(each)] or [each]
        method = each.section.method
        named = [one for one in self.recipes if one.section.method == method] or [each]
        return method if named[0] in alike else alike[0].name

    def _preparation(self, each: "Recipe", training: float) -> float:
        """Seconds of preparation at the pace of the coalitions' ``training``."""
        steps, prepared = self._steps(each)
        return prepared * training / steps if steps else math.nan


def _but_steps(each: "Recipe") -> tuple[str, dict[str, Any]]:
    section = each.section
    return section.method, {key: value for key, value in section.options.items() if key != "steps"}


def _distinguishes(baseline: StudyBaseline) -> bool:
    """Whether it gives contributors different credits at all."""
    return bool(np.ptp(baseline.found.credits) > 0)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _key(evaluation: Evaluation) -> tuple[str, int]:
    return evaluation.coalition, evaluation.replicate


def _seconds(evaluation: Evaluation) -> float:
    seconds: Mapping[str, float] = evaluation.seconds
    return sum(seconds.get(stage, 0.0) for stage in STAGES)
