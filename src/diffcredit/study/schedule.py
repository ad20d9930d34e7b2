"""The order of a study's evaluations, and when to stop.

A study evaluates its *endpoints* first: the empty coalition, that of all contributors, and the reference if it is
neither. Then follow the coalitions of its design, in order, until the stopping rule is reached. A rule on credits is
checked at *looks*, which come after fixed numbers of coalitions. Each look estimates the credits from the first
coalitions of the design, without gaps. So whether a study stops does not depend on the number of workers, on who
finished first, or on interruptions. Evaluations that are already running when the rule is reached are finished and
kept.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count, islice, takewhile

from diffcredit.coalitions import Design, encode, make_design
from diffcredit.credit import Credits
from diffcredit.credit.precision import CreditRule, TopK
from diffcredit.credit.stopping import Evaluations, Look, RuleStatus
from diffcredit.errors import UserError, located
from diffcredit.execution import Task
from diffcredit.ledger import Evaluation, PropertyRecord
from diffcredit.ledger.clock import Clock
from diffcredit.study.config import StudyConfig
from diffcredit.study.reference import reference_of
from diffcredit.study.reserved import reserved
from diffcredit.study.sections import PropertySection
from diffcredit.util.arrays import BoolArray
from diffcredit.util.progress import Progress

LEAST_STEP = 40  # coalitions between looks; half the number of contributors if that is more
FURTHER = 10  # later looks are a tenth of the coalitions apart, so all looks cost at most eleven times the last one
AGAIN = 100  # the total is estimated again after a hundredth more evaluations
NEAR = 1000  # within this many coalitions, the end of a finite design is searched for

Estimator = Callable[[Sequence[Evaluation]], Mapping[str, Credits]]
"""A function from evaluations to the credits of every property that has enough values."""


@dataclass(frozen=True)
class Total:
    """How many evaluations there will be, endpoints included: certain, or estimated from those so far."""

    evaluations: int
    certain: bool


class Schedule:
    """The tasks of a study with n contributors in order, their attempts so far, and the looks at them. A task is
    *tried* once it has an attempt, and *done* once an attempt succeeded."""

    def __init__(
        self, config: StudyConfig, n: int, higher_is_better: Mapping[str, bool], credits_of: Estimator
    ) -> None:
        self.rule = config.stop.rule
        self.mark = 0  # the place in the ledger up to which evaluations are recorded here
        self._n, self._higher_is_better, self._credits_of = n, higher_is_better, credits_of
        self.endpoints = endpoints(config, n)
        design = make_design(config.design.distribution, config.design.seed)
        self._source = tasks_of(design, n, self.rule.max_evaluations(), reserved(config, n))
        self._drawn: list[Task] = []
        self._attempts: dict[Task, list[Evaluation]] = {}
        self._clock = Clock()  # all attempts but those in _unclocked
        self._unclocked: list[Evaluation] = []  # a rule that watches no clocks never reads these
        self.finished = 0  # how many tasks are done, endpoints and tasks of earlier designs included
        self._looks: list[Look] = []
        self._enough = False  # whether the rule was reached at a look
        self._estimated: tuple[int, Total | None] | None = None  # the latest total, and how many were finished then

    def record(self, evaluation: Evaluation) -> None:
        """Add an evaluation, done or failed. Those that are no task's, such as a pilot's, are ignored."""
        task = Task(evaluation.coalition, evaluation.replicate, evaluation.purpose)
        if task.purpose not in ("estimate", "endpoint") and task not in self.endpoints:
            return
        self.finished += evaluation.status == "done" and not self._done(task)
        self._attempts.setdefault(task, []).append(evaluation)
        self._unclocked.append(evaluation)

    def coalitions(self) -> Iterator[Task]:
        """Yield the design's tasks, up to the largest number that the rule allows or to the end of the design."""
        for index in count():
            if index == len(self._drawn):
                self._drawn.extend(islice(self._source, 1))
            if index == len(self._drawn):
                return
            yield self._drawn[index]

    def pending(self) -> Iterator[Task]:
        """Yield the tasks that are left, one at a time, until the rule is reached.

        The rule is checked before each task, with everything recorded until then. A task that failed in an earlier run
        is tried again, and looks wait for it. A task that fails in this run counts as evaluated.
        """
        awaited: list[tuple[Task, int]] = []  # every task so far, and the attempts it will have once it is settled
        settled = 0  # how many of awaited come before the first that is still running
        running: list[Task] = []  # coalitions without any attempt yet
        for place, task in enumerate(chain(self.endpoints, self.coalitions()), -len(self.endpoints)):
            if place >= 0:
                while settled < len(awaited) and self._tried(awaited[settled][0]) >= awaited[settled][1]:
                    settled += 1
                self._take_looks(settled - len(self.endpoints))
                running = [each for each in running if each not in self._attempts]
                if self._enough:
                    return
                if self._watches_clocks and self.rule.reached([*self._looks, self._now(place - len(running))]):
                    return
                if task not in self._attempts:
                    running.append(task)
            awaited.append((task, self._tried(task) + (not self._done(task))))
            if not self._done(task):
                yield task

    def catch_up(self) -> None:
        """Take the looks that a run would have taken by now, from what is recorded."""
        if all(map(self._tried, self.endpoints)):
            self._take_looks(sum(1 for _ in takewhile(self._tried, self._first_tasks())))

    def rule_status(self) -> RuleStatus:
        """Return how far the rule is, by the looks taken and by the time spent until now."""
        if self._enough:
            return self.rule.status(self._looks)
        return self.rule.status([*self._looks, self._now(sum(task in self._attempts for task in self._first_tasks()))])

    def total(self, assumed: Look | None = None) -> Total | None:
        """Estimate how many evaluations there will be, from those so far or from a look that is ``assumed``; None if
        not known yet."""
        most = self.rule.max_evaluations()
        if most is not None and not self._watches_credits and not self._watches_clocks:
            return Total(len(self.endpoints) + most, certain=True)
        status = self.rule_status() if assumed is None else self.rule.status([assumed])
        expected = status.evaluations
        if expected is None:
            return None
        near = len(list(islice(self.coalitions(), min(expected, NEAR))))
        return Total(len(self.endpoints) + (near if near < NEAR else expected), certain=False)

    def evaluated(self) -> list[Evaluation]:
        """Return the evaluations of the design's coalitions that are done."""
        attempts = [attempt for task in self._first_tasks() for attempt in self._attempts.get(task, ())]
        return [attempt for attempt in attempts if attempt.status == "done"]

    def report_progress(self, progress: Progress) -> None:
        """Report how many tasks are done, and of how many; a total that is not certain is marked as estimated."""
        finished = self.finished
        if self._estimated is None or finished * AGAIN >= self._estimated[0] * (AGAIN + 1):
            self._estimated = finished, self.total()
        total = self._estimated[1]
        if total and total.certain:
            progress("evaluating coalitions", finished, total.evaluations)
        else:
            expected = total.evaluations if total else 0
            progress("evaluating coalitions (estimated total)", finished, max(finished + 1, expected))

    def _tried(self, task: Task) -> int:
        return len(self._attempts.get(task, ()))

    def _done(self, task: Task) -> bool:
        return any(evaluation.status == "done" for evaluation in self._attempts.get(task, ()))

    def _first_tasks(self) -> list[Task]:
        """Return the design's first tasks, as many as were tried. Only tasks that are still running are missing."""
        return list(islice(self.coalitions(), sum(task.purpose == "estimate" for task in self._attempts)))

    def _take_looks(self, settled: int) -> None:
        """Take the looks that are due once the design's first ``settled`` coalitions are, until the rule is reached."""
        while self._watches_credits and not self._enough:
            end = next_look(self._looks[-1].evaluations if self._looks else 0, self._n)
            if end > settled:
                return
            tasks = [*self.endpoints, *self._drawn[:end]]
            attempts = [attempt for task in tasks for attempt in self._attempts[task]]
            self._looks.append(self._look(end, Clock(attempts), self._credits_of(attempts)))
            self._enough = self.rule.reached(self._looks)

    def _now(self, made: int) -> Look:
        """Return a look at the time spent on ``made`` coalitions, without credits."""
        while self._unclocked:
            self._clock.add(self._unclocked.pop())
        return self._look(made, self._clock, None)

    def _look(self, made: int, clock: Clock, credits: Mapping[str, Credits] | None) -> Look:
        return Look(made, clock.worker_seconds, clock.active_seconds, credits, self._higher_is_better)

    @cached_property
    def _watches_credits(self) -> bool:
        return any(isinstance(leaf, CreditRule) for leaf in self.rule.leaves())

    @cached_property
    def _watches_clocks(self) -> bool:
        return not all(isinstance(leaf, CreditRule | Evaluations) for leaf in self.rule.leaves())


def endpoints(config: StudyConfig, n: int) -> list[Task]:
    """Return the empty coalition's tasks, those of all n contributors, and the reference's own, if it has one. The
    empty coalition is trained, and so replicated, where it has house images."""
    replicates = config.design.full_replicates
    empty = [Task("0" * n, replicate, "endpoint") for replicate in range(replicates if config.has_house else 1)]
    full = [Task("1" * n, replicate, "endpoint") for replicate in range(replicates)]
    return [*empty, *full, *reference_of(config).tasks(n)]


def check_schedule(config: StudyConfig, n: int, properties: Sequence[str]) -> None:
    """Refuse a design or a rule that n contributors with these properties cannot have, before anything is trained."""
    rule, design = config.stop.rule, make_design(config.design.distribution, config.design.seed)
    if isinstance(rule, Evaluations):
        with located("stop.evaluations"):
            design.draw(n, 0, rule.count, reserved(config, n))
    with located("design.distribution"):
        design.draw(n, 0, 1, reserved(config, n))
    config.check_names(properties)
    for leaf in rule.leaves():
        if isinstance(leaf, TopK) and leaf.k >= n:
            raise UserError(f"stop: top.k: {leaf.k} of {n} contributors; fewer than all are accepted")


def studied(config: StudyConfig, records: Iterable[PropertyRecord]) -> dict[str, bool]:
    """Return which properties of the ledger's ``records`` the study file names, and whether higher is better."""

    def names(section: PropertySection, record: PropertyRecord) -> bool:
        names_itself = section.label is None and ":" in section.name  # a plug-in
        fits = names_itself or record.name == (section.label or section.name)
        return fits and record.settings.get("name") == section.name

    return {
        record.name: record.higher_is_better
        for record in records
        if any(names(section, record) for section in config.properties)
    }


def tasks_of(design: Design, n: int, most: int | None, exclude: Iterable[BoolArray] = ()) -> Iterator[Task]:
    """Yield a design's coalitions as tasks, without those to ``exclude``. A coalition that is drawn again becomes
    another replicate, which has its own seed."""
    times: Counter[str] = Counter()
    for coalition in map(encode, rows(design, n, most, tuple(exclude))):
        yield Task(coalition, times[coalition], "estimate")
        times[coalition] += 1


def look_step(n: int) -> int:
    """Return the smallest number of coalitions between two looks."""
    return max(LEAST_STEP, -(-n // 2))


def next_look(last: int, n: int) -> int:
    """Return after how many coalitions the next look comes, if the last came after ``last`` (0: there was none)."""
    return last + max(look_step(n), last // FURTHER)


def rows(design: Design, n: int, most: int | None, exclude: Sequence[BoolArray] = ()) -> Iterator[BoolArray]:
    """Yield the design's first ``most`` coalitions (None: all), or fewer if the design has fewer."""
    start, block, ending = 0, 64, False
    while most is None or start < most:
        size = block if most is None else min(block, most - start)
        try:
            drawn = design.draw(n, start, size, exclude)
        except UserError:
            if size > 1:  # the end is within these
                block, ending = size // 2, True
                continue
            if start == 0:
                raise
            return
        yield from drawn
        start += size
        block = block if ending else 2 * block  # a draw goes through all rows before it
