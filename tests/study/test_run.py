"""``study.plan()``, ``run()`` and ``status()`` as a library user calls them."""

import pytest

from diffcredit.execution import InProcess
from diffcredit.execution.threads import limited_threads
from diffcredit.study.observer import Observer
from diffcredit.study.study import Study
from tiny_study import rows, write_small

FRAGILE = """
from diffcredit.retraining.fine_tune import FineTune

class Fragile(FineTune):
    def models_for(self, coalitions, seeds):
        for coalition, seed in zip(coalitions, seeds):
            if coalition.sum() == 1:
                raise RuntimeError("too small")
            yield from super().models_for(coalition[None], [seed])
"""


class Recorder(Observer):
    """Notes every call, and how many evaluations the ledger had by then."""

    def __init__(self, folder):
        self.folder, self.calls = folder, []

    def on_contributions(self, contributions):
        self.calls.append(("contributions", contributions.n))

    def on_quality(self, comparisons):
        self.calls.append(("quality", list(comparisons)))

    def on_surrogates(self, without):
        self.calls.append(("surrogates", list(without)))

    def on_evaluation(self, evaluation):
        ((recorded,),) = rows(self.folder, "SELECT count(*) FROM evaluations")
        self.calls.append((evaluation.status, recorded))


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A study of which the coalitions of one contributor fail, its observer and its result."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "fragile_for_runs.py").write_text(FRAGILE)
    retraining = {"method": "fragile_for_runs:Fragile", "steps": 1}
    study = Study.load(write_small(folder, {"retraining": retraining, "surrogates": ["real_data"]}))
    observer = Recorder(folder)
    with limited_threads(1):
        return study, observer, study.run(InProcess(), observer=observer)


def test_a_run_reports_in_order_and_after_recording(ran):
    _, observer, result = ran
    assert observer.calls[:3] == [("contributions", 3), ("quality", []), ("surrogates", [])]
    outcomes = [each.status for each in result.evaluations]
    assert observer.calls[3:] == list(zip(outcomes, range(1, 11), strict=True))


def test_the_result_of_a_run(ran):
    study, _, result = ran
    assert len(result.evaluations) == 10
    assert {each.coalition.count("1") for each in result.failed} == {1}
    assert result.reason == "8 evaluations"
    assert (result.quality, result.signals) == ((), {})  # nothing was pruned, and there was no pilot
    with limited_threads(1):
        again = study.run(workers=1)
    assert [each.key for each in again.evaluations] == [each.key for each in result.failed]


def test_the_status_of_what_ran(ran):
    study, _, result = ran
    status = study.status()
    (recipe,) = status.recipes
    assert (status.study, status.studied, status.endpoints) == ("tiny", study.recipe.name, 2)
    assert (recipe.done, recipe.total, recipe.certain) == (10 - len(result.failed), 10, True)
    assert recipe.failed % len(result.failed) == 0
    assert [failure.error for failure in status.failures] == ["RuntimeError: too small"]


def test_the_plan_of_what_is_left(ran):
    study, _, result = ran
    plan = study.plan(workers=1)
    assert (plan.base.done, plan.surrogates.done, plan.preparation) == (True, True, None)
    assert (plan.left, plan.total.evaluations, plan.total.certain) == (len(result.failed), 10, True)
    assert plan.seconds_left == plan.evaluations.seconds + plan.startup.seconds > plan.startup.seconds > 0
    assert plan.pilot is None
    low, high = plan.range_left
    assert low < plan.seconds_left < high
