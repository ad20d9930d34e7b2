import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import norm

from diffcredit.credit import robust_critical_value
from diffcredit.credit.intervals import tangent_point


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_without_bias_it_is_the_normal_quantile(confidence):
    assert robust_critical_value(0.0, confidence) == pytest.approx(norm.ppf((1 + confidence) / 2), rel=1e-9)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.99])
@pytest.mark.parametrize("m2", [0.001, 0.3, 1.0, 4.0, 50.0])
def test_the_worst_distribution_a_linear_program_finds_misses_at_the_stated_rate(m2, confidence):
    c = float(robust_critical_value(m2, confidence))
    b = np.linspace(0, max(2 * c, c + 5, 2 * m2**0.5), 5001)
    misses = norm.cdf(-c - b) + norm.cdf(-c + b)
    worst = linprog(-misses, A_eq=np.stack([np.ones_like(b), b**2]), b_eq=[1, m2])
    assert -worst.fun == pytest.approx(1 - confidence, abs=1e-6)


def test_published_values():
    # From the tests of the authors' R package: the critical value at m2 = 1, α = .2 (given for a kurtosis of
    # at most 3, which does not bind there: the worst distribution is one point), and the kurtosis t₀/m2 of
    # the worst distribution at α = .05, m2 = 4 and ¼.
    assert robust_critical_value(1.0, 0.8) == pytest.approx(1.8494683, abs=1e-7)
    kurtosis = tangent_point(robust_critical_value([4.0, 0.25])) / [4.0, 0.25]
    np.testing.assert_allclose(kurtosis, [17.4, 16.6], atol=0.05)


def test_large_biases_approach_chebyshev_from_below():
    ratio = robust_critical_value([1e2, 1e4, 1e6]) / np.sqrt((np.array([1e2, 1e4, 1e6]) + 1) / 0.05)
    assert (np.diff(ratio) > 0).all()
    assert ratio[-1] == pytest.approx(1, abs=2e-3)
    assert (ratio < 1).all()
