import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from diffcredit.report.plot import nice_ticks, plot
from diffcredit.report.records import Step
from diffcredit.report.waterfall import waterfall

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


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_positions_are_linear_with_a_margin_at_both_ends(higher_is_better):
    # help of −1 and 1, each ± 1: with 4 % margins the axis is [−2.16, 2.16], whichever way the property is better
    drawn = plot(table((1.0, 3.0), half_width=1.0, higher_is_better=higher_is_better))
    assert [row.standing.contributor for row in drawn.rows] == (["B", "A"] if higher_is_better else ["A", "B"])
    top = drawn.rows[0]
    expected = (100 * 2.16 / 4.32, 100 * 3.16 / 4.32, 100 * 4.16 / 4.32)
    assert (top.left, top.dot, top.right) == pytest.approx(expected, abs=1e-3)
    assert drawn.average == pytest.approx(50)


def test_a_high_level_does_not_hide_differences():
    drawn = plot(table((1000.0, 1001.0, 1002.0), half_width=0.1))
    dots = [row.dot for row in drawn.rows]
    assert dots[0] - dots[-1] > 80


def test_tick_labels_are_the_values_at_their_places():
    drawn = plot(table((-0.3, 0.0, 0.3), half_width=0.1))
    low, high = -0.4 - 0.04 * 0.8, 0.4 + 0.04 * 0.8
    for position, label in drawn.ticks:
        assert float(label.replace("−", "-")) == pytest.approx(low + position / 100 * (high - low), abs=1e-4)


def test_equal_exact_credits_still_have_an_axis():
    for credit in (0.0, 5.0):
        drawn = plot(table((credit, credit), half_width=0.0))
        assert [row.dot for row in drawn.rows] == [50, 50]


def test_an_unknown_interval_has_a_dot_alone():
    top = plot(table((1.0, 0.0), contrast_half_width=(math.inf, 1.0))).rows[0]
    assert (top.left, top.right) == (None, None)


def test_beyond_forty_contributors_only_both_ends_are_named():
    credit = tuple(float(i) for i in range(300))
    drawn = plot(table(credit))
    assert len(drawn.rows) == 300
    named = [row.standing.contributor for row in drawn.rows if row.named]
    assert named == [str(i) for i in (*range(299, 284, -1), *range(14, -1, -1))]
    assert drawn.unnamed == 270
    assert plot(table(credit[:40])).unnamed == 0


def test_a_waterfall_steps_from_the_reference_to_everybody():
    """From 10 up by 6, down by 2 and up by 4 to 18, of which the first and the last help; ± 1 around each end."""
    steps = (Step("A", 6.0, 1.0), Step("B", -2.0), Step("2 others", 4.0, 1.0))
    assert waterfall(table()) is None
    drawn = waterfall(table((6.0, -2.0, 4.0), steps=steps))
    low, span = 10 - 0.04 * 9, 1.08 * 9  # from 10 to 19
    at = [[bar.left * span / 100 + low, bar.width * span / 100, bar.end * span / 100 + low] for bar in drawn.bars]
    expected = [[10, 0, 10], [10, 6, 16], [14, 2, 14], [14, 4, 18], [18, 0, 18]]
    assert np.array(at) == pytest.approx(np.array(expected), abs=1e-3)
    assert [bar.helps for bar in drawn.bars] == [None, True, False, True, None]
    whiskers = [bar.high and (bar.high - bar.low) * span / 100 for bar in drawn.bars]
    assert whiskers == [None, pytest.approx(2, abs=1e-3), None, pytest.approx(2, abs=1e-3), None]
    turned = waterfall(table((6.0, -2.0, 4.0), steps=steps, higher_is_better=False))
    assert [bar.helps for bar in turned.bars] == [None, False, True, False, None]
