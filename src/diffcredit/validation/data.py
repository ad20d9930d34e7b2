"""A study's ledger as the records that validation works with.

    from diffcredit import Study
    from diffcredit.validation.data import ValidationData

    data = ValidationData(Study.load("study.yaml"))
    data.truths("fid")      # models retrained from scratch on held-out coalitions, by share
    data.games("fid")       # every recipe's evaluations
    data.contenders("fid")  # everybody's credits: estimators, recipes, surrogates, baselines

Every recipe is evaluated on the first coalitions of the study's own design, with endpoints of its own; truth has other
coalitions. The study's ledger holds all of it, and nothing in it is evaluated again. Reading needs neither models nor
fitted properties.
"""

import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from diffcredit.baselines.study import StudyBaseline
from diffcredit.coalitions import decode, encode
from diffcredit.credit.estimate import method_of
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.execution import Task
from diffcredit.ledger import Evaluation, NoLedger, PropertyRecord
from diffcredit.ledger.purposes import TRUTH_REPLICATE
from diffcredit.properties import Images
from diffcredit.study.prepared import build_properties
from diffcredit.study.recipe import Recipe
from diffcredit.study.reserved import LEAST_TRUTH, truth_tasks
from diffcredit.study.schedule import studied
from diffcredit.study.sections import ValidationSection
from diffcredit.study.study import Study
from diffcredit.validation.contenders import collect_contenders
from diffcredit.validation.statistics.records import Contender, RecipeGame, Truth
from diffcredit.validation.statistics.runtime import mean_of_known
from diffcredit.validation.verdicts import truths_of

ESTIMATORS = {
    "shapley": "shapley",
    "kernelshap": "shapley",
    "unshrunk": "shapley",
    "banzhaf": "banzhaf",
    "datamodel": "datamodel",
}
"""The estimators that any design has credits by, with the category of those credits."""
STAGES = ("training", "sampling")  # what the time of an evaluation is compared by

Remembered = TypeVar("Remembered")


@dataclass(frozen=True, eq=False)
class PartWork:
    """The evaluations of one recipe that a part needs; ``what`` names them to people. ``undecided``: at most how many
    more it will need once another part has been computed. The part shows images of the tasks ``pictured``."""

    recipe: Recipe
    tasks: Sequence[Task]
    what: str
    undecided: int = 0
    pictured: Sequence[Task] = ()

    def missing(self) -> list[Task]:
        """Return the tasks that are not in the ledger."""
        done = self._done()
        return [task for task in self.tasks if task.key not in done]

    def without_images(self) -> list[Task]:
        """Return the pictured tasks that are done but have no images here: these were not kept, or are lost."""
        keeper = self.recipe.recorded_keeper() if self.pictured else None
        if keeper is None:
            return []
        done = self._done()
        return [task for task in self.pictured if task.key in done and "images" not in keeper.kept(task)]

    def _done(self) -> set[tuple[str, int]]:
        return {each.key for each in self.recipe.evaluations(status="done")}


def keeping_images(recipe: Recipe, evaluations: int) -> Recipe:
    """Return the same recipe, with images kept of its evaluations."""
    return recipe.study.recipe_with(recipe.section, evaluations, keep="images")


def kept_images(recipe: Recipe, task: Task) -> Images | None:
    """Return the images that were kept of one evaluation; None where there are none."""
    keeper, prepared = recipe.recorded_keeper(), recipe.study.prepared
    found = None if keeper is None else keeper.find(task, prepared.extractors, prepared.load)
    return None if found is None else found.images


class ValidationData:
    """The evaluations of the recipes that a validation compares: the study's own, those that its file compares with it
    (``compared``), and retraining from scratch (``scratch``). ``properties`` are the names to validate; none: all that
    are measured. ``baselines`` are compared too; None: those cached in the study's folder. ``planned``: a study
    that has not been run yet is accepted."""

    def __init__(
        self,
        study: Study,
        properties: Sequence[str] = (),
        baselines: Sequence[StudyBaseline] | None = None,
        *,
        planned: bool = False,
    ) -> None:
        self.study, self.baselines, self._planned = study, baselines, planned
        self.chosen = list(dict.fromkeys(properties))
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
        self._truth_tasks = truth_tasks(study.config, self.n)
        self._remembered: dict[Hashable, Any] = {}
        self._warned: set[str] = set()  # recipes that evaluated truth's coalitions

    @property
    def estimators(self) -> dict[str, str]:
        """The estimators that suit the study's design, with the category of their credits; the study's own first."""
        own = method_of(self.study.config.design.distribution)
        # a design of one method's own coalitions has no other credits
        return {own: ESTIMATORS[own], **ESTIMATORS} if own in ESTIMATORS else {own: own}

    def truth(self) -> PartWork:
        """The reserved coalitions, retrained from scratch; there are none of a share with too few."""
        return PartWork(self.scratch, self._truth_tasks, "retraining from scratch: truth")

    def needed_truth(self) -> PartWork:
        """The same for a part that is nothing without them: UserError where there are none."""
        if not self._truth_tasks:
            raise UserError(f"no share has the {LEAST_TRUTH} coalitions that an interval needs")
        return self.truth()

    def design(self, recipe: Recipe) -> PartWork:
        """A recipe's endpoints, and the first coalitions of the study's design."""
        schedule = recipe.schedule()
        tasks = [*schedule.endpoints, *schedule.coalitions()]
        return PartWork(recipe, tasks, f"evaluating coalitions by {recipe.name}")

    def leave_one_out(self, recipe: Recipe) -> PartWork:
        """A recipe's endpoints, and all contributors but one, for each contributor in turn."""
        rows = ~np.eye(self.n, dtype=np.bool_)
        tasks = [Task(encode(row), TRUTH_REPLICATE, "validation") for row in rows]
        endpoints = [task for task in recipe.schedule().endpoints if task.purpose == "endpoint"]
        return PartWork(recipe, [*endpoints, *tasks], f"leaving one out by {recipe.name}")

    @property
    def begun(self) -> bool:
        """Whether the study's own design has evaluations."""
        return any(each.purpose != "pilot" for each in self.study.evaluations())

    @cached_property
    def properties(self) -> dict[str, PropertyRecord]:
        """The study's properties in its ledger; those of its file where the study is only planned."""
        if self._planned and not self.begun:
            props = build_properties(self.study.config, self.study.file)
            return {prop.name: PropertyRecord(prop.name, {}, prop.higher_is_better) for prop in props}
        try:
            with self.study.ledger(create=False) as ledger:
                known = ledger.settings(self.study.name) if self.study.name in ledger.studies() else None
                records = self.study.measured(ledger) if known else []
        except NoLedger:
            known = None
        if known is None:
            raise UserError(f"{self.study.file}: nothing is evaluated yet; diffcredit run comes first")
        theirs, mine = known["contributors"], list(self.study.contributions.contributors)
        if theirs != mine:
            raise UserError(
                f"{self.study.file}: contributions: the ledger's evaluations are of {len(theirs)} contributors, "
                f"{_some(theirs)}; the study file's are {len(mine)}, {_some(mine)}"
            )
        names = studied(self.study.config, records)
        return {record.name: record for record in records if record.name in names}

    @cached_property
    def names(self) -> list[str]:
        """The properties to validate."""
        for name in self.chosen:
            if name not in self.properties:
                raise UserError(f"{self.study.file}: --property {name!r}: accepted: {', '.join(self.properties)}")
        if not self.properties:
            raise UserError(f"{self.study.file}: properties: none of them is measured yet; diffcredit run comes first")
        return self.chosen or list(self.properties)

    def title(self, name: str) -> str:
        """Return a property's title in tables: its own, or its name where another has the same title."""
        own = self._titles[name]
        return own if list(self._titles.values()).count(own) == 1 else name

    @cached_property
    def _titles(self) -> dict[str, str]:
        # properties that are not fitted are enough, and fitting may need a model
        return {
            prop.name: getattr(prop, "title", prop.name)
            for prop in build_properties(self.study.config, self.study.file)
        }

    def fitted_property(self, name: str) -> Any:
        return next(prop for prop in self.study.prepared.properties if prop.name == name)

    def by_title(self, result: Callable[[str], Remembered]) -> dict[str, Remembered]:
        """Return each property's ``result`` (a function of its name), by title. A property whose result raises
        UserError is left out with a warning; if all do, UserError is raised."""
        found: dict[str, Remembered] = {}
        reasons = {}
        for name in self.names:
            try:
                found[self.title(name)] = result(name)
            except UserError as error:
                reasons[name] = str(error)
        if not found:
            raise UserError("; ".join(dict.fromkeys(reasons.values())))
        for name, reason in reasons.items():
            warnings.warn(f"{name}: {reason}", DiffcreditWarning, stacklevel=2)
        return found

    def remember(self, key: Hashable, make: Callable[[], Remembered]) -> Remembered:
        """Return what ``make`` returns, remembered until more evaluations are recorded."""
        known = key, sum(len(each.evaluations()) for each in self.recipes)
        if known not in self._remembered:
            self._remembered[known] = make()
        return self._remembered[known]

    def truths(self, prop: str) -> list[Truth]:
        """Return the truth of each share that has enough coalitions."""
        return truths_of(self.study.config, self.n, self.values(self.scratch.evaluations(), prop, ("truth",)))

    def truth_values(self, prop: str) -> dict[str, list[float]]:
        """Return the helpfulness of each coalition retrained as truth, or of all contributors, one value a seed."""
        found: dict[str, list[float]] = {}
        values = self.values(self.scratch.evaluations(), prop, ("truth", "endpoint"))
        for (coalition, _), value in sorted(values.items()):
            if "1" in coalition:
                found.setdefault(coalition, []).append(value)
        return found

    def game(self, recipe: Recipe, prop: str) -> RecipeGame | None:
        """Return a recipe's evaluations of a property, without those of truth's coalitions; None if there are none."""
        every, purposes = recipe.evaluations(), ("estimate", "endpoint")
        evaluations = {one.key: one for one in every if one.status == "done" and one.purpose in purposes}
        values = self.values(every, prop, purposes)
        recorded = [key for key, one in evaluations.items() if one.purpose == "estimate" and key in values]
        kept = self._without_truth(recipe, recorded)
        # drawn as far as tasks were tried: one that failed has its place in the design too
        place = self._places(recipe, len({one.key for one in every if one.purpose == "estimate"}))
        kept.sort(key=lambda key: (place.get(key, len(place)), key))
        endpoints = [key for key, one in evaluations.items() if one.purpose == "endpoint" and key in values]
        empty = [values[key] for key in sorted(endpoints) if "1" not in key[0]]
        full = [values[key] for key in sorted(endpoints) if "1" in key[0]]
        if not kept or not empty or not full:
            return None
        return replace(
            self._timed(recipe, [evaluations[key] for key in kept]),
            values=np.array([values[key] for key in kept]),
            empty=tuple(empty if self.study.config.has_house else empty[:1]),  # an untrained network has no noise
            full=tuple(full),
        )

    def _without_truth(self, recipe: Recipe, recorded: list[tuple[str, int]]) -> list[tuple[str, int]]:
        truth = {task.coalition for task in self._truth_tasks}  # a share of too few has none
        kept = [key for key in recorded if key[0] not in truth]
        if len(kept) < len(recorded) and recipe.name not in self._warned:
            self._warned.add(recipe.name)
            warnings.warn(
                f"{recipe.name}: {len(recorded) - len(kept)} evaluations of coalitions that are truth's are left out "
                "of the credits that are validated",
                DiffcreditWarning,
                stacklevel=1,
            )
        return kept

    def games(self, prop: str) -> list[RecipeGame]:
        """Return the game of every recipe that has one, the study's own first."""
        found = [self.game(each, prop) for each in self.recipes]
        return [game for game in found if game is not None]

    def contenders(self, prop: str) -> list[Contender]:
        """Return everybody's credits for a property, the study's own first."""
        return collect_contenders(self, prop)

    def timings(self, recipe: Recipe) -> RecipeGame | None:
        """Return all of a recipe's evaluations with their seconds, for any purpose; None where there are none."""
        done = [one for one in recipe.evaluations(status="done") if "1" in one.coalition]
        return self._timed(recipe, done) if done else None

    def _timed(self, recipe: Recipe, evaluations: Sequence[Evaluation]) -> RecipeGame:
        training, sampling = (np.array([one.seconds.get(stage, math.nan) for one in evaluations]) for stage in STAGES)
        steps, prepared = self._steps(recipe)
        return RecipeGame(
            recipe=recipe.name,
            method=_method(recipe, self.recipes),
            steps=steps,
            size_distribution=self.study.config.design.distribution,
            coalitions=np.array([decode(one.coalition) for one in evaluations]),
            values=np.full(len(evaluations), math.nan),
            empty=(),
            full=(),
            training_seconds=training,
            sampling_seconds=sampling,
            # the preparation's steps at the pace of the coalitions' training
            preparation=prepared * mean_of_known(training) / steps if steps else math.nan,
        )

    def seconds(self, recipe: Recipe) -> float:
        """Return the mean seconds of a recipe's training and sampling, for any purpose; NaN where none was timed."""
        done = [one for one in recipe.evaluations(status="done") if "1" in one.coalition]
        seconds = [sum(one.seconds.get(stage, 0.0) for stage in STAGES) for one in done]
        return float(np.mean(seconds)) if sum(seconds) > 0 else math.nan

    def values(
        self, evaluations: Iterable[Evaluation], prop: str, purposes: Iterable[str]
    ) -> dict[tuple[str, int], float]:
        """Return the helpfulness of ``evaluations`` that are done, by coalition and replicate."""
        sign = 1 if self.properties[prop].higher_is_better else -1
        return {
            one.key: sign * one.measured[prop]
            for one in evaluations
            if one.status == "done" and one.purpose in purposes and prop in one.measured
        }

    def _places(self, recipe: Recipe, count: int) -> dict[tuple[str, int], int]:
        """Return the places of the first ``count`` tasks in a recipe's design; remembered, since drawing takes long."""
        key = "places", recipe.name, count
        if key not in self._remembered:
            drawn = islice(recipe.schedule().coalitions(), count)
            self._remembered[key] = {task.key: index for index, task in enumerate(drawn)}
        return self._remembered[key]

    def _steps(self, recipe: Recipe) -> tuple[int | None, int]:
        """Return the training steps of a coalition's model, and of the preparation before the first."""
        key = "steps", recipe.name
        if key not in self._remembered:  # a rehearsal prunes, which takes a while
            found = recipe.rehearse(recipe.study.prepared.start())
            preparation = found.preparation.steps if found.preparation else 0
            self._remembered[key] = found.coalition.steps if found.coalition else None, preparation
        return self._remembered[key]


def _method(recipe: Recipe, recipes: Sequence[Recipe]) -> str:
    """Return the name that recipes share which differ only in their steps: the method's, or the first recipe's name
    where another recipe has the method with other settings."""

    def but_steps(one: Recipe) -> dict[str, Any]:
        return {key: value for key, value in one.section.options.items() if key != "steps"}

    named = [one for one in recipes if one.section.method == recipe.section.method]
    alike = [one for one in named if but_steps(one) == but_steps(recipe)]
    return recipe.section.method if named[0] is alike[0] else alike[0].name


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
