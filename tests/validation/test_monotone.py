import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from diffcredit.validation.statistics.monotone import first_reaching


def test_between_two_points_it_is_on_the_line():
    assert first_reaching([100, 200, 400], [0.2, 0.6, 0.8], 0.7) == pytest.approx(300)
    assert first_reaching([400, 100, 200], [0.8, 0.2, 0.6], 0.7) == pytest.approx(300)  # in any order


def test_the_ends():
    assert first_reaching([100, 200], [0.5, 0.6], 0.4) == 100
    assert first_reaching([100, 200], [0.5, 0.6], 0.6) == pytest.approx(200)
    assert first_reaching([100, 200], [0.5, 0.6], 0.61) is None
    assert first_reaching([100, 200], [np.nan, np.nan], 0.1) is None
    assert first_reaching([], [], 0.1) is None


def test_a_lucky_point_is_pooled_with_those_after_it():
    """0.9 and then 0.5 are both 0.7 of a curve that does not fall."""
    assert first_reaching([1, 2, 3, 4], [0.1, 0.9, 0.5, 0.8], 0.75) == pytest.approx(3.5)


def test_points_of_one_x_are_averaged():
    assert first_reaching([1, 2, 2], [0.0, 0.4, 0.8], 0.6) == pytest.approx(2)
    assert first_reaching([1, 2, 2], [0.0, 0.4, 0.8], 0.61) is None
    # 0.9 once and 0.1 three times make 0.3 of a curve that does not fall
    assert first_reaching([1, 2, 2, 2], [0.9, 0.1, 0.1, 0.1], 0.31) is None
    assert first_reaching([1, 2, 2, 2], [0.9, 0.1, 0.1, 0.1], 0.29) == 1


def test_against_another_library():
    generator = np.random.default_rng(0)
    for _ in range(50):
        x = np.sort(generator.random(12))
        y = x + 0.3 * generator.normal(size=12)
        fit = IsotonicRegression().fit(x, y)
        wanted = generator.uniform(fit.predict(x)[0], fit.predict(x)[-1])
        found = first_reaching(x.tolist(), y.tolist(), wanted)
        assert fit.predict([found])[0] == pytest.approx(wanted)
        assert fit.predict([found - 1e-4])[0] < wanted
