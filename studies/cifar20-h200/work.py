"""The study's evaluations in pieces: as much as fits into some minutes, what matters most first. What is done is not
done again, and a piece that would be cut off is not begun.

python studies/cifar20-h200/work.py --minutes 9

Several may work side by side, each at its own part: --part 1/2 and --part 2/2. While one measures, the other trains
with the GPU to itself, so that its seconds count. Beside them, --surrogates measures what stands in for evaluations.
"""

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
from filelock import FileLock

from diffcredit.cli.console import Bars, say
from diffcredit.cli.opened import opened
from diffcredit.coalitions import decode
from diffcredit.contest import Contest, Work
from diffcredit.execution import InProcess, Task
from diffcredit.ledger import Evaluation

STUDY = Path(__file__).with_name("study.yaml")
TURN = Path(gettempdir()) / "cifar20-h200.turn"
FLEET = 16  # models that are made together
MIDDLE = 0.5
OTHERS = 50  # coalitions of each other share
UNKNOWN, QUICK = 200.0, 50.0  # seconds that a first fleet may take: of models from scratch, of fine-tuned ones


def pieces(contest: Contest) -> Iterator[Work]:
    """All that is evaluated, in order of importance."""
    truth, own = contest.truth(), contest.study
    same = [each for each in contest.compared if each.config.retraining.method == own.config.retraining.method]
    fine_tuned, *rest = [each for each in contest.compared if each not in same]
    yield replace(truth, tasks=shares(contest, truth.tasks, [MIDDLE]), what="truth, half of the labelers")
    yield contest.design(own)
    yield contest.design(fine_tuned)
    yield contest.design(contest.scratch)
    others = [share for share in contest.settings.shares if share != MIDDLE]
    yield replace(truth, tasks=shares(contest, truth.tasks, others), what="truth, other shares")
    yield from map(contest.leave_one_out, [own, fine_tuned, *rest])
    yield from map(contest.design, [*rest, *same])  # those with other numbers of steps at last
    yield contest.leave_one_out(contest.scratch)


def shares(contest: Contest, tasks: Sequence[Task], wanted: Sequence[float]) -> list[Task]:
    """Those of truth's ``tasks`` with such shares of the labelers, as many coalitions of each as are wanted."""
    some = []
    for share in wanted:
        size = round(share * contest.n)
        own = [task for task in tasks if task.coalition.count("1") == size]
        most = len(own) if share == MIDDLE else OTHERS
        coalitions = list(dict.fromkeys(task.coalition for task in own))[:most]
        some += [task for task in own if task.coalition in coalitions]
    return some


def fitting(tasks: Sequence[Task], left: float, each: float | None, first: float, *, whole: bool) -> int:
    """How many of ``tasks`` fit into the seconds that are ``left`` if one takes ``each``, a fleet after another, or
    where that is not known the ``first`` fleet so long; ``whole``: no fleet with empty places, which cost as much."""
    most = len(tasks) // FLEET * FLEET if whole else len(tasks)
    if each is None:
        return min(most, FLEET) if left > first else 0
    fleets = int(left / (each * FLEET)) if each > 0 else len(tasks)
    return min(most, fleets * FLEET)


@dataclass(frozen=True)
class InTurn:
    """An evaluator whose models are trained and sampled in ``turn`` with others', and measured while others are."""

    evaluator: Any
    turn: FileLock

    @property
    def at_once(self) -> int:
        return self.evaluator.at_once

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        with self.turn:
            made = list(self.evaluator.sampled(tasks))
        for each in made:
            yield each if isinstance(each, Evaluation) else self.evaluator.measured(each)


class Sharing(InProcess):
    """Evaluates in this process, beside others that use the same GPU."""

    def run(self, factory: Any, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        return super().run(lambda: InTurn(factory(), FileLock(TURN)), tasks)


def do(work: Work, until: float, paces: dict[str, float], first: float, *, whole: bool) -> list[Task]:
    """Evaluates what there is time for; what is left. ``paces``: seconds of one evaluation, by recipe."""
    missing, recipe = work.missing(), work.study.recipe
    while missing:
        now = time.monotonic()
        count = fitting(missing, until - now, paces.get(recipe), first, whole=whole)
        if count == 0:
            break
        tasks = missing[:count]
        for _ in work.study.evaluate(Sharing(work.study.config.threads), tasks, work.what):
            pass
        paces[recipe] = (time.monotonic() - now) / count  # of the last ones: the first had to be compiled
        left = work.missing()
        if len(left) > len(missing) - count:  # some failed, and would again
            return left
        missing = left
    return missing


def stand_in(contest: Contest) -> None:
    """Measures the surrogates at all coalitions of the study's design, and where their own credits need them."""
    study = contest.study
    study.surrogates.prepare()
    design = np.array([decode(task.coalition) for task in contest.design(study).tasks if task.purpose == "estimate"])
    for prop in study.properties:
        study.surrogates.known(prop.name, design)


def part_of(text: str) -> slice:
    """``2/3``: every third of the tasks, from the second on."""
    number, parts = map(int, text.split("/"))
    if not 1 <= number <= parts:
        raise ValueError(text)
    return slice(number - 1, None, parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--study", type=Path, default=STUDY)
    parser.add_argument("--part", type=part_of, default=slice(None))
    parser.add_argument("--surrogates", action="store_true", help="measure these instead; Ctrl-C keeps what is done")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    with Bars() as bars, opened(str(options.study), bars) as study:
        study.prepare()
        contest = Contest(study)
        if options.surrogates:
            stand_in(contest)
            return
        every = [replace(work, tasks=work.tasks[options.part]) for work in pieces(contest)]
        carried: dict[str, list[Task]] = {}  # what would leave places empty waits for more of the same recipe
        paces: dict[str, float] = {}
        for place, work in enumerate(every):
            recipe = work.study.recipe
            more = any(later.study.recipe == recipe for later in every[place + 1 :])
            waiting = replace(work, tasks=[*carried.pop(recipe, ()), *work.tasks])
            first = UNKNOWN if recipe == contest.scratch.recipe else QUICK
            carried[recipe] = do(waiting, until, paces, first, whole=more)
            say(f"{work.what}: {len(work.missing())} of {len(work.tasks)} left")


if __name__ == "__main__":
    main()
