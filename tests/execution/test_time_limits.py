from dataclasses import replace

import pytest
from toy_evaluators import done

from diffcredit.errors import UserError
from diffcredit.execution import Task, time_limits
from diffcredit.execution.time_limits import TimeLimits, check_timeout, representative

MINUTE, HOUR = 60, 3600


@pytest.mark.parametrize(
    ("timeout", "longest", "limit"),
    [
        (None, None, 24 * HOUR),
        (None, 1.0, 10 * MINUTE),
        (None, 60.0, 10 * MINUTE),
        (None, 90.0, 15 * MINUTE),
        (None, 5 * HOUR, 50 * HOUR),
        (30.0, None, 30.0),
        (30.0, 5 * HOUR, 30.0),
    ],
)
def test_ten_times_the_longest_at_least_ten_minutes_or_as_asked(timeout, longest, limit):
    limits = TimeLimits(timeout)
    if longest is not None:
        limits.record("evaluation", longest)
        limits.record("evaluation", longest / 2)
    assert limits.limit("evaluation") == limit
    assert limits.limit("evaluator") == (timeout or 24 * HOUR)


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_refuses_what_is_no_time(wrong):
    with pytest.raises(UserError, match=r"^timeout: .*; must be more than 0 seconds$"):
        check_timeout(wrong)


def test_endpoints_and_failures_tell_nothing_of_how_long_others_take():
    evaluation = done(Task("0110", 0, "estimate"), 1.0)
    assert representative(evaluation)
    assert not representative(replace(evaluation, status="failed", values=(), error="NaN"))
    for endpoint in ("0000", "1111"):
        assert not representative(replace(evaluation, coalition=endpoint))


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so."""
    passed = [1000.0]
    monkeypatch.setattr(time_limits.time, "monotonic", lambda: passed[0])
    return passed


def test_time_in_which_nobody_looked_hardly_counts(clock):
    watch = TimeLimits(None)
    for _ in range(3):
        clock[0] += 1.0
        watch.read()
    assert watch.now == 3.0
    clock[0] += 3 * 24 * HOUR  # over the weekend
    assert watch.read() == 3.0 + time_limits.PAUSE
