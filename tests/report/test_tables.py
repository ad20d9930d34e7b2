"""Credit tables of a study: their waterfall, their reference and why there are no shares."""

import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.report import tables
from diffcredit.report.records import Reference
from diffcredit.report.tables import waterfall_steps, why_no_shares

HOUSE = Reference("house", "the house alone")


def credits(weights, empty, *, noise=0.1, higher_is_better=True, method="shapley"):
    """Credits of an additive game with noise, and three evaluations of everybody and of nobody."""
    n, random = len(weights), np.random.default_rng(0)
    coalitions = make_design("uniform", 0).draw(n, 0, 8 * n)
    values = empty + coalitions @ weights + noise * random.normal(size=len(coalitions))
    ends = [end + noise * random.normal(size=3) for end in (empty, empty + sum(weights))]
    found = estimate(coalitions, values, empty=ends[0], full=ends[1], method=method, size_distribution="uniform")
    return tables.replace(found, higher_is_better=higher_is_better)


@pytest.mark.parametrize("n", [3, 9, 12])
def test_the_steps_add_up_whoever_is_named(n):
    found = credits(np.arange(1.0, n + 1), 10.0)
    steps = waterfall_steps(found)
    assert len(steps) == min(n, 9)
    assert sum(step.value for step in steps) == pytest.approx(found.full - found.empty)
    assert [step.name for step in steps[:2]] == [str(n - 1), str(n - 2)]  # the largest help first
    assert (steps[-1].name == "4 others") == (n == 12)


def test_the_others_together_have_the_error_of_their_sum(monkeypatch):
    """All contributors together have the error of F(all) − F(reference) alone: what distinguishes them cancels."""
    monkeypatch.setattr(tables, "STEPS", 0)
    monkeypatch.setattr(tables, "half_widths_of", lambda variance, bias, degrees, confidence: variance**0.5)
    found = credits(np.arange(1.0, 13.0), 10.0)
    (everybody,) = waterfall_steps(found)
    # of a difference of two means of three evaluations, with at least the noise of single ones
    assert everybody.half_width == pytest.approx((2 * 0.1**2 / 3) ** 0.5, rel=0.5)


@pytest.mark.parametrize("higher_is_better", [True, False])
@pytest.mark.parametrize("total", [12.0, 0.0, -12.0])
def test_there_are_shares_only_where_all_together_surely_improve_on_the_reference(higher_is_better, total):
    sign = 1 if higher_is_better else -1
    found = credits(sign * (np.linspace(-1, 1, 6) + total / 6), 10.0, higher_is_better=higher_is_better)
    why = why_no_shares(found, HOUSE, asked=False)
    expected = {12.0: "", 0.0: "is not sure", -12.0: "worse than the house alone"}[total]
    assert expected in why
    assert bool(why) == (total <= 0)
    if not why:  # the order of the shares is that of the help
        assert np.argsort(found.shares).tolist() == np.argsort(found.help()).tolist()
    untrained = why_no_shares(found, Reference(), asked=False)
    assert "untrained network, which is nobody's alternative" in untrained
    assert why_no_shares(found, Reference(), asked=True) == why.replace("the house alone", "the untrained network")


def test_credits_that_are_no_parts_of_a_total_have_no_shares():
    found = credits(np.ones(6), 10.0, method="banzhaf")
    assert "credits by banzhaf are no parts of a total" in why_no_shares(found, HOUSE, asked=True)
