"""Evaluate the study in pieces, the most important first, for a limited time.

python studies/cifar20-paper/work.py --minutes 9

What the ledger has is not evaluated again. An evaluation that would not finish in time is not begun, so a run can be
cut into pieces of any length; the last lines say what is left. Truth is trained from scratch and comes first: it needs
no base model, and none is trained for it. With --fleet K, K models are trained from scratch at once. With --complete,
evaluations that miss values are made once more first; that work is not shared, so only one runner may do it.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from diffcredit.cli.opened import opened
from diffcredit.errors import UserError
from diffcredit.execution import InProcess, Task
from diffcredit.ledger import Evaluation
from diffcredit.study import Study
from diffcredit.study.evaluating import evaluate_again, evaluate_tasks
from diffcredit.study.recipe import Recipe
from diffcredit.study.sections import ValidationSection
from diffcredit.validation.data import PartWork, ValidationData

STUDY = Path(__file__).with_name("study.yaml")
HALF = 0.5
FEW, MORE = 32, 64  # truth coalitions of one share
SPARSIFIED, FINE_TUNED, FROM_SCRATCH = 200, 100, 24  # evaluations of the design, endpoints apart

# Seconds on one H200, of what has not been timed yet.
TRAINING = {"from_scratch": 210.0}
OTHERWISE = 15.0  # one model of any other recipe
COMPILING = 90.0  # added to a recipe's first evaluation in this process
BASE, RECOVERY = 270.0, 160.0
MARGIN = 10.0
WORTHWHILE = 60.0  # what must be left after a preparation


def pieces(data: ValidationData) -> Iterator[PartWork]:
    """Yield all evaluations in order of importance."""
    (fine_tuned,) = data.compared
    yield truth(data, HALF, 0, slice(FEW))
    yield design(data, data.study.recipe, SPARSIFIED)
    yield design(data, fine_tuned, FINE_TUNED)
    yield truth(data, HALF, 1, slice(FEW))
    yield design(data, data.scratch, FROM_SCRATCH)
    yield truth(data, HALF, 0, slice(FEW, MORE))
    for share in data.settings.shares:
        if share != HALF:
            yield truth(data, share, 0, slice(FEW))


def truth(data: ValidationData, share: float, seed: int, part: slice) -> PartWork:
    """Return some of the reserved coalitions with ``share`` of the labelers, trained with one seed."""
    work = data.truth()
    replicates = sorted({task.replicate for task in work.tasks})
    size = round(share * data.n)
    alike = [task for task in work.tasks if task.coalition.count("1") == size and task.replicate == replicates[seed]]
    what = f"truth, {share:g} of the labelers, seed {seed + 1}, coalitions {(part.start or 0) + 1} to {part.stop}"
    return replace(work, tasks=alike[part], what=what)


def design(data: ValidationData, recipe: Recipe, count: int) -> PartWork:
    """Return a recipe's endpoints and the first ``count`` coalitions of the design."""
    work = data.design(recipe)
    endpoints = [task for task in work.tasks if task.purpose == "endpoint"]
    others = [task for task in work.tasks if task.purpose != "endpoint"]
    return replace(work, tasks=[*endpoints, *others[:count]], what=f"{recipe.name}, {count} coalitions")


@dataclass(frozen=True)
class InTime(InProcess):
    """Evaluates in this process, and takes another task only while ``may_begin()``."""

    may_begin: Callable[[], bool] = field(default=lambda: True)

    def run(self, factory: Any, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        return super().run(factory, self._taken(iter(tasks)))

    def _taken(self, tasks: Iterator[Task | None]) -> Iterator[Task | None]:
        while self.may_begin():  # asked first, since a task that is taken is claimed in the ledger
            try:
                yield next(tasks)
            except StopIteration:
                return


@dataclass(frozen=True)
class Unseen:
    """Stands for the base model's images where only their number matters: any other use is an error."""

    count: int

    def __len__(self) -> int:
        return self.count


@dataclass
class Runner:
    """Evaluates pieces of a study's work until a time of the monotonic clock; ``fleet`` models from scratch at once.
    ``completes``: also adds missing values to evaluations that the ledger has."""

    study: Study
    until: float
    fleet: int | None = None
    completes: bool = False
    compiled: set[str] = field(default_factory=set)

    def do(self, work: PartWork) -> None:
        """Evaluate what there is time for."""
        completes = self.completes and self.incomplete(work)
        if not work.missing() and not completes:
            return
        recipe = work.recipe
        if recipe.section.method == "from_scratch":
            recipe = self.from_scratch
        elif not self.prepare(recipe):
            return
        executor = InTime(self.study.config.threads, may_begin=lambda: self.left() > self.expected(recipe))
        if completes:
            self.complete(recipe, executor, work.tasks)
        for evaluation in evaluate_tasks(recipe, executor, work.tasks, work.what):
            self.compiled.add(recipe.name)
            tell(recipe, evaluation)
            if evaluation.status == "done" and unmeasured(evaluation):
                raise SystemExit(f"{', '.join(unmeasured(evaluation))} could not be measured: nothing more is begun")

    def complete(self, recipe: Recipe, executor: InTime, tasks: Sequence[Task]) -> None:
        """Make evaluations once more whose measuring failed in part, and add the missing values to the ledger."""
        recipe.prepare()
        for task in tasks:
            with self.study.ledger() as ledger:
                recorded = ledger.done(self.study.name, recipe.name, *task.key)
                names = [] if recorded is None else unmeasured(recorded)
                for evaluation in evaluate_again(recipe, executor, [task], names) if names else ():
                    self.compiled.add(recipe.name)
                    tell(recipe, evaluation)
                    if evaluation.status == "done":
                        ledger.record(self.study.name, recipe.name, evaluation)

    def incomplete(self, work: PartWork) -> bool:
        """Return whether the ledger has evaluations of ``work`` without all their values."""
        wanted = {task.key for task in work.tasks}
        return any(unmeasured(each) for each in work.recipe.evaluations(status="done") if each.key in wanted)

    def left(self) -> float:
        """Return the seconds that are left."""
        return self.until - time.monotonic()

    def prepare(self, recipe: Recipe) -> bool:
        """Prepare the models that a recipe starts from, and return whether there was time for it."""
        if self.left() < self.preparation(recipe) + WORTHWHILE:
            return False
        # trained before the ledger is asked: it refuses evaluations from a base model that is gone
        _ = self.study.prepared.base
        recipe.prepare()
        return True

    @cached_property
    def from_scratch(self) -> Recipe:
        """Training from scratch in a study without a base model.

        The architecture is all that it takes from the base model, and properties that are fitted to training images
        take nothing.
        """
        study = Study(self.study.config, self.study.file, self.study.progress)
        prepared: Any = study.prepared
        prepared.base = prepared.start()
        prepared.generated_images = lambda: Unseen(study.config.sampling.images)
        without_base = Recipe(study, (study.config.validation or ValidationSection()).truth, 1)
        if self.fleet is not None:
            retraining: Any = without_base.retraining
            retraining.at_once = self.fleet
        return without_base

    def preparation(self, recipe: Recipe) -> float:
        """Estimate the seconds until a recipe is prepared; a training that was interrupted continues."""
        base = 0.0 if self.study.prepared.has_base else BASE
        found = any(path.is_dir() for path in self.study.cache.folder.glob("sparse-*"))
        return base + (RECOVERY if recipe.section.method == "sparsified" and not found else 0.0)

    def expected(self, recipe: Recipe) -> float:
        """Estimate the seconds of the next evaluation, or of the next fleet of them."""
        done = [each for each in recipe.evaluations(status="done") if "1" in each.coalition][-3:]
        # the least, since the first of a process is compiled too
        one = min((sum(each.seconds.values()) for each in done), default=TRAINING.get(recipe.name, OTHERWISE))
        at_once = getattr(recipe.retraining, "at_once", 1)
        return at_once * one + MARGIN + (0.0 if recipe.name in self.compiled else COMPILING)


def unmeasured(evaluation: Evaluation) -> list[str]:
    """Return the properties whose values are missing."""
    return [value.property for value in evaluation.values if value.value is None]


def tell(recipe: Recipe, evaluation: Evaluation) -> None:
    seconds = ", ".join(f"{stage} {value:.1f} s" for stage, value in evaluation.seconds.items())
    values = ", ".join(f"{value.property} {value.value}" for value in evaluation.values)
    outcome = values if evaluation.status == "done" else (evaluation.error or "").strip().splitlines()[-1]
    say(f"{recipe.name} {evaluation.coalition}/{evaluation.replicate} {evaluation.status}: {outcome} ({seconds})")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def progress() -> Callable[[str, int, int], None]:
    """Return what prints each stage's progress, at most every 15 seconds."""
    last: dict[str, float] = {}

    def show(what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done == total or now - last.get(what, -60.0) > 15:
            last[what] = now
            say(f"{what}: {done:,} of {total:,}")

    return show


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--study", type=Path, default=STUDY)
    parser.add_argument("--fleet", type=int, help="models from scratch that are trained at once")
    parser.add_argument("--complete", action="store_true", help="first add missing values; for one runner alone")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    with opened(str(options.study), progress()) as study:
        runner, works = Runner(study, until, options.fleet, options.complete), list(pieces(ValidationData(study)))
        for work in works:
            try:
                runner.do(work)
            except UserError as error:  # of one recipe; the others can be evaluated all the same
                say(f"{work.what}: left out: {error}")
        for work in works:
            say(f"{work.what}: {len(work.missing())} of {len(work.tasks)} left")


if __name__ == "__main__":
    main()
