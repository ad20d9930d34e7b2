import itertools
import math

import pytest

from credit.made_up_looks import credits, look
from diffcredit.credit.precision import Correlation, TopK, Width
from diffcredit.credit.stopping import AllOf, AnyOf, Evaluations, Money, Time
from diffcredit.errors import UserError


def test_evaluations():
    rule = Evaluations(100)
    assert [rule.reached([look(count)]) for count in (99, 100, 101)] == [False, True, True]
    assert not rule.reached([])
    assert rule.status([]).evaluations == rule.status([look(40)]).evaluations == 100
    assert rule.max_evaluations() == 100
    assert rule.status([look(40)]).now == "40"


@pytest.mark.parametrize("rule", [Time(2), Money(amount=10, per_hour=5)])
def test_clocks(rule):
    """Both are two hours: of the clock on the wall, and of workers at 5 an hour."""
    assert not rule.reached([])
    assert not rule.reached([look(10, worker=7199, elapsed=7199)])
    assert rule.reached([look(10, worker=7200, elapsed=7200)])
    assert rule.max_evaluations() is None
    assert rule.bounded()


def test_clocks_are_told_apart():
    four_workers = [look(10, worker=4 * 3600, elapsed=3600)]
    assert not Time(2).reached(four_workers)
    assert Money(amount=10, per_hour=5).reached(four_workers)
    assert Time(2).status(four_workers).now == "1 hours"
    assert Money(100, 5).status(four_workers).now == "20.00"


def test_clocks_foresee_by_the_rate_so_far():
    """30 evaluations in half an hour, each 2 minutes of a worker: 6 hours hold 360, 100 coins buy 1,500 minutes."""
    looks = [look(30, worker=3600, elapsed=1800)]
    assert Time(6).status(looks).evaluations == 360
    assert Money(100, per_hour=4).status(looks).evaluations == 25 * 60 / 2
    assert Time(6).status([]).evaluations is None
    assert Time(6).status([look(0, worker=10, elapsed=10)]).evaluations is None
    assert Time(0.1).status(looks).evaluations == 30  # reached


@pytest.mark.parametrize("states", itertools.product([False, True], repeat=3))
def test_combinations_are_logic(states):
    a, b, c = (Evaluations(10 if state else 30) for state in states)
    looks = [look(20)]
    assert (a & b).reached(looks) == (states[0] and states[1])
    assert (a | b).reached(looks) == (states[0] or states[1])
    assert (a & b | c).reached(looks) == ((states[0] and states[1]) or states[2])
    assert (a & (b | c)).reached(looks) == (states[0] and (states[1] or states[2]))


def test_combinations_foresee_the_first_or_the_last():
    looks = [look(30, {"x": credits(correlation=0.0)}, elapsed=1800)]
    assert (Evaluations(100) | Time(6)).status(looks).evaluations == 100
    assert (Evaluations(100) & Time(6)).status(looks).evaluations == 360
    never = Correlation(0.9)  # from a correlation of zero, nobody can tell
    assert never.status(looks).evaluations is None
    assert (Evaluations(100) | never).status(looks).evaluations == 100
    assert (Evaluations(100) & never).status(looks).evaluations is None
    assert (never | never).status(looks).evaluations is None


def test_what_is_bounded():
    bounded, open_ended = (Evaluations(9), Time(1), Money(1, 1)), (Correlation(0.9), Width(1), TopK(1, 0.9))
    for rule in bounded:
        assert rule.bounded()
    for rule, limit in itertools.product(open_ended, bounded):
        assert not rule.bounded()
        assert (rule | limit).bounded()
        assert not (rule & limit).bounded()
        assert ((rule & limit) | limit).bounded()


def test_the_most_evaluations():
    many, few, clock = Evaluations(500), Evaluations(100), Time(1)
    assert (many | few).max_evaluations() == 100
    assert (many & few).max_evaluations() == 500
    assert (many | clock).max_evaluations() == 500
    assert (many & clock).max_evaluations() is None
    assert ((many & clock) | few).max_evaluations() == 100


def test_the_reason_names_what_was_reached():
    rule = AnyOf((Evaluations(500), Time(9), AllOf((Width(2.0), Correlation(0.8)))))
    good = {"x": credits(width=1.5, correlation=0.81)}
    looks = [look(40, good, elapsed=10), look(80, good, elapsed=20)]
    assert rule.status(looks).reason() == "width ≤ 2, now 1.5 and correlation ≥ 0.8, 85 % sure, now 0.81"
    assert rule.status([look(500)]).reason() == "500 evaluations"
    assert [part.reached for part in rule.status(looks).parts] == [False, False, True]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Evaluations(0),
        lambda: Time(0),
        lambda: Time(math.inf),
        lambda: Money(-1, 1),
        lambda: Money(1, 0),
        lambda: Correlation(1.0),
        lambda: Correlation(0.0),
        lambda: Width(0),
        lambda: Width(math.nan),
        lambda: TopK(0, 0.9),
        lambda: TopK(1, 1.1),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(UserError, match="accepted"):
        make()


def test_a_joined_rule_tells_its_parts():
    rule = (Evaluations(500) & Correlation(0.9)) | Money(200, per_hour=2.5)
    assert str(rule) == ("any of (all of (500 evaluations; correlation ≥ 0.9, 85 % sure); 200 spent at 2.5 an hour)")
