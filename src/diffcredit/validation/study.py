"""The evidence for a study's credits, part by part: what it rests on, what it shows, and where that is kept."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffcredit.baselines.application import ApplicationScores
from diffcredit.baselines.clusters import ClusterDistance
from diffcredit.baselines.study import build_baselines, helpfulness, kept_baselines, run_baselines, study_evidence
from diffcredit.coalitions import encode
from diffcredit.errors import DiffcreditWarning, UserError, located
from diffcredit.execution import Task
from diffcredit.features import FeaturesOption
from diffcredit.features.base import option_name
from diffcredit.properties import Images
from diffcredit.properties.base import has_value_of_each, needs_features
from diffcredit.study.prepared import build_properties
from diffcredit.study.reserved import truth_task
from diffcredit.util.arrays import BoolArray
from diffcredit.validation.budget import budget, budget_section
from diffcredit.validation.contest import Contest, Work
from diffcredit.validation.contributors import contributors, contributors_section, strips
from diffcredit.validation.convergence import convergence, convergence_section
from diffcredit.validation.counterfactual import (
    ACTIONS,
    Action,
    best_of_categories,
    counterfactual,
    counterfactual_coalitions,
    counterfactual_section,
    removals,
)
from diffcredit.validation.fidelity import fidelity, fidelity_section
from diffcredit.validation.lds import LDS, lds, lds_section
from diffcredit.validation.photographs import above_and_below, same_noises
from diffcredit.validation.records import Contender, Estimate
from diffcredit.validation.runtime import runtime, runtime_section
from diffcredit.validation.sections import Photograph, Section
from diffcredit.validation.surrogacy import surrogacy, surrogacy_section
from diffcredit.validation.unlearning import UnlearningRecipe, unlearning, unlearning_section
from diffcredit.validation.writing import SECTION, read_section, write_section

if TYPE_CHECKING:
    from diffcredit.study.recipe import Recipe
    from diffcredit.study.study import Study

RANDOM_RANKINGS = 3
SHOWN = Action(40, leave=True)  # of which every method's images are shown: the most that leave
# kinds of credits of which none is the study's own credits' rival: of the same evaluations, and floors
NO_RIVALS = ("shapley", "banzhaf", "datamodel", "floor")


@dataclass(frozen=True)
class Part:
    """One kind of evidence: the evaluations it rests on, and its section."""

    work: "Callable[[Validation], Sequence[Work]]"
    section: "Callable[[Validation], Section]"


class Validation:
    """A study's evidence for the properties called so, or for all."""

    def __init__(self, study: "Study", properties: Sequence[str] = ()) -> None:
        self.study, self.contest = study, Contest(study)
        known = self.contest.properties
        for name in properties:
            if name not in known:
                raise UserError(f"{study.file}: --property {name!r}: accepted: {', '.join(known)}")
        if not known:
            raise UserError(f"{study.file}: properties: none of them is measured yet; diffcredit run comes first")
        self.names = list(dict.fromkeys(properties)) or list(known)
        self.some_asked = bool(properties)
        with study.ledger(create=False) as ledger, located(study.file):
            for each in self.contest.recipes:  # what is evaluated already is not looked at again
                ledger.check_recipe_settings(study.name, each.name, each.settings)

    def folder(self, part: str) -> Path:
        return self.study.folder / "validation" / part

    def title(self, name: str) -> str:
        """What the property is called in tables: its own title, or its name where that is not the only one."""
        mine = self._titles[name]
        return mine if list(self._titles.values()).count(mine) == 1 else name

    @cached_property
    def _titles(self) -> dict[str, str]:
        """By name; told by properties that are not fitted, for fitting them may take a model."""
        return {prop.name: prop.title or prop.name for prop in build_properties(self.study.config, self.study.file)}

    def property(self, name: str) -> Any:
        return next(prop for prop in self.study.prepared.properties if prop.name == name)

    def work(self, part: str) -> list[Work]:
        """What is evaluated for a part."""
        return list(PARTS[part].work(self))

    def foreseen(self, part: str, parts: Sequence[str]) -> list[Work]:
        """What will be evaluated for a part, as far as that is known before any of ``parts`` is there."""
        if part != "counterfactual" or "lds" not in parts:
            return self.work(part)
        settled = kept_baselines(self.study) and not any(work.missing() for work in self.lds_work())
        return self.work(part) if settled else [self._counterfactual_at_most()]

    def section(self, part: str) -> Section:
        """A part from what the ledger has, kept in the study's folder."""
        try:
            section = PARTS[part].section(self)
        except UserError as error:
            raise UserError(f"{self.study.file}: {part}: {str(error).removeprefix(f'{part}: ')}") from error
        write_section(section, self.folder(part))
        return section

    def score(self, name: str) -> LDS:
        """The LDS of everybody, from the evaluations that there are when it is first asked for."""
        if name not in self._scores:
            truths = self.contest.truths(name)
            if not truths:
                raise UserError(self.contest.lacking_truth(name))
            self._scores[name] = lds(truths, self.contest.contenders(name))
        return self._scores[name]

    @cached_property
    def _scores(self) -> dict[str, LDS]:
        return {}

    def by_property(self, result: Callable[[str], Any]) -> dict[str, Any]:
        """``result`` of each property that has one; a property without is left out with a warning, all an error."""
        found: dict[str, Any] = {}
        reasons = {}
        for name in self.names:
            try:
                found[name] = result(name)
            except UserError as error:
                reasons[name] = str(error)
        if not found:
            raise UserError("; ".join(dict.fromkeys(reasons.values())))
        for name, reason in reasons.items():
            warnings.warn(f"{name}: {reason}", DiffcreditWarning, stacklevel=2)
        return found

    def titled(self, results: Mapping[str, Any]) -> dict[str, Any]:
        return {self.title(name): result for name, result in results.items()}

    # LDS, and what is drawn from it.
    def lds_work(self) -> list[Work]:
        contest = self.contest
        every = [contest.truth(), *map(contest.design, contest.compared)]
        if contest.settings.leave_one_out and "leave-one-out" not in contest.estimators:  # else the design does
            every += map(contest.leave_one_out, [self.study.recipe, *contest.compared])
        return every

    def lds_section(self) -> Section:
        self._with_baselines()
        return lds_section(self.titled(self.by_property(self.score)))

    def _with_baselines(self) -> None:
        if not kept_baselines(self.study):
            run_baselines(self.study)

    def surrogates_work(self) -> list[Work]:
        self._check_surrogates()  # before anything is retrained for nothing
        return [self.contest.truth()]

    def _check_surrogates(self) -> None:
        surrogates = self.study.surrogates
        if not surrogates.names:
            raise UserError("the study file names no surrogates")
        if not surrogates.ready():
            raise UserError(f"{', '.join(surrogates.names)}: not measured yet; diffcredit run does that")

    def surrogates_section(self) -> Section:
        self._check_surrogates()

        def of(name: str) -> Any:
            game = self.contest.game(self.study.recipe, name)
            if game is None:
                raise UserError(f"{self.study.recipe.name!r} has no evaluations yet; diffcredit run comes first")
            known, truths = self.contest.standing_in(name, game), self.contest.truths(name)
            return surrogacy(game, known, truths, partial(self.contest.price, game))

        return surrogacy_section(self.titled(self.by_property(of)))

    def convergence_work(self) -> list[Work]:
        return [self.contest.truth(), *map(self.contest.design, self.contest.compared)]

    @cached_property
    def _converged(self) -> dict[tuple[str, int], Any]:
        return {}

    def _convergence(self, name: str) -> Any:
        """Of the evaluations that there are. It takes long, and two sections tell of it."""
        known = name, sum(len(each.evaluations()) for each in self.contest.recipes)
        if known not in self._converged:
            games, scratch = self.contest.games(name), self.contest.game(self.contest.scratch, name)
            self._converged[known] = convergence(games, self.contest.truths(name), scratch)
        return self._converged[known]

    def convergence_section(self) -> Section:
        return self._by_evaluations_alone(convergence_section(self.titled(self.by_property(self._convergence))))

    def _by_evaluations_alone(self, section: Section) -> Section:
        names = self.study.surrogates.names
        if not names:
            return section
        caveat = f"All credits here are by evaluations alone: the study's surrogates ({', '.join(names)}) take no part."
        return replace(section, caveats=(*section.caveats, caveat))

    def budget_section(self) -> Section:
        seconds = {each.name: self.contest.seconds(each) for each in self.contest.recipes}

        def of(name: str) -> Any:
            games, truths = self.contest.games(name), self.contest.truths(name)
            return budget(self._convergence(name), games, truths, seconds, self.contest.unit())

        return self._by_evaluations_alone(budget_section(self.titled(self.by_property(of))))

    # Fidelity and runtime.
    def fidelity_work(self) -> list[Work]:
        return [*map(self.contest.design, self.contest.compared), self.contest.design(self.contest.scratch)]

    def fidelity_section(self) -> Section:
        def of(name: str) -> Any:
            scratch = self.contest.game(self.contest.scratch, name)
            if scratch is None:
                raise UserError(f"no evaluations of {self.contest.scratch.name!r} beside truth's yet")
            return fidelity(self.contest.games(name), scratch)

        return fidelity_section(self.titled(self.by_property(of)))

    def runtime_section(self) -> Section:
        games = [game for each in self.contest.recipes if (game := self.contest.timings(each)) is not None]
        scratch = next((game for game in games if game.recipe == self.contest.scratch.name), None)
        if scratch is None:
            raise UserError("no model is retrained from scratch yet; the parts lds and fidelity do that")
        devices = {
            each.name: sorted({str(one.numerics.get("device")) for one in each.evaluations(status="done")})
            for each in self.contest.recipes
        }
        return runtime_section(runtime(games, scratch), devices)

    # Counterfactual: whom to leave out, and what that does.
    def _rivals(self, name: str) -> list[Contender]:
        """The study's own credits, and the best of every other category by its LDS at the middle share."""
        everybody = self.contest.contenders(name)
        if not everybody or everybody[0].recipe != self.study.recipe.name:
            raise UserError(f"{name}: {self.study.recipe.name!r} has no credits yet; diffcredit run comes first")
        scores: dict[str, float] = {}
        with suppress(UserError):
            found = self.score(name).scores
            shares = sorted({score.share for score in found})
            middle = shares[len(shares) // 2]
            scores = {each.contender.name: each.spearman.value for each in found if each.share == middle}
        others = [each for each in everybody[1:] if each.category not in NO_RIVALS]
        return [everybody[0], *best_of_categories(others, scores)]

    def _counterfactual_names(self) -> list[str]:
        """The first property, for each asks for models of its own; all that are asked for by name."""
        return self.names if self.some_asked else self.names[:1]

    def counterfactual_work(self) -> list[Work]:
        return [self._counterfactual([self._rivals(name) for name in self._counterfactual_names()])]

    def _counterfactual(self, rivals: Sequence[Sequence[Contender]], unforeseen: int = 0) -> Work:
        """Of each property's ``rivals``, and of at most so many models more that are ``unforeseen``."""
        coalitions: dict[str, None] = {}
        for some in rivals:
            rows = counterfactual_coalitions(some, draws=RANDOM_RANKINGS, seed=self.study.config.seed)
            coalitions |= dict.fromkeys(encode(row) for row in rows)
        tasks = [truth_task(each, seed) for seed in range(self.contest.settings.seeds) for each in coalitions]
        seen = dict.fromkeys(task for some in rivals for task in self._pictured(some))
        scratch = self.contest.scratch
        keeping = self.study.recipe_with(scratch.section, self.contest.evaluations, keep="images")
        return Work(keeping, tasks, "retraining from scratch: counterfactual", unforeseen, list(seen))

    def _counterfactual_at_most(self) -> Work:
        """The models of the study's own credits and of random rankings; who else is a rival, the LDS will tell, and at
        most there is one of each kind."""
        names = self._counterfactual_names()
        coming = {"leave-one-out"} if self.contest.settings.leave_one_out else set()
        if not kept_baselines(self.study):
            coming |= {baseline.category for _, _, baseline in build_baselines(self.study, [])}
        kinds = {each.category for name in names for each in self._rivals(name)[1:]} | coming
        most = len(kinds - {*NO_RIVALS}) * len(ACTIONS) * self.contest.settings.seeds * len(names)
        return self._counterfactual([self._rivals(name)[:1] for name in names], most)

    def counterfactual_section(self) -> Section:
        results, photographs = {}, []
        for index, name in enumerate(self._counterfactual_names(), start=1):
            higher, rivals = self.contest.properties[name].higher_is_better, self._rivals(name)
            values = {
                coalition: helpfulness(some, higher) for coalition, some in self.contest.truth_values(name).items()
            }
            results[self.title(name)] = counterfactual(
                rivals, values, higher_is_better=higher, draws=RANDOM_RANKINGS, seed=self.study.config.seed
            )
            photographs += self._before_and_after(index, name, rivals)
        return counterfactual_section(results, photographs)

    def _pictured(self, rivals: Sequence[Contender]) -> list[Task]:
        """The retrained models whose images are shown."""
        return [*self._by_action(rivals[0]).values(), *self._by_method(rivals).values()]

    def _by_action(self, ours: Contender) -> dict[str, Task]:
        """Everybody's model, and that of each removal by one method's credits."""
        return self._beside_everybody(removals(ours.credits, self.study.config.seed))

    def _by_method(self, rivals: Sequence[Contender]) -> dict[str, Task]:
        """Everybody's model, and that without the top of each method's credits."""
        left = {each.name: removals(each.credits, self.study.config.seed)[SHOWN.name] for each in rivals}
        return self._beside_everybody(left)

    def _beside_everybody(self, coalitions: Mapping[str, BoolArray]) -> dict[str, Task]:
        everybody = {"everybody": "1" * self.contest.n}
        return {
            key: truth_task(each, 0)
            for key, each in (everybody | {key: encode(row) for key, row in coalitions.items()}).items()
        }

    def _before_and_after(self, index: int, name: str, rivals: Sequence[Contender]) -> list[Photograph]:
        """Images from the same noises of everybody's retrained model and of those without the top contributors: by the
        first's credits for each removal, and by each of the ``rivals``' for one."""
        title, pictures = self.title(name), []
        there = self._there(self._by_action(rivals[0]))
        if there:
            pictures.append(same_noises(f"noises-{index}", f"{title}: retrained models from the same noises", there))
            prop = self.property(name)
            if has_value_of_each(prop):
                scores = {key: self._of_each(prop, some) for key, some in there.items()}
                pictures += above_and_below(f"percentile-{index}", title, there, scores)
        others = self._there(self._by_method(rivals)) if len(rivals) > 1 else {}
        if others:
            words = f"{title}: models retrained {SHOWN.name} by each method, from the same noises"
            pictures.append(same_noises(f"methods-{index}", words, others))
        return pictures

    def _there(self, tasks: Mapping[str, Task]) -> dict[str, Images]:
        """The images of those models that have some; of none where everybody's lack, or there is nothing beside."""
        images = {key: self._kept(self.contest.scratch, task) for key, task in tasks.items()}
        there = {key: some for key, some in images.items() if some is not None}
        return there if "everybody" in there and len(there) > 1 else {}

    def _of_each(self, prop: Any, images: Images) -> Any:
        seen = self.study.prepared.extractors.extract(prop.features, images) if needs_features(prop) else images
        return prop.of_each(seen)

    # Unlearning: how near each recipe's images come to those of a retrained model.
    def unlearning_work(self) -> list[Work]:
        return [self.contest.unlearning(each) for each in self.contest.recipes]

    def unlearning_section(self) -> Section:
        works = {each.name: self.contest.unlearning(each) for each in self.contest.recipes}
        scratch = works[self.contest.scratch.name]
        count = len(scratch.tasks) // 2
        option = self._distance_features()

        def images(work: Work, tasks: Sequence[Task]) -> list[Images]:
            found = [self._kept(work.recipe, task) for task in tasks]
            lacking = sum(each is None for each in found)
            if lacking:
                raise UserError(f"images of {lacking} of {len(tasks)} models of {work.recipe.name!r} are not there")
            return [each for each in found if each is not None]

        def vectors(some: Sequence[Images]) -> list[Any]:
            return [self.study.prepared.extractors.extract(option, each).vectors for each in some]

        truth = images(scratch, scratch.tasks[:count])
        by_recipe, lacking = {}, []
        for each in self.contest.recipes:
            if each.name != self.contest.scratch.name:
                try:
                    by_recipe[self._unlearning_recipe(each)] = images(works[each.name], works[each.name].tasks)
                except UserError as error:  # the others are compared all the same
                    lacking.append(f"{each.name} is left out: {error}.")
        if not by_recipe:
            raise UserError(" ".join(lacking))
        base = self.study.prepared.generated_images()
        result = unlearning(
            {recipe: vectors(some) for recipe, some in by_recipe.items()},
            vectors(truth),
            replicate=vectors(images(scratch, scratch.tasks[count:])),
            base=self.study.prepared.extractors.extract(option, base).vectors,
        )
        first = {"retrained": truth[0], **{each.name: some[0] for each, some in by_recipe.items()}, "base model": base}
        rows = same_noises("unlearned", f"Coalition {scratch.tasks[0].coalition}, seen by {option_name(option)}", first)
        section = unlearning_section(result, [rows])
        return replace(section, caveats=(*section.caveats, *lacking))

    def _unlearning_recipe(self, each: "Recipe") -> UnlearningRecipe:
        section = each.section
        sparse = section.method == "sparsified" or section.options.get("sparse") is not None
        return UnlearningRecipe(each.name, section.method, sparse)

    def _distance_features(self) -> FeaturesOption:
        """What images are compared by: the extractor of the first property that has one."""
        return next((prop.features for prop in self.study.prepared.properties if needs_features(prop)), "layout")

    def _kept(self, each: "Recipe", task: Task) -> Images | None:
        keeper = each.recorded_keeper()
        found = None if keeper is None else keeper.find(task, self.study.prepared.extractors, self.study.prepared.load)
        return None if found is None else found.images

    # Contributors: what goes with high credits.
    def contributors_section(self) -> Section:
        contributions, credits = self.study.contributions, self.study.credits()
        scores = self._image_scores()
        results, photographs = {}, []
        for index, name in enumerate(self.names, start=1):
            if name not in credits:
                continue
            sign = 1 if self.contest.properties[name].higher_is_better else -1
            each = credits[name]
            estimates = [
                Estimate(sign * value, *sorted((sign * low, sign * high)))
                for value, low, high in zip(each.rounded, each.low, each.high, strict=True)
            ]
            owner, who = contributions.owner, contributions.contributors
            results[self.title(name)] = contributors(scores, owner, who, estimates)
            of_each = self._title_of_each(self.property(name))
            measure = of_each if of_each in scores else next(iter(scores))
            if results[self.title(name)].top:
                photographs += strips(
                    f"strips-{index}", contributions.images, owner, who, estimates, measure, scores[measure]
                )
        return contributors_section(results, photographs)

    def _image_scores(self) -> dict[str, Any]:
        """Of every training image, by what is measured: the properties that one image has, and how near it is to the
        kinds of image that the base model makes."""
        scores = {}
        for prop in self.study.prepared.properties:
            if has_value_of_each(prop):
                scores[self._title_of_each(prop)] = ApplicationScores().scores(study_evidence(self.study, prop))
        count = min(20, len(self.study.prepared.generated_images()) // 2)
        near = ClusterDistance(clusters=max(2, count))
        scores["nearness to the base model's clusters"] = near.scores(study_evidence(self.study))
        return scores

    def _title_of_each(self, prop: Any) -> str:
        """What the number of a single image is called: as the property is where that says no other name, or not for
        it alone."""
        names = [each.title_of_each for each in self.study.prepared.properties]
        mine = prop.title_of_each
        return mine if mine is not None and names.count(mine) == 1 else self.title(prop.name)


PARTS = {
    "lds": Part(Validation.lds_work, Validation.lds_section),
    "surrogates": Part(Validation.surrogates_work, Validation.surrogates_section),
    "counterfactual": Part(Validation.counterfactual_work, Validation.counterfactual_section),
    "fidelity": Part(Validation.fidelity_work, Validation.fidelity_section),
    "convergence": Part(Validation.convergence_work, Validation.convergence_section),
    "budget": Part(Validation.convergence_work, Validation.budget_section),
    "runtime": Part(lambda validation: (), Validation.runtime_section),
    "unlearning": Part(Validation.unlearning_work, Validation.unlearning_section),
    "contributors": Part(lambda validation: (), Validation.contributors_section),
}


def parts_of(study: "Study") -> list[str]:
    """The parts that a study may have."""
    return [part for part in PARTS if part != "surrogates" or study.surrogates.names]


def kept_sections(study: "Study") -> list[Section]:
    """The evidence that was computed so far, in the order of the parts."""
    folders = [study.folder / "validation" / part for part in PARTS]
    return [read_section(folder) for folder in folders if (folder / SECTION).exists()]
