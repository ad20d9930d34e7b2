import numpy as np
import pytest
from scipy.stats import t, ttest_ind

from diffcredit.validation.welch import welch_estimate


def test_the_difference_of_two_means_is_welchs():
    generator = np.random.default_rng(0)
    x, y = generator.normal(3, 1, 5), generator.normal(1, 4, 9)
    found = welch_estimate(float(x.mean() - y.mean()), [(1, x), (-1, y)], confidence=0.9)
    expected = ttest_ind(x, y, equal_var=False).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_one_mean_is_students_and_weights_scale():
    x = np.array([1.0, 4.0, 2.0, 7.0])
    low, high = t.interval(0.95, 3, loc=x.mean(), scale=x.std(ddof=1) / 2)
    found = welch_estimate(float(10 * x.mean()), [(10, x)])
    assert (found.low, found.high) == pytest.approx((10 * low, 10 * high))


def test_a_sample_of_one_gives_no_bounds_and_equal_values_no_width():
    found = welch_estimate(2.0, [(1, np.array([1.0, 2.0])), (1, np.array([1.0]))])
    assert found.value == 2
    assert np.isnan([found.low, found.high]).all()
    found = welch_estimate(2.0, [(1, np.full(3, 2.0))])
    assert (found.low, found.high) == (2, 2)
