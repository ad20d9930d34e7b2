from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.credit.intervals import ratio_intervals
from diffcredit.testing import games

N = 5
WEIGHTS = np.array([4.0, -1.0, 2.0, 0.0, 1.0])
ALL = make_design("exhaustive").draw(N, 0, 2**N - 2)


def credits_of(full, empty=0.0, sign=1.0, method="unshrunk", seed=0):
    values = sign * (ALL @ WEIGHTS + np.random.default_rng(seed).normal(size=len(ALL)))
    return estimate(ALL, values, empty=empty, full=full, method=method, size_distribution="exhaustive")


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_with_known_endpoints_it_is_plain_division(sign):
    credits = credits_of(full=6.0 * sign, sign=sign)
    low, high = credits.share_intervals()
    bounds = np.stack([credits.low, credits.high]) / (6.0 * sign)
    np.testing.assert_allclose(low, bounds.min(axis=0))
    np.testing.assert_allclose(high, bounds.max(axis=0))
    np.testing.assert_allclose((low + high) / 2, credits.shares)


def test_bounds_solve_fiellers_equation():
    c, h, total, half = np.array([0.5, -2.0, 0.0]), np.array([1.0, 0.3, 0.0]), -3.0, 1.2
    for bound in ratio_intervals(c, h, total, half):
        np.testing.assert_allclose((c - bound * total) ** 2, h**2 + bound**2 * half**2, atol=1e-12)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_ratios_of_normal_numbers_are_covered_at_the_stated_rate(confidence):
    generator, draws, z = np.random.default_rng(0), 20000, norm.ppf((1 + confidence) / 2)
    truth, total = 3.0, 5.0
    hits = 0
    for _ in range(draws // 100):
        # 100 numerators share one denominator: their hits are correlated, hence the tolerance.
        measured = total + generator.normal()
        low, high = ratio_intervals(truth + 0.7 * generator.normal(size=100), np.full(100, 0.7 * z), measured, z)
        hits += ((low <= truth / total) & (truth / total <= high)).sum()
    assert hits / draws == pytest.approx(confidence, abs=0.03)


def test_shares_of_noisy_games_are_covered():
    runs, hits = 60, []
    for seed in range(runs):
        generator = np.random.default_rng(seed)
        rows = np.repeat(ALL, 2, axis=0)
        values = rows @ WEIGHTS + generator.normal(size=len(rows))
        empty, full = generator.normal(size=4), 6.0 + generator.normal(size=4)
        credits = estimate(
            rows, values, empty=empty, full=full, method="exact", size_distribution="exhaustive", confidence=0.9
        )
        low, high = credits.share_intervals()
        truth = WEIGHTS / 6
        hits.append((low <= truth) & (truth <= high))
        assert ((low <= credits.shares) & (credits.shares <= high)).all()
    assert np.mean(hits) == pytest.approx(0.9, abs=0.035)


def test_a_total_that_may_be_zero_bounds_no_share():
    credits = credits_of(full=[-1.0, 1.4], empty=[-1.0, 1.0])
    assert credits.shares.sum() == pytest.approx(1)
    low, high = credits.share_intervals()
    assert (low == -np.inf).all()
    assert (high == np.inf).all()


def test_there_is_no_share_of_nothing():
    credits = credits_of(full=0.0)
    assert np.isnan(credits.shares).all()
    assert np.isinf(credits.share_intervals()).all()


def test_who_has_no_finite_width_has_no_bounded_share():
    low, high = ratio_intervals(np.array([1.0, 2.0]), np.array([np.nan, 0.1]), 4.0, 0.0)
    assert (low[0], high[0]) == (-np.inf, np.inf)
    np.testing.assert_allclose([low[1], high[1]], [0.475, 0.525])


def test_credits_that_do_not_sum_to_the_total_have_no_shares():
    credits = credits_of(full=6.0)
    others = replace(credits, values=credits.values + 0.01)
    assert not others.efficient
    assert np.isnan(others.shares).all()
    assert np.isnan(others.share_intervals()).all()


@pytest.mark.parametrize("method", ["shapley", "unshrunk", "kernelshap", "exact"])
def test_shapley_values_sum_to_the_total(method):
    game = games.noisy(games.additive(1e-3 * WEIGHTS, offset=1e6), 1e-3)
    credits = estimate(
        ALL,
        game(ALL),
        empty=game(np.zeros((2, N), bool)),
        full=game(np.ones((2, N), bool)),
        method=method,
        size_distribution="exhaustive",
    )
    assert credits.efficient
