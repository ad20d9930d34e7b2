"""Evaluate the study in pieces, the most important first, for a limited time.

python studies/cifar20-paper/work.py --minutes 9

What the ledger has is not evaluated again. An evaluation that would not finish in time is not begun, so a run can be
cut into pieces of any length; the last lines say what is left. Truth is trained from scratch and comes first: it needs
no base model, and none is trained for it. With --fleet K, K models are trained from scratch at once.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from diffcredit.contest import Contest, Work

from diffcredit import preparation
from diffcredit.cli.opened import opened
from diffcredit.errors import UserError
from diffcredit.execution import InProcess, Task
from diffcredit.ledger import Evaluation
from diffcredit.study import Study

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


def pieces(contest: Contest) -> Iterator[Work]:
    """Yield all evaluations in order of importance."""
    (fine_tuned,) = contest.compared
    yield truth(contest, HALF, 0, slice(FEW))
    yield design(contest, contest.study, SPARSIFIED)
    yield design(contest, fine_tuned, FINE_TUNED)
    yield truth(contest, HALF, 1, slice(FEW))
    yield design(contest, contest.scratch, FROM_SCRATCH)
    yield truth(contest, HALF, 0, slice(FEW, MORE))
    for share in contest.settings.shares:
        if share != HALF:
            yield truth(contest, share, 0, slice(FEW))


def truth(contest: Contest, share: float, seed: int, part: slice) -> Work:
    """Return some of the reserved coalitions with ``share`` of the labelers, trained with one seed."""
    work = contest.truth()
    replicates = sorted({task.replicate for task in work.tasks})
    size = round(share * contest.n)
    alike = [task for task in work.tasks if task.coalition.count("1") == size and task.replicate == replicates[seed]]
    what = f"truth, {share:g} of the labelers, seed {seed + 1}, coalitions {(part.start or 0) + 1} to {part.stop}"
    return replace(work, tasks=alike[part], what=what)


def design(contest: Contest, study: Study, count: int) -> Work:
    """Return a recipe's endpoints and the first ``count`` coalitions of the design."""
    work = contest.design(study)
    endpoints = [task for task in work.tasks if task.purpose == "endpoint"]
    others = [task for task in work.tasks if task.purpose != "endpoint"]
    return replace(work, tasks=[*endpoints, *others[:count]], what=f"{study.recipe}, {count} coalitions")


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
    """Evaluates ``pieces`` of a contest until a time of the monotonic clock; ``fleet`` models from scratch at once."""

    contest: Contest
    until: float
    fleet: int | None = None
    prepared: set[str] = field(default_factory=set)

    def do(self, work: Work) -> None:
        """Evaluate what there is time for."""
        study = work.study
        if work.missing() and self.prepare(study):
            executor = InTime(study.config.threads, may_begin=lambda: self.left() > self.expected(study))
            for evaluation in study.evaluate(executor, work.tasks, work.what):
                self.prepared.add(study.recipe)
                tell(study, evaluation)

    def left(self) -> float:
        """Return the seconds that are left."""
        return self.until - time.monotonic()

    def prepare(self, study: Study) -> bool:
        """Prepare the models that a recipe starts from, unless there is no time for that; return whether it was."""
        if "retraining" in vars(study):
            return True
        if study.config.retraining.method == "from_scratch":
            self.prepare_from_scratch(study)
            return True
        if self.left() < self.preparation(study) + WORTHWHILE:
            return False
        # trained before the ledger is asked: it refuses evaluations from a base model that is gone
        vars(study)["base"] = self.contest.study.base
        study.prepare()
        return True

    def prepare_from_scratch(self, study: Study) -> None:
        """Prepare without a base model: its architecture is all that a training from scratch takes from it, and
        properties that are fitted to training images take nothing."""
        vars(study)["base"], _ = preparation.base_start(study)
        unseen = Unseen(study.config.sampling.images)
        with patch.object(preparation, "generated_images", lambda _: unseen):
            study.prepare()
        if self.fleet is not None:
            retraining: Any = study.retraining
            retraining.at_once = self.fleet

    def preparation(self, study: Study) -> float:
        """Estimate the seconds until a recipe is prepared; what was cut off goes on where it stood."""
        base = 0.0 if preparation.base_is_there(self.contest.study) else BASE
        sparse = study.config.retraining.method == "sparsified"
        found = any(path.is_dir() for path in preparation.models_folder(study).glob("sparse-*"))
        return base + (RECOVERY if sparse and not found else 0.0)

    def expected(self, study: Study) -> float:
        """Estimate the seconds of the next evaluation, or of the next fleet of them."""
        done = [each for each in study.evaluations(status="done") if "1" in each.coalition][-3:]
        # the least, since the first of a process is compiled too
        one = min((sum(each.seconds.values()) for each in done), default=TRAINING.get(study.recipe, OTHERWISE))
        at_once = getattr(study.retraining, "at_once", 1)
        return at_once * one + MARGIN + (0.0 if study.recipe in self.prepared else COMPILING)


def tell(study: Study, evaluation: Evaluation) -> None:
    seconds = ", ".join(f"{stage} {value:.1f} s" for stage, value in evaluation.seconds.items())
    values = ", ".join(f"{value.property} {value.value}" for value in evaluation.values)
    outcome = values if evaluation.status == "done" else (evaluation.error or "").strip().splitlines()[-1]
    say(f"{study.recipe} {evaluation.coalition}/{evaluation.replicate} {evaluation.status}: {outcome} ({seconds})")


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
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    with opened(str(options.study), progress()) as study:
        contest = Contest(study)
        runner, works = Runner(contest, until, options.fleet), list(pieces(contest))
        for work in works:
            try:
                runner.do(work)
            except UserError as error:  # of one recipe; the others can be evaluated all the same
                say(f"{work.what}: left out: {error}")
        for work in works:
            say(f"{work.what}: {len(work.missing())} of {len(work.tasks)} left")


if __name__ == "__main__":
    main()
