"""A study's pilot: in the ledger, resumable, the same whoever evaluates it, and no part of the credits."""

import itertools

import numpy as np
import pytest

from diffcredit.credit.planning import signal_to_noise
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.execution import InProcess, LocalWorkers
from diffcredit.execution.threads import limited_threads
from diffcredit.ledger.purposes import PILOT_REPLICATE
from diffcredit.study.config import read_config
from diffcredit.study.pilot import pilot_tasks, pilots, run_pilot, signals, warn_of_noise
from diffcredit.study.study import Study
from tiny_study import recorded_values, rows, run_here, write_small, write_study

PURPOSES = "SELECT coalition, replicate, purpose, status FROM evaluations ORDER BY id"


def small(folder, changes=None):
    return write_small(folder, changes, "ada bob cem dan")


def piloted(file, coalitions=4, replicates=3, executor=None):
    with limited_threads(1):
        return list(run_pilot(Study.load(file).recipe, executor or InProcess(), coalitions, replicates))


def test_coalitions_of_half_the_contributors_each_with_its_seeds(tmp_path):
    config = read_config(write_study(tmp_path))
    tasks = pilot_tasks(config, 11, 4, 3)
    assert len(set(tasks)) == 12
    assert {task.coalition.count("1") for task in tasks} in ({5}, {6})
    assert {task.purpose for task in tasks} == {"pilot"}
    assert set(pilot_tasks(config, 11, 4, 3)) < set(pilot_tasks(config, 11, 6, 5))  # more only add
    assert len({task.coalition for task in pilot_tasks(config, 3, 10, 2)}) == 3  # all there are
    other = read_config(write_study(tmp_path, {"seed": 1}))
    assert set(pilot_tasks(other, 11, 4, 3)) != set(tasks)


def test_no_estimate_has_a_pilots_replicate(tmp_path):
    """The ledger knows an evaluation by its coalition and replicate alone; of 3 contributors all come again soon."""
    file = write_small(tmp_path, {"stop.evaluations": 12})
    piloted(file, 3, 2)
    run_here(file)
    found = rows(tmp_path, PURPOSES)
    assert sum(purpose == "estimate" for *_, purpose, _ in found) == 12
    assert {replicate >= PILOT_REPLICATE for _, replicate, purpose, _ in found if purpose == "pilot"} == {True}
    assert run_here(file) == []


def test_a_pilot_is_recorded_as_such_and_resumed(tmp_path):
    file = small(tmp_path)
    with limited_threads(1):
        some = run_pilot(Study.load(file).recipe, InProcess(), 3, 2)
        first = list(itertools.islice(some, 2))
        some.close()
    assert len(piloted(file, 3, 2)) == 4
    assert piloted(file, 3, 2) == []
    assert len(piloted(file, 3, 3)) == 3
    found = rows(tmp_path, PURPOSES)
    assert [purpose for *_, purpose, _ in found] == ["pilot"] * 9
    assert len({(coalition, replicate) for coalition, replicate, *_ in found}) == 9
    assert first[0].coalition == found[0][0]


@pytest.mark.slow
def test_workers_give_the_same_bits(tmp_path):
    one, two = small(tmp_path / "one"), small(tmp_path / "two")
    piloted(one)
    made = piloted(two, executor=LocalWorkers(2))
    assert len({evaluation.worker for evaluation in made}) == 2
    assert recorded_values(one.parent) == recorded_values(two.parent)


def test_credits_and_schedule_know_nothing_of_it(tmp_path):
    plain, after = small(tmp_path / "plain"), small(tmp_path / "after")
    run_here(plain)
    piloted(after)
    schedule = Study.load(after).schedule()
    assert (schedule.finished, schedule.evaluated()) == (0, [])
    run_here(after)
    expected, found = (Study.load(file).credits()["colourfulness"] for file in (plain, after))
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.high, expected.high)
    assert Study.load(after).schedule().finished == 10


def test_what_it_tells_is_in_its_values(tmp_path):
    file = small(tmp_path)
    assert pilots(Study.load(file).recipe) == {}
    made = piloted(file, 4, 3)
    groups = {}
    for evaluation in made:
        groups.setdefault(evaluation.coalition, []).append(evaluation.values[0].value)
    values = np.array(list(groups.values()))
    within = values.var(axis=1, ddof=1).mean()
    told = pilots(Study.load(file).recipe)["colourfulness"]
    assert told.within == pytest.approx(np.sqrt(within))
    assert told.between == pytest.approx(np.sqrt(max(0, values.mean(axis=1).var(ddof=1) - within / 3)))
    errors = [evaluation.values[0].standard_error for evaluation in made]
    assert told.images == pytest.approx(np.sqrt(np.mean(np.square(errors))))


@pytest.mark.parametrize(("coalitions", "replicates"), [(1, 3), (4, 1)])
def test_too_small_a_pilot_is_refused_before_anything_is_trained(tmp_path, coalitions, replicates):
    file = small(tmp_path)
    with pytest.raises(UserError, match="at least 2 of each are accepted"):
        piloted(file, coalitions, replicates)
    assert not (tmp_path / "results").exists()


NOISE = """
from itertools import count

class Noise:
    calls = count()

    def measure(self, images):
        return float(next(self.calls) // 4 % 2)  # differs between seeds, not between the four coalitions

class Signal(Noise):
    calls = count()

    def measure(self, images):
        return float(next(self.calls) % 4)
"""


def test_noise_is_warned_of_by_the_pilot_and_then_by_the_evaluations(tmp_path, monkeypatch):
    (tmp_path / "noise_property.py").write_text(NOISE)
    changes = {"properties": ["noise_property:Noise", "noise_property:Signal"]}
    file = small(tmp_path, changes)
    warn_of_noise(signals(Study.load(file)))  # neither: no warning
    piloted(file, 4, 2)
    found = signals(Study.load(file))
    assert found["Noise"] < 0.1 < found["Signal"]
    with pytest.warns(DiffcreditWarning) as warned:
        warn_of_noise(found)
    (message,) = (str(each.message) for each in warned)
    assert message.startswith(f"Noise: signal/noise {found['Noise']:.2g} is under 0.1")
    monkeypatch.setattr("diffcredit.study.pilot.ENOUGH", 12)
    run_here(small(tmp_path, {**changes, "stop.evaluations": 12}))
    study = Study.load(file)
    sizes = [task.coalition.count("1") for task in study.schedule().coalitions()]
    told = study.credits()["Noise"].diagnostics
    assert signals(study)["Noise"] == signal_to_noise(told["tau"], told["sigma"], sizes, 4)
