import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from diffcredit.report.plot import nice_ticks, plot

from .made_up import table


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_few_and_round_and_within(low, span):
    high = low + span
    assume(span > 1e-9 * abs(low))
    ticks = nice_ticks(low, high)
    assert 2 <= len(ticks) <= 8
    slack = 1e-9 * max(abs(low), abs(high))
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    step = (ticks[-1] - ticks[0]) / (len(ticks) - 1)
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-6)
    assert min(abs(mantissa - nice) for nice in (1, 2, 5)) < 1e-3


def test_positions_are_linear_with_a_margin_at_both_ends():
    # intervals span [0, 4] around credits 1 and 3: with 4 % margins the axis is [−0.16, 4.16]
    drawn = plot(table((1.0, 3.0), half_width=1.0))
    assert [row.standing.contributor for row in drawn.rows] == ["B", "A"]
    top = drawn.rows[0]
    assert (top.left, top.dot, top.right) == pytest.approx(
        (100 * 2.16 / 4.32, 100 * 3.16 / 4.32, 100 * 4.16 / 4.32), abs=1e-3
    )
    assert drawn.average == pytest.approx(50)
    assert drawn.zero == pytest.approx(100 * 0.16 / 4.32, abs=1e-3)


def test_a_high_level_does_not_hide_differences():
    drawn = plot(table((1000.0, 1001.0, 1002.0), half_width=0.1))
    assert drawn.zero is None
    dots = [row.dot for row in drawn.rows]
    assert dots[0] - dots[-1] > 80


def test_tick_labels_are_the_values_at_their_places():
    drawn = plot(table((-0.3, 0.1, 0.4), half_width=0.1))
    low, high = -0.4 - 0.04 * 0.9, 0.5 + 0.04 * 0.9
    for position, label in drawn.ticks:
        assert float(label.replace("−", "-")) == pytest.approx(low + position / 100 * (high - low), abs=1e-4)


def test_equal_exact_credits_still_have_an_axis():
    for credit in (0.0, 5.0):
        drawn = plot(table((credit, credit), half_width=0.0))
        assert [row.dot for row in drawn.rows] == [50, 50]


def test_an_unknown_interval_has_a_dot_alone():
    top = plot(table((1.0, 0.0), low=(-math.inf, -1.0), high=(math.inf, 1.0))).rows[0]
    assert (top.left, top.right) == (None, None)


def test_beyond_forty_contributors_only_both_ends_are_named():
    credit = tuple(float(i) for i in range(300))
    drawn = plot(table(credit))
    assert len(drawn.rows) == 300
    named = [row.standing.contributor for row in drawn.rows if row.named]
    assert named == [str(i) for i in (*range(299, 284, -1), *range(14, -1, -1))]
    assert drawn.unnamed == 270
    assert plot(table(credit[:40])).unnamed == 0
