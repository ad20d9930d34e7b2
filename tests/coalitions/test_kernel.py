import numpy as np
import pytest
from scipy.stats import chisquare

from diffcredit.coalitions import make_design

from .examples import keys


@pytest.mark.parametrize(("name", "step"), [("kernel", 1), ("kernel-paired", 2)])
def test_draws_are_independent_and_repeat(name, step):
    n, m = 9, 4000
    expected = np.array([1 / (k * (n - k)) for k in range(1, n)])
    expected /= expected.sum()
    rows = make_design(name, seed=1).draw(n, 0, step * m)[::step]
    sizes = rows.sum(axis=1)
    assert chisquare(np.bincount(sizes, minlength=n)[1:n], m * expected).pvalue > 1e-4
    following = np.bincount((sizes[:-1] - 1) * (n - 1) + sizes[1:] - 1, minlength=(n - 1) ** 2)
    assert chisquare(following, (m - 1) * np.outer(expected, expected).ravel()).pvalue > 1e-4
    assert chisquare(rows[sizes == 1].sum(axis=0)).pvalue > 1e-4
    assert len(set(keys(rows))) < m
