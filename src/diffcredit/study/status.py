"""How far a study is, in numbers from the ledger: every machine sees all machines' work, and a :class:`StatusReader`
that looks again reads only new rows. What each worker does now comes from the study's log, if this machine sees it."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

from diffcredit.credit.precision import CreditRule
from diffcredit.credit.stopping import HOUR, Evaluations, Look, Money, RuleStatus
from diffcredit.ledger import CurrentClaim, NoLedger
from diffcredit.study.schedule import Total, endpoints
from diffcredit.study.tally import DESIGN, LOG_NAME, Tally, TaskLog, WorkerTally

if TYPE_CHECKING:
    from diffcredit.study.study import Study

WINDOW = 600.0  # seconds that per_minute_lately covers
MOST_LOOKED = 2000  # evaluations up to which a live view estimates credits
PATIENCE = 20  # after estimating credits, wait this many times as long as it took before doing it again


@dataclass(frozen=True)
class RecipeStatus:
    """A recipe's evaluations, their pace and their cost.

    ``done`` counts the design's evaluations if it is the study's own recipe, and otherwise all but pilots; ``others``
    counts the rest. ``failed`` counts attempts, without pilots'. ``total`` is ``certain`` or estimated; None if it is
    not known. ``seconds_each`` is the time between two evaluations over the last fifty, without pauses;
    ``seconds_left`` assumes that pace. Costs are in the currency of the price.
    """

    name: str
    done: int
    others: int
    failed: int
    under_way: int
    total: int | None
    certain: bool
    per_minute_lately: float
    per_minute_overall: float | None
    seconds_each: float | None
    seconds_left: float | None
    worker_hours: float
    worker_hours_left: float | None
    cost: float | None
    cost_left: float | None


@dataclass(frozen=True)
class Failure:
    """An error's last line, and how often attempts or values of a recipe failed with it."""

    recipe: str
    error: str
    count: int


@dataclass(frozen=True)
class WorkerStatus:
    """A worker of one recipe.

    ``coalition``, ``replicate`` and ``busy_seconds`` are its present task and how long it has had it; None if it has
    none, or if this machine does not see the study's log. ``last_seen`` is how many seconds ago it finished or got a
    task.
    """

    name: str
    recipe: str
    done: int
    failed: int
    mean_seconds: float | None
    coalition: str | None
    replicate: int | None
    busy_seconds: float | None
    last_seen: float


@dataclass(frozen=True)
class DriverStatus:
    """A process that hands ``tasks`` tasks of a recipe to workers; its first claim expires in ``expires_in`` seconds
    unless renewed."""

    holder: str
    recipe: str
    tasks: int
    expires_in: float


@dataclass(frozen=True)
class Status:
    """A study at one moment.

    ``studied`` is the name of its own recipe. ``rule`` is how far its stopping rule is; None while the ledger does not
    know that recipe. The rule does not count the ``endpoints``.
    """

    study: str
    time: str
    studied: str
    endpoints: int
    recipes: tuple[RecipeStatus, ...]
    rule: RuleStatus | None
    failures: tuple[Failure, ...]
    workers: tuple[WorkerStatus, ...]
    drivers: tuple[DriverStatus, ...]


class StatusReader:
    """A reader of one study's status that may be asked again and again.

    ``price`` is that of one worker's hour; by default the stopping rule's, if it has one. ``live``: answer fast, and so
    estimate credits only as long as that is cheap.
    """

    def __init__(self, study: "Study", price: float | None = None, *, live: bool = False) -> None:
        study.check_recorded(pixels=False)
        self._study, self._live = study, live
        self._endpoints = len(endpoints(study.config, 2))  # as many for any number of contributors
        prices = [leaf.per_hour for leaf in study.config.stop.rule.leaves() if isinstance(leaf, Money)]
        self._price = price if price is not None else next(iter(prices), None)
        self._log = TaskLog(study.folder / LOG_NAME)
        self._tallies: dict[str, Tally] = {}
        self._rule: RuleStatus | None = None
        self._total: Total | None = None
        self._due = 0.0  # when the rule is checked again

    def read(self) -> Status:
        """Return the study's status now."""
        claims, now = self._read_ledger(), time.time()
        failures = [
            Failure(name, error, count)
            for name, tally in self._tallies.items()
            for error, count in tally.errors.items()
        ]
        if self._study.recipe.name in self._tallies:
            self._check_rule()
        return Status(
            study=self._study.name,
            time=datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds"),
            studied=self._study.recipe.name,
            endpoints=self._endpoints,
            recipes=tuple(self._recipe(name, claims, now) for name in self._tallies),
            rule=self._rule,
            failures=tuple(sorted(failures, key=lambda failure: -failure.count)),
            workers=tuple(self._workers(claims, now)),
            drivers=tuple(
                DriverStatus(holder, recipe, len(held), min(each.seconds_left for each in held))
                for (recipe, holder), group in groupby(claims, lambda each: (each.recipe, each.holder))
                for held in [list(group)]
            ),
        )

    def _read_ledger(self) -> list[CurrentClaim]:
        """Count the evaluations that are new, and return the present claims."""
        study = self._study
        with suppress(NoLedger), study.ledger(create=False) as ledger:
            if study.name not in ledger.studies():
                return []
            claims = ledger.claims(study.name)
            for recipe in ledger.recipes(study.name):
                tally = self._tallies.setdefault(recipe.name, Tally())
                found, tally.mark = ledger.evaluations_since(study.name, recipe.name, tally.mark)
                for evaluation in found:
                    tally.add(evaluation)
            return claims
        return []

    def _check_rule(self) -> None:
        """Update the stopping rule's status and the expected total."""
        tally, rule = self._tallies[self._study.recipe.name], self._study.config.stop.rule
        watches_credits = any(isinstance(leaf, CreditRule) for leaf in rule.leaves())
        if not watches_credits or (self._live and len(tally.attempted) > MOST_LOOKED):
            clock = tally.design_clock
            look = Look(len(tally.attempted), clock.worker_seconds, clock.active_seconds, None, {})
            self._rule = rule.status([look])
            expected = self._rule.evaluations
            certain = all(isinstance(leaf, Evaluations) for leaf in rule.leaves())
            self._total = None if expected is None else Total(self._endpoints + expected, certain)
            return
        began = time.monotonic()
        if began >= self._due:
            schedule = self._study.schedule()
            schedule.catch_up()
            self._rule, self._total = schedule.rule_status(), schedule.total()
            self._due = time.monotonic() + PATIENCE * (time.monotonic() - began)

    def _recipe(self, name: str, claims: Sequence[CurrentClaim], now: float) -> RecipeStatus:
        tally, studied = self._tallies[name], name == self._study.recipe.name
        every = tally.done.total()
        done = sum(tally.done[purpose] for purpose in DESIGN) if studied else every - tally.done["pilot"]
        total = self._total if studied else None
        if total is not None and total.evaluations < done:  # the limit was lowered since
            total = Total(done, total.certain)
        reached = studied and self._rule is not None and self._rule.reached
        left = None if total is None else 0 if reached else max(0, total.evaluations - done)
        hours, rate, each = tally.clock.worker_seconds / HOUR, tally.rate, tally.done_seconds / every if every else None
        hours_left = None if left is None or each is None else left * each / HOUR
        return RecipeStatus(
            name=name,
            done=done,
            others=every - done,
            failed=tally.failed.total() - tally.failed["pilot"],
            under_way=sum(each.recipe == name for each in claims),
            total=None if total is None else total.evaluations,
            certain=total is not None and total.certain,
            per_minute_lately=tally.lately(now, WINDOW) / (WINDOW / 60),
            per_minute_overall=None if tally.overall is None else 60 * tally.overall,
            seconds_each=1 / rate if rate else None,
            seconds_left=0.0 if left == 0 else None if left is None or rate is None else left / rate,
            worker_hours=hours,
            worker_hours_left=hours_left,
            cost=None if self._price is None else hours * self._price,
            cost_left=None if self._price is None or hours_left is None else hours_left * self._price,
        )

    def _workers(self, claims: Sequence[CurrentClaim], now: float) -> list[WorkerStatus]:
        """Return all workers: the busy ones first, then those seen last."""
        assigned = self._log.assigned()
        busy = {}
        for claim in claims:
            key = claim.coalition, claim.replicate
            if key in assigned:
                worker, since = assigned[key]
                busy[worker, claim.recipe] = claim, since
        known = {(worker, name) for name, tally in self._tallies.items() for worker in tally.workers}
        found = []
        for worker, recipe in known | set(busy):
            tally = self._tallies[recipe].workers.get(worker, WorkerTally())
            claim, since = busy.get((worker, recipe), (None, 0.0))
            found.append(
                WorkerStatus(
                    name=worker,
                    recipe=recipe,
                    done=tally.done,
                    failed=tally.failed,
                    mean_seconds=tally.seconds / tally.done if tally.done else None,
                    coalition=claim.coalition if claim else None,
                    replicate=claim.replicate if claim else None,
                    busy_seconds=max(0.0, now - since) if claim else None,
                    last_seen=max(0.0, now - max(since, tally.last_finish)),
                )
            )
        return sorted(found, key=lambda each: (each.coalition is None, each.last_seen, each.name))
