from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import spearmanr

from diffcredit.validation.statistics.agreement import true_rank_correlation, unshrunk


def test_shrinkage_is_undone():
    random = np.random.default_rng(1)
    n, sigma, s = 8, 2.0, 1.5
    x = random.normal(size=n)
    x -= x.mean()
    kept = sigma**2 / (sigma**2 + s**2)
    # errors of variance s² from three units, and large ones of the endpoints that must not count
    units = np.full((n, 3), s / np.sqrt(3))
    shrunk = SimpleNamespace(
        values=10 + kept * x,
        influence=np.hstack([kept * units, np.full((n, 2), 100.0)]),
        bias=np.full(n, (1 - kept) * sigma),
    )
    values, variances = unshrunk(shrunk)
    np.testing.assert_allclose(values, x)
    np.testing.assert_allclose(variances, s**2)


def test_without_errors_nothing_is_in_doubt():
    random = np.random.default_rng(2)
    a, b = random.normal(size=(2, 12))
    found = true_rank_correlation((a, np.zeros(12)), (b, np.zeros(12)))
    assert (found.low, found.value, found.high) == pytest.approx([spearmanr(a, b).statistic] * 3)


@pytest.mark.parametrize(("correlation", "n"), [(-0.8, 20)])
def test_it_covers_the_correlation_of_the_true_values(correlation, n):
    """Where a bootstrap of the observed values, their errors counted twice, covers hardly ever."""
    random = np.random.default_rng(3)
    deviation, times, covered = 0.6, 25, 0
    for seed in range(times):
        a, own = random.normal(size=(2, n))
        b = correlation * a + np.sqrt(1 - correlation**2) * own
        truth = spearmanr(a, b).statistic
        x, y = a + deviation * random.normal(size=n), b + deviation * random.normal(size=n)
        noise = np.full(n, deviation**2)
        found = true_rank_correlation((x, noise), (y, noise), seed=seed)
        covered += found.low - 1e-9 <= truth <= found.high + 1e-9
    # 95 % of 25 are 23.75; 20 or fewer have the probability 0.7 %
    assert covered > 20


def test_what_is_not_known_has_no_interval():
    values, noise = np.arange(5.0), np.ones(5)
    for unknown in ((values, np.full(5, np.inf)), (np.ones(5), noise), (np.array([1.0]), np.array([1.0]))):
        assert np.isnan(true_rank_correlation(unknown, (values[: len(unknown[0])], noise[: len(unknown[0])])).value)
