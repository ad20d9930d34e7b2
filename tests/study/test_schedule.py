"""The order of tasks and the end of a study, with toy evaluations in place of models."""

import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, pairwise

import numpy as np
import pytest

from diffcredit.coalitions import encode, make_design
from diffcredit.credit.stopping import Look
from diffcredit.errors import UserError
from diffcredit.execution import Task
from diffcredit.ledger import Evaluation, PropertyRecord, Value
from diffcredit.study.config import StudyConfig
from diffcredit.study.crediting import estimate_all
from diffcredit.study.schedule import (
    Clock,
    Schedule,
    check_schedule,
    look_step,
    next_look,
    rows,
    studied,
)
from tiny_study import CONFIG, changed

N = 8
CREDITS = np.linspace(-1, 1, N)
BEGINNING = datetime(2025, 1, 1, tzinfo=UTC)
PROPERTIES = {"quality": True}


def config(stop, **changes):
    return StudyConfig.model_validate(changed(CONFIG, {"stop": stop, "properties": ["quality"], **changes}))


ESTIMATED = {}


def credits_of(evaluations):
    """The credits, estimated once for each set of values: test after test looks at the same prefixes."""
    key = frozenset((*each.key, each.values) for each in evaluations)
    if key not in ESTIMATED:
        ESTIMATED[key] = estimate_all(evaluations, PROPERTIES, config({"hours": 1}))[0]
    return ESTIMATED[key]


def schedule_of(stop, recorded=(), n=N, **changes):
    schedule = Schedule(config(stop, **changes), n, PROPERTIES, credits_of)
    for evaluation in recorded:
        schedule.record(evaluation)
    return schedule


def evaluation(task, start=0.0, seconds=1.0, failed=False, noise=0.5):
    """An additive game with noise that follows from the task alone."""
    chance = random.Random(repr(task))
    members = np.array([member == "1" for member in task.coalition])
    value = float(members @ CREDITS[: len(members)]) + noise * chance.gauss(0, 1) * (task.purpose == "estimate")
    stamps = [(BEGINNING + timedelta(seconds=time)).isoformat() for time in (start, start + seconds)]
    return Evaluation(
        coalition=task.coalition,
        replicate=task.replicate,
        purpose=task.purpose,
        status="failed" if failed else "done",
        values=() if failed else (Value("quality", value),),
        error="broken" if failed else None,
        numerics={},
        seconds={},
        worker="w",
        started=stamps[0],
        finished=stamps[1],
    )


@dataclass
class Crew:
    """An executor of toy evaluations: as many under way as there are workers, finished in a random order."""

    workers: int
    seed: int = 0
    seconds: float = 1.0
    failing: frozenset = frozenset()
    noise: float = 0.5
    begin: float = 0.0

    def work(self, schedule, most=10_000):
        """Everything that the schedule asks for, in the order in which it was finished."""
        chance, clock, tasks = random.Random(self.seed), self.begin, schedule.pending()
        busy, results, open_ended = [], [], True
        while True:
            while open_ended and len(busy) < self.workers and len(results) < most:
                task = next(tasks, None)
                if task is None:
                    open_ended = False
                else:
                    busy.append((task, clock))
            if not busy:
                return results
            task, start = busy.pop(chance.randrange(len(busy)))
            clock = max(clock, start) + self.seconds / self.workers
            made = evaluation(task, start, clock - start, task in self.failing, self.noise)
            schedule.record(made)
            results.append(made)


def tasks_in(evaluations):
    return [Task(e.coalition, e.replicate, e.purpose) for e in evaluations]


def test_evaluations_alone_are_exactly_the_designs_first():
    made = Crew(workers=3).work(schedule_of({"evaluations": 100}))
    drawn = [encode(row) for row in make_design("uniform", 0).draw(N, 0, 100)]
    replicates = Counter()
    expected = [Task("0" * N, 0, "endpoint"), Task("1" * N, 0, "endpoint")]
    for coalition in drawn:
        expected.append(Task(coalition, replicates[coalition], "estimate"))
        replicates[coalition] += 1
    assert sorted(tasks_in(made), key=repr) == sorted(expected, key=repr)


def test_evaluations_alone_estimate_nothing():
    def forbidden(evaluations):
        raise AssertionError("credits were estimated")

    schedule = Schedule(
        config({"any": [{"evaluations": 90}, {"all": [{"hours": 1}, {"evaluations": 10}]}]}), N, {}, forbidden
    )
    assert len(Crew(workers=2, seconds=0.001).work(schedule)) == 92
    schedule.catch_up()
    assert schedule.rule_status().reached


CORRELATION = {"any": [{"evaluations": 900}, {"correlation": 0.9}]}


def stopped_at(schedule):
    schedule.catch_up()
    standing = schedule.rule_status()
    assert standing.reached
    return standing.evaluations


@pytest.fixture(scope="module")
def alone():
    """One worker's evaluations of the study that stops by correlation: it ends at a look."""
    return Crew(workers=1, noise=2.0).work(schedule_of(CORRELATION))


def test_a_correlation_ends_the_study_at_a_look(alone):
    """The first of the looks at 40, 80, … at which the correlation has held twice, found here by brute force."""
    ends = [len(alone) - 2]
    good = []
    for end in range(40, len(alone) - 1, 40):
        prefix = tasks_in(alone)[: end + 2]
        credits = credits_of([evaluation(task, noise=2.0) for task in prefix])["quality"]
        good.append(credits.diagnostics["assured_correlation"] >= 0.9)
        if good[-2:] == [True, True]:
            ends.append(end)
            break
    assert 80 <= ends[0] < 900
    assert ends[0] == ends[1]
    assert list(schedule_of(CORRELATION, alone).pending()) == []
    assert stopped_at(schedule_of(CORRELATION, alone)) == ends[0]


@pytest.mark.parametrize(("workers", "seed"), [(2, 0), (16, 3)])
def test_whether_it_stops_depends_on_no_worker(alone, workers, seed):
    made = Crew(workers, seed, noise=2.0).work(schedule_of(CORRELATION))
    assert set(tasks_in(alone)) <= set(tasks_in(made))
    # what the last of the prefix kept others busy with; in the worst case as long as one evaluation takes
    assert len(made) - len(alone) <= 10 * workers
    assert stopped_at(schedule_of(CORRELATION, made)) == len(alone) - 2
    # and again in any order of recording
    random.Random(seed).shuffle(made)
    assert stopped_at(schedule_of(CORRELATION, made)) == len(alone) - 2


@pytest.mark.parametrize("cut", [1, 39, 60])
def test_a_resumed_run_ends_where_the_undisturbed_one_does(alone, cut):
    begun = Crew(3, seed=cut, noise=2.0).work(schedule_of(CORRELATION), most=cut)
    ended = Crew(1, noise=2.0).work(schedule_of(CORRELATION, begun))
    assert not set(tasks_in(begun)) & set(tasks_in(ended))
    assert set(tasks_in(alone)) <= set(tasks_in(begun + ended))
    assert stopped_at(schedule_of(CORRELATION, begun + ended)) == len(alone) - 2


def test_failed_evaluations_count_as_made_and_are_tried_again(alone):
    failing = frozenset(tasks_in(alone)[20:23])
    made = Crew(2, noise=2.0, failing=failing).work(schedule_of(CORRELATION))
    assert len([e for e in made if e.status == "failed"]) == 3
    schedule = schedule_of(CORRELATION, made)
    again = Crew(1, noise=2.0, failing=failing).work(schedule)  # still broken: nothing changes
    assert set(tasks_in(again)) == failing
    mended = Crew(2, noise=2.0).work(schedule_of(CORRELATION, made + again))
    assert failing <= set(tasks_in(mended))
    assert stopped_at(schedule_of(CORRELATION, made + again + mended)) == len(alone) - 2


def test_a_failed_endpoint_leaves_the_bound():
    endpoint = frozenset([Task("1" * N, 0, "endpoint")])
    made = Crew(1, failing=endpoint).work(schedule_of({"any": [{"evaluations": 130}, {"correlation": 0.01}]}))
    assert len(made) == 132


@pytest.mark.parametrize(("workers", "expected"), [(1, 60), (4, 240)])
def test_hours_are_those_of_the_clock_and_money_is_for_workers_hours(workers, expected):
    made = Crew(workers, seconds=60.0).work(schedule_of({"hours": 1}))
    assert len(made) == pytest.approx(expected, abs=2 * workers)
    paid = Crew(workers, seconds=60.0).work(schedule_of({"money": {"amount": 5, "per_hour": 2.5}}))
    assert Clock(paid).worker_seconds == pytest.approx(7200, rel=0.15)


def test_time_goes_on_in_a_resumed_run():
    rule = {"hours": 1}
    begun = Crew(1, seconds=60.0).work(schedule_of(rule), most=40)
    ended = Crew(1, seconds=60.0, begin=1e6).work(schedule_of(rule, begun))  # days later
    assert len(begun) + len(ended) == pytest.approx(60, abs=1)


@pytest.mark.parametrize(("evaluations", "made"), [(90, 92), (10, 60)])
def test_all_of_a_time_and_a_number(evaluations, made):
    rule = {"all": [{"hours": 1}, {"evaluations": evaluations}]}
    assert len(Crew(1, seconds=60.0).work(schedule_of(rule))) == made


@pytest.mark.parametrize(("design", "size"), [("exhaustive", 2**6 - 2), ("leave-one-out", 6)])
def test_finite_designs_end_where_they_end(design, size):
    for stop in ({"hours": 100}, {"any": [{"evaluations": 500}, {"correlation": 0.9999}]}):
        schedule = schedule_of(stop, n=6, **{"design.distribution": design})
        assert len(Crew(3).work(schedule)) == size + 2
        assert not schedule.rule_status().reached
        assert schedule.total().evaluations == size + 2


@pytest.mark.parametrize("most", [None, 1, 62, 65, 300])
def test_rows_are_those_of_one_draw(most):
    for name, n in (("exhaustive", 2), ("exhaustive", 6), ("uniform", 9)):
        if most or name == "exhaustive":
            size = min(most or 1000, 2**n - 2) if name == "exhaustive" else most
            drawn = list(rows(make_design(name, 3), n, most))
            np.testing.assert_array_equal(drawn, make_design(name, 3).draw(n, 0, size))
    with pytest.raises(UserError, match="at most 16"):
        list(rows(make_design("exhaustive"), 17, most))


@pytest.mark.parametrize(("n", "step"), [(2, 40), (80, 40), (81, 41), (258, 129)])
def test_looks_are_so_far_apart(n, step):
    assert (look_step(n), next_look(0, n), next_look(10 * step, n)) == (step, step, 11 * step)
    assert next_look(20 * step, n) == 22 * step  # from there on, a tenth of the coalitions


def test_clocks_of_evaluations():
    task = Task("0" * N, 0, "endpoint")
    spans = [(0, 10), (5, 10), (100, 3), (101, 1), (103, 4)]
    made = [evaluation(task, start, seconds) for start, seconds in spans]
    assert Clock(made).worker_seconds == pytest.approx(28)
    assert Clock(reversed(made)).active_seconds == pytest.approx(15 + 7)
    assert Clock().active_seconds == Clock().worker_seconds == 0
    backwards = [evaluation(task, 10, -5)]  # a clock that was set back
    assert Clock(backwards).active_seconds == Clock(backwards).worker_seconds == 0
    chance = random.Random(0)
    spans = [(chance.randrange(1000), chance.randrange(30)) for _ in range(60)]
    covered = {second for start, seconds in spans for second in range(start, start + seconds)}  # brute force
    for _ in range(3):  # in any order
        chance.shuffle(spans)
        clock = Clock(evaluation(task, start, seconds) for start, seconds in spans)
        assert clock.active_seconds == len(covered)
        assert clock.worker_seconds == sum(seconds for _, seconds in spans)


def test_totals():
    assert schedule_of({"evaluations": 30}).total().evaluations == 32
    assert schedule_of({"evaluations": 30}).total().certain
    clock = schedule_of({"any": [{"hours": 1}, {"correlation": 0.9}]})
    assert clock.total() is None
    assert clock.total(Look(1, 20.0, 10.0, None, {})).evaluations == 360 + 2
    for task in clock.endpoints:
        clock.record(evaluation(task, 0, 0))
    for index, task in enumerate(islice(clock.coalitions(), 10)):
        clock.record(evaluation(task, 36 * index, 36))
    assert (clock.total().evaluations, clock.total().certain) == (102, False)


def test_progress_says_what_is_only_estimated():
    told = []
    for stop in ({"evaluations": 30}, {"hours": 1}):
        schedule = schedule_of(stop)
        schedule.record(evaluation(schedule.endpoints[0]))
        schedule.report_progress(lambda *what: told.append(what))
    assert told == [("evaluating coalitions", 1, 32), ("evaluating coalitions (estimated total)", 1, 2)]


def test_checks_before_a_run():
    check = partial(check_schedule, n=N, properties=["quality"])
    check(config({"any": [{"evaluations": 9}, {"top": {"k": N - 1, "property": "quality"}}]}))
    with pytest.raises(UserError, match=r"top\.k: 8 of 8 contributors; fewer than all are accepted"):
        check(config({"any": [{"evaluations": 9}, {"top": {"k": N}}]}))
    plugin = {"properties": ["somewhere:Quality"]}
    with pytest.raises(UserError, match="stop: property 'Quality' is not one of the study's; accepted: quality"):
        check(config({"any": [{"evaluations": 9}, {"width": {"at_most": 1, "property": "Quality"}}]}, **plugin))
    with pytest.raises(UserError, match=r"stop\.evaluations: coalitions 0 to 255: the exhaustive design of 8"):
        check(config({"evaluations": 255}, **{"design.distribution": "exhaustive"}))
    check(config({"any": [{"evaluations": 255}, {"hours": 1}]}, **{"design.distribution": "exhaustive"}))
    with pytest.raises(UserError, match=r"design\.distribution: .*at most 16"):
        check_schedule(config({"hours": 1}, **{"design.distribution": "exhaustive"}), 17, ["quality"])


def test_properties_of_other_study_files_do_not_count():
    sections = ["colourfulness", {"name": "colourfulness", "as": "vivid", "percentile": 90}, "mine:Warmth"]
    names = {
        "colourfulness": "colourfulness",
        "vivid": "colourfulness",
        "pale": "colourfulness",
        "warmth": "mine:Warmth",
    }
    records = [PropertyRecord(name, {"name": of}, name != "warmth") for name, of in {**names, "old": "older"}.items()]
    found = studied(config({"hours": 1}, properties=sections), records)
    assert found == {"colourfulness": True, "vivid": True, "warmth": False}


def test_all_looks_together_see_at_most_twelve_times_the_evaluations():
    looked = []
    settings = config({"any": [{"evaluations": 1500}, {"correlation": 0.999}]})
    schedule = Schedule(settings, N, PROPERTIES, lambda some: looked.append(len(some)) or {})
    Crew(workers=7).work(schedule)
    assert looked[:10] == [40 * look + 2 for look in range(1, 11)]  # the endpoints are there too
    assert looked == sorted(set(looked))
    assert all(later <= 1.101 * earlier for earlier, later in pairwise(looked[10:]))
    assert sum(looked) < 12 * 1500
