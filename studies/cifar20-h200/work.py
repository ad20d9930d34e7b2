"""The study's evaluations in pieces: as much as fits into some minutes, what matters most first. What is done is not
done again, and a piece that would be cut off is not begun.

python studies/cifar20-h200/work.py --minutes 9

Several may work side by side, each at its own part: --part 1/2 and --part 2/2. While one measures, the other trains
with the GPU to itself, so that its seconds count. Beside them, --surrogates measures what stands in for evaluations.
With --design a study's own coalitions are all that is evaluated, as those of paper.yaml; with --evidence what parts of
diffcredit validate rest on, which may depend on all that is done before.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
from filelock import FileLock

from diffcredit.cli.console import Bars, say
from diffcredit.cli.opened import opened
from diffcredit.coalitions import decode
from diffcredit.errors import UserError
from diffcredit.execution import Evaluator, InProcess, Task
from diffcredit.ledger import Evaluation
from diffcredit.ledger.purposes import TRUTH_REPLICATE
from diffcredit.study.evaluating import evaluate_tasks, keep_again
from diffcredit.validation.data import PartWork, ValidationData
from diffcredit.validation.parts import PARTS
from diffcredit.validation.validate import open_data

STUDY = Path(__file__).with_name("study.yaml")
TURN = Path(gettempdir()) / "cifar20-h200.turn"
FLEET = 16  # models that are made together
MIDDLE = 0.5
OTHERS = 50  # coalitions of each other share
UNKNOWN, QUICK = 110.0, 50.0  # seconds that a first fleet may take: of models from scratch, of fine-tuned ones


def pieces(contest: ValidationData) -> Iterator[PartWork]:
    """All that is evaluated, in order of importance."""
    truth, own = contest.truth(), contest.study.recipe
    methods = {each.section.method: each for each in (*reversed(contest.compared), own)}
    first = [each for each in contest.compared if each in methods.values()]
    fine_tuned, *rest = first
    again = [each for each in contest.compared if each not in first]
    yield replace(truth, tasks=shares(contest, truth.tasks, [MIDDLE]), what="truth, half of the labelers")
    yield contest.design(own)
    yield contest.design(fine_tuned)
    yield contest.design(contest.scratch)
    others = [share for share in contest.settings.shares if share != MIDDLE]
    yield replace(truth, tasks=shares(contest, truth.tasks, others), what="truth, other shares")
    yield from map(contest.leave_one_out, [own, fine_tuned, *rest])
    yield from map(contest.design, [*rest, *again])  # methods with other numbers of steps at last
    yield contest.leave_one_out(contest.scratch)
    yield truth_by_own_recipe(contest)


def truth_by_own_recipe(contest: ValidationData) -> PartWork:
    """Truth's coalitions of half of the labelers by the study's own recipe: how far the LDS of any credits from it can
    come. No credits rest on them."""
    halves = dict.fromkeys(task.coalition for task in shares(contest, contest.truth().tasks, [MIDDLE]))
    tasks = [Task(coalition, TRUTH_REPLICATE, "validation") for coalition in halves]
    recipe = contest.study.recipe
    return PartWork(recipe, tasks, f"truth's coalitions by {recipe.name}")


def shares(contest: ValidationData, tasks: Sequence[Task], wanted: Sequence[float]) -> list[Task]:
    """Those of truth's ``tasks`` with such shares of the labelers, as many coalitions of each as are wanted."""
    some = []
    for share in wanted:
        size = round(share * contest.n)
        own = [task for task in tasks if task.coalition.count("1") == size]
        most = len(own) if share == MIDDLE else OTHERS
        coalitions = list(dict.fromkeys(task.coalition for task in own))[:most]
        some += [task for task in own if task.coalition in coalitions]
    return some


class TimeIsUp(BaseException):
    """There is none left for a fleet. Like Ctrl-C it is nobody's failure."""


@dataclass
class Turns:
    """One process at a time has the GPU, ``until`` then, if a fleet is foreseen to be done before; ``paces``: seconds
    that the last fleet of a recipe took, the first of which had to be compiled."""

    lock: FileLock
    until: float
    paces: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def turn(self, recipe: str, first: float) -> Iterator[None]:
        """``first``: seconds of a fleet of which nothing is known."""
        with self.lock:
            began = time.monotonic()
            if began + self.paces.get(recipe, first) > self.until:
                raise TimeIsUp
            yield
            self.paces[recipe] = time.monotonic() - began


@dataclass(frozen=True)
class InTurn(Evaluator):
    """An evaluator whose models are trained and sampled in a ``turn`` of their own, and measured while others are."""

    evaluator: Any
    turn: Callable[[], AbstractContextManager[None]]

    @property
    def at_once(self) -> int:
        return self.evaluator.at_once

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        with self.turn():
            made = list(self.evaluator.source.observe(tasks, self.evaluator.properties))
        for each in made:
            yield each if isinstance(each, Evaluation) else self.evaluator.measure(each)


@dataclass(frozen=True)
class Sharing(InProcess):
    """Evaluates in this process, beside others that use the same GPU."""

    turn: Callable[[], AbstractContextManager[None]] = nullcontext

    def run(self, factory: Any, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        return super().run(lambda: InTurn(factory(), self.turn), tasks)


def do(work: PartWork, turns: Turns, first: float, *, whole: bool) -> list[Task]:
    """Evaluates what there is time for, a fleet after another, and then makes images once more that are to be seen and
    are not there; what is left to evaluate. ``whole``: no fleet with empty places, which cost as much."""
    recipe = work.recipe
    executor = Sharing(recipe.study.config.threads, turn=partial(turns.turn, recipe.name, first))
    prepared = False

    def fleets(lacking: Callable[[], list[Task]], make: Callable[..., Iterable[Any]], *, whole: bool) -> list[Task]:
        nonlocal prepared
        missing = lacking()
        while missing and not (whole and len(missing) < FLEET):
            try:
                if not prepared:
                    with turns.turn(f"preparing {recipe.name}", QUICK):  # the next process finds it made
                        recipe.prepare()
                    prepared = True
                for _ in make(recipe, executor, missing[:FLEET], work.what):
                    pass
            except TimeIsUp:
                break
            left = lacking()
            if len(left) > max(0, len(missing) - FLEET):  # some failed, and would again
                return left
            missing = left
        return missing

    left = fleets(work.missing, evaluate_tasks, whole=whole)
    fleets(work.without_images, keep_again, whole=False)
    return left


def stand_in(contest: ValidationData) -> None:
    """Measures the surrogates at all coalitions of the study's design, and where their own credits need them."""
    study = contest.study
    study.surrogates.prepare()
    design = np.array(
        [decode(task.coalition) for task in contest.design(study.recipe).tasks if task.purpose == "estimate"]
    )
    for prop in study.prepared.properties:
        study.surrogates.known(prop.name, design)


def part_of(text: str) -> slice:
    """``2/3``: every third of the tasks, from the second on."""
    number, parts = map(int, text.split("/"))
    if not 1 <= number <= parts:
        raise ValueError(text)
    return slice(number - 1, None, parts)


def shared_out(every: Sequence[PartWork], part: slice) -> list[PartWork]:
    """What is for a ``part`` to do: its tasks of every piece; the pieces that are one fleet go round as they are, for
    a fleet with empty places costs as much."""
    fleets = [work for work in every if len(work.tasks) <= FLEET][part]
    return [
        work if work in fleets else replace(work, tasks=work.tasks[part], pictured=work.pictured[part])
        for work in every
        if work in fleets or len(work.tasks) > FLEET
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--study", type=Path, default=STUDY)
    parser.add_argument("--part", type=part_of, default=slice(None))
    parser.add_argument("--design", action="store_true", help="only what the study's own credits rest on")
    evidence = ("counterfactual", "unlearning")
    parser.add_argument("--evidence", choices=evidence, nargs="+", default=[], help="only what these parts rest on")
    parser.add_argument("--properties", nargs="+", default=[], help="of the evidence, in place of the first alone")
    parser.add_argument("--surrogates", action="store_true", help="measure these instead; Ctrl-C keeps what is done")
    options = parser.parse_args()
    turns = Turns(FileLock(TURN), until=time.monotonic() + 60 * options.minutes)
    with Bars() as bars, opened(str(options.study), bars) as study:
        study.prepare()
        contest = ValidationData(study)
        if options.surrogates:
            stand_in(contest)
            return
        if options.evidence:
            data = open_data(study, options.properties)
            wanted = [work for part in options.evidence for work in PARTS[part].work(data)]
        else:
            wanted = [contest.design(study.recipe)] if options.design else pieces(contest)
        every = shared_out(list(wanted), options.part)
        carried: dict[str, list[Task]] = {}  # what would leave places empty waits for more of the same recipe
        for place, work in enumerate(every):
            recipe = work.recipe.name
            more = any(later.recipe.name == recipe for later in every[place + 1 :])
            waiting = replace(work, tasks=[*carried.pop(recipe, ()), *work.tasks])
            first = UNKNOWN if recipe == contest.scratch.name else QUICK
            try:
                carried[recipe] = do(waiting, turns, first, whole=more)
            except UserError as error:  # as of a recipe whose models are lost; the others can be had
                say(f"{work.what}: left out: {error}")
                continue
            left = len(work.missing()) + len(work.without_images())
            say(f"{work.what}: {left} of {len(work.tasks)} left")


if __name__ == "__main__":
    main()
