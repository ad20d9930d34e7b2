"""A study's pilot: in the ledger, resumable, and no part of the credits."""

import itertools

import numpy as np
import pytest

from diffcredit.credit.planning import signal_to_noise
from diffcredit.errors import UserError
from diffcredit.execution import InProcess
from diffcredit.execution.threads import limited_threads
from diffcredit.ledger import Evaluation, Ledger, Value
from diffcredit.ledger.purposes import PILOT_REPLICATE
from diffcredit.study.config import read_config
from diffcredit.study.crediting import estimate_all
from diffcredit.study.pilot import noise_warnings, pilot_tasks, pilots, run_pilot, signal_sentences, signals
from diffcredit.study.study import Study
from planted_study import additive, plant
from tiny_study import rows, run_here, write_small, write_study


def piloted(file, coalitions, replicates, most=None):
    """The pilot's evaluations, ``most`` of them before it is interrupted."""
    with limited_threads(1):
        made = run_pilot(Study.load(file).recipe, InProcess(), coalitions, replicates)
        found = list(itertools.islice(made, most))
        made.close()
    return found


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


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study of 3 contributors, whose coalitions all come again soon, with a pilot that was interrupted and extended.

    The ledger knows an evaluation by its coalition and replicate alone.
    """
    file = write_small(tmp_path_factory.mktemp("pilot"))
    assert pilots(Study.load(file).recipe) == {}
    assert [len(piloted(file, 3, 2, most)) for most in (2, None, None)] == [2, 4, 0]
    assert len(piloted(file, 3, 3)) == 3
    schedule = Study.load(file).schedule()
    assert (schedule.finished, schedule.evaluated()) == (0, [])
    assert len(run_here(file)) == 10
    assert run_here(file) == []
    return Study.load(file)


def test_a_pilot_is_recorded_as_such_and_no_estimate_has_its_replicates(study):
    found = rows(study.file.parent, "SELECT coalition, replicate, purpose FROM evaluations ORDER BY id")
    assert [purpose for *_, purpose in found[:9]] == ["pilot"] * 9
    assert len(set(found)) == len(found) == 19
    for _, replicate, purpose in found:
        assert (replicate >= PILOT_REPLICATE) == (purpose == "pilot")


def test_credits_and_schedule_know_nothing_of_it(study):
    others = [each for each in study.evaluations() if each.purpose != "pilot"]
    expected, found = estimate_all(others, ["colourfulness"], study.config)[0], study.credits()
    np.testing.assert_array_equal(found["colourfulness"].high, expected["colourfulness"].high)
    assert study.schedule().finished == 10


def test_noise_and_signal_are_in_its_values(study):
    made = study.evaluations(purpose="pilot")
    groups = {}
    for evaluation in made:
        groups.setdefault(evaluation.coalition, []).append(evaluation.values[0].value)
    values = np.array(list(groups.values()))
    within = values.var(axis=1, ddof=1).mean()
    found = pilots(study.recipe)["colourfulness"]
    assert found.within == pytest.approx(np.sqrt(within))
    assert found.between == pytest.approx(np.sqrt(max(0, values.mean(axis=1).var(ddof=1) - within / 3)))
    errors = [evaluation.values[0].standard_error for evaluation in made]
    assert found.images == pytest.approx(np.sqrt(np.mean(np.square(errors))))


@pytest.mark.parametrize(("coalitions", "replicates"), [(1, 3), (4, 1)])
def test_too_small_a_pilot_is_refused_before_anything_is_trained(tmp_path, coalitions, replicates):
    with pytest.raises(UserError, match="at least 2 of each are accepted"):
        piloted(write_small(tmp_path), coalitions, replicates)
    assert not (tmp_path / "results").exists()


def test_noise_is_warned_of_by_the_pilot_and_then_by_the_evaluations(tmp_path):
    noise, signal = additive([0.0] * 4, noise=1.0), additive([1.0, 2.0, 3.0, 4.0], noise=0.01)
    games = {"heldout_loss": noise, "colourfulness": signal}
    few, many = (plant(tmp_path / str(count), "abcd", games, evaluations=count) for count in (2, 40))
    assert signal_sentences(Study.load(few).recipe) == []  # there is no pilot yet
    with Ledger.open(few.parent / "results/ledger.db") as ledger:
        for replicate, coalition in itertools.product(range(2), ("1100", "0011", "1010", "0101")):
            values = (
                Value("heldout_loss", float(replicate)),  # differs between seeds alone
                Value("colourfulness", float(signal(np.array([member == "1" for member in coalition])))),
            )
            seed = PILOT_REPLICATE + replicate
            rest = None, {}, {}, "somebody", *["2026-01-01T00:00:00+00:00"] * 2
            ledger.record("tiny", "sparsified", Evaluation(coalition, seed, "pilot", "done", values, *rest))
    by_pilot, study = Study.load(few), Study.load(write_study(many.parent, {"stop.evaluations": 40}))
    sizes = [task.coalition.count("1") for task in study.schedule().coalitions()]
    for name, credits in study.credits().items():
        expected = signal_to_noise(credits.diagnostics["tau"], credits.diagnostics["sigma"], sizes, 4)
        assert signals(study)[name] == expected
    for each, source in ((by_pilot, "a pilot of 8 evaluations"), (study, "40 evaluations")):
        found = signals(each)
        assert "contributions" not in vars(each), "an auditor has no images"
        assert found["heldout_loss"] < 0.1 < found["colourfulness"]
        (said,) = noise_warnings(each)
        assert said.startswith(f"heldout_loss: signal/noise {found['heldout_loss']:.2g}")
        assert f" by {source}" in said
        (other,) = set(signal_sentences(each.recipe)) - {said}
        assert f"by {source}: about " in other
        assert "evaluations should reach a correlation of 0.9" in other
