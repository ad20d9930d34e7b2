"""Which evaluation comes next, and whether another is wanted.

A study evaluates its endpoints, then the coalitions of its design, one after another, until its stopping rule is
reached. The credits are looked at after fixed numbers of coalitions, each time those of a whole prefix of the
design: whether a study stops does not depend on the number of workers, on who finished first, or on how often it
was cut off. What was under way beyond the prefix is kept.
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
from diffcredit.ledger.clock import Clock, active_seconds, worker_seconds
from diffcredit.study.config import StudyConfig, check_rule_properties
from diffcredit.study.reserved import reserved
from diffcredit.util.arrays import BoolArray
from diffcredit.util.progress import Progress

LEAST_STEP = 40  # coalitions before the first look, or half as many as there are contributors
FURTHER = 10  # later looks are a tenth of the coalitions apart: all of them cost as much as the last eleven times
AGAIN = 100  # the total is foreseen anew after a hundredth more evaluations
NEAR = 1000  # coalitions within which the end of a finite design is foreseen

Estimator = Callable[[Sequence[Evaluation]], Mapping[str, Credits]]
"""From evaluations to the credits of every property that has enough values."""


@dataclass(frozen=True)
class Total:
    """How many evaluations there will be, endpoints included: for certain, or as foreseen from those so far."""

    evaluations: int
    certain: bool


class Schedule:
    """The tasks of a study of n contributors in their order, what became of them, and the looks at them."""

    def __init__(
        self, config: StudyConfig, n: int, higher_is_better: Mapping[str, bool], credits_of: Estimator
    ) -> None:
        self.rule = config.stop.rule
        self._n, self._higher_is_better, self._credits_of = n, higher_is_better, credits_of
        full = [Task("1" * n, replicate, "endpoint") for replicate in range(config.design.full_replicates)]
        self.endpoints = [Task("0" * n, 0, "endpoint"), *full]
        design = make_design(config.design.distribution, config.design.seed)
        self._source = tasks_of(design, n, self.rule.max_evaluations(), reserved(config, n))
        self._drawn: list[Task] = []
        self._attempts: dict[Task, list[Evaluation]] = {}
        self._clock = Clock()  # of all attempts but the latest
        self._latest: list[Evaluation] = []
        self._finished = 0
        self._looks: list[Look] = []
        self._enough = False  # by the looks
        self._foreseen: tuple[int, Total | None] | None = None  # by how many finished, and the total

    def record(self, evaluation: Evaluation) -> None:
        """Takes note of an evaluation, done or failed; those of a pilot or for the truth are not the schedule's."""
        if evaluation.purpose not in ("estimate", "endpoint"):
            return
        task = Task(evaluation.coalition, evaluation.replicate, evaluation.purpose)
        self._finished += evaluation.status == "done" and not self._done(task)
        self._attempts.setdefault(task, []).append(evaluation)
        self._latest.append(evaluation)

    def coalitions(self) -> Iterator[Task]:
        """The design's tasks up to the number that the rule cannot exceed, or to the design's end."""
        for index in count():
            if index == len(self._drawn):
                self._drawn.extend(islice(self._source, 1))
            if index == len(self._drawn):
                return
            yield self._drawn[index]

    def pending(self) -> Iterator[Task]:
        """What is left to evaluate, decided anew before each task. What failed in an earlier run is tried again, and
        awaited; what fails in this one counts as made."""
        awaited: list[tuple[Task, int]] = []  # how many attempts there will have been
        settled = 0  # of the awaited, before the first that is still under way
        lacking: list[Task] = []  # coalitions under way that were never tried before
        for place, task in enumerate(chain(self.endpoints, self.coalitions()), -len(self.endpoints)):
            if place >= 0:
                while settled < len(awaited) and self._tried(awaited[settled][0]) >= awaited[settled][1]:
                    settled += 1
                self._take_looks(settled - len(self.endpoints))
                lacking = [each for each in lacking if each not in self._attempts]
                if self._reached(place - len(lacking)):
                    return
                if task not in self._attempts:
                    lacking.append(task)
            awaited.append((task, self._tried(task) + (not self._done(task))))
            if not self._done(task):
                yield task

    def catch_up(self) -> None:
        """Takes the looks that a run would have taken by now, from what is recorded."""
        if all(map(self._tried, self.endpoints)):
            self._take_looks(sum(1 for _ in takewhile(self._tried, self._recorded())))

    def standing(self) -> RuleStatus:
        """How far the rule is, by the looks taken and the clocks as they are now."""
        if self._enough:
            return self.rule.status(self._looks)
        return self.rule.status([*self._looks, self._now(sum(task in self._attempts for task in self._recorded()))])

    def total(self, assumed: Look | None = None) -> Total | None:
        """How many evaluations there will be, from those so far, or as if ``assumed`` were seen; None where that
        cannot be told yet."""
        most = self.rule.max_evaluations()
        if most is not None and not self._watches_credits and not self._watches_clocks:
            return Total(len(self.endpoints) + most, certain=True)
        standing = self.standing() if assumed is None else self.rule.status([assumed])
        foreseen = standing.evaluations
        if foreseen is None:
            return None
        near = len(list(islice(self.coalitions(), min(foreseen, NEAR))))
        return Total(len(self.endpoints) + (near if near < NEAR else foreseen), certain=False)

    @property
    def finished(self) -> int:
        """How many tasks have been evaluated, those of other designs and endpoints included."""
        return self._finished

    def evaluated(self) -> list[Evaluation]:
        """The evaluations of the design's coalitions that are done."""
        attempts = [attempt for task in self._recorded() for attempt in self._attempts.get(task, ())]
        return [attempt for attempt in attempts if attempt.status == "done"]

    def tell(self, progress: Progress) -> None:
        """Tells how far the study is; a total that is only foreseen is called so."""
        finished = self.finished
        if self._foreseen is None or finished * AGAIN >= self._foreseen[0] * (AGAIN + 1):
            self._foreseen = finished, self.total()
        total = self._foreseen[1]
        if total and total.certain:
            progress("evaluating coalitions", finished, total.evaluations)
        else:
            foreseen = total.evaluations if total else 0
            progress("evaluating coalitions (total foreseen)", finished, max(finished + 1, foreseen))

    def _tried(self, task: Task) -> int:
        """How many attempts there were."""
        return len(self._attempts.get(task, ()))

    def _done(self, task: Task) -> bool:
        return any(evaluation.status == "done" for evaluation in self._attempts.get(task, ()))

    def _recorded(self) -> list[Task]:
        """The beginning of the design, as long as the record; but for those under way, all of it is there."""
        return list(islice(self.coalitions(), sum(task.purpose == "estimate" for task in self._attempts)))

    def _reached(self, made: int) -> bool:
        """Whether the rule is reached, by the looks or, with so many coalitions ``made``, by the clocks."""
        return self._enough or (self._watches_clocks and self.rule.reached([*self._looks, self._now(made)]))

    def _take_looks(self, settled: int) -> None:
        """Looks at every further beginning of the design that lies within its first ``settled`` coalitions, until the
        rule is reached."""
        while self._watches_credits and not self._enough:
            end = next_look(self._looks[-1].evaluations if self._looks else 0, self._n)
            if end > settled:
                return
            tasks = [*self.endpoints, *self._drawn[:end]]
            attempts = [attempt for task in tasks for attempt in self._attempts[task]]
            clocks = worker_seconds(attempts), active_seconds(attempts)
            self._looks.append(Look(end, *clocks, self._credits_of(attempts), self._higher_is_better))
            self._enough = self.rule.reached(self._looks)

    def _now(self, made: int) -> Look:
        """The clocks of all that is recorded, with so many coalitions ``made``."""
        while self._latest:
            self._clock.add(self._latest.pop())
        clocks = self._clock.worker_seconds, self._clock.active_seconds
        return Look(made, *clocks, None, self._higher_is_better)

    @cached_property
    def _watches_credits(self) -> bool:
        return any(isinstance(leaf, CreditRule) for leaf in self.rule.leaves())

    @cached_property
    def _watches_clocks(self) -> bool:
        return not all(isinstance(leaf, CreditRule | Evaluations) for leaf in self.rule.leaves())


def check_schedule(config: StudyConfig, n: int, properties: Sequence[str]) -> None:
    """Finds what a study of n contributors and these properties cannot do, before anything is trained."""
    rule, design = config.stop.rule, make_design(config.design.distribution, config.design.seed)
    if isinstance(rule, Evaluations):
        with located("stop.evaluations"):
            design.draw(n, 0, rule.count, reserved(config, n))
    with located("design.distribution"):
        design.draw(n, 0, 1, reserved(config, n))
    check_rule_properties(rule, properties)
    for leaf in rule.leaves():
        if isinstance(leaf, TopK) and leaf.k >= n:
            raise UserError(f"stop: top.k: {leaf.k} of {n} contributors; fewer than all are accepted")


def studied(config: StudyConfig, records: Iterable[PropertyRecord]) -> dict[str, bool]:
    """The properties of the study file among those of its ledger, and whether higher is better."""

    def named(record: PropertyRecord) -> bool:
        for section in config.properties:
            plugin = section.label is None and ":" in section.name  # it names itself
            if record.settings.get("name") == section.name and (
                plugin or record.name == (section.label or section.name)
            ):
                return True
        return False

    return {record.name: record.higher_is_better for record in records if named(record)}


def tasks_of(design: Design, n: int, most: int | None, exclude: Iterable[BoolArray] = ()) -> Iterator[Task]:
    """A design's coalitions as tasks, but for those to ``exclude``; one drawn again is a replicate with its own
    seed."""
    times: Counter[str] = Counter()
    for coalition in map(encode, rows(design, n, most, tuple(exclude))):
        yield Task(coalition, times[coalition], "estimate")
        times[coalition] += 1


def look_step(n: int) -> int:
    """How many coalitions lie between two looks, at the least."""
    return max(LEAST_STEP, -(-n // 2))


def next_look(last: int, n: int) -> int:
    """After how many coalitions credits are looked at again, the ``last`` time at so many (0: never yet)."""
    return last + max(look_step(n), last // FURTHER)


def rows(design: Design, n: int, most: int | None, exclude: Sequence[BoolArray] = ()) -> Iterator[BoolArray]:
    """The design's first ``most`` coalitions, or all; a finite design ends where it ends."""
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
