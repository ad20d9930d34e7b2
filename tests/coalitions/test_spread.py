"""Coalitions that overlap evenly."""

import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.coalitions.members import OverlapDeviations


def test_a_regression_on_spread_members_has_less_variance():
    # tr (x̃ᵀx̃)⁺ for m evaluations of n contributors, against members drawn at random with the same sizes
    n, m = 40, 80
    spread, random = [], []
    for seed in range(3):
        rows = make_design("uniform", seed).draw(n, 0, m)
        generator = np.random.default_rng(seed)
        shuffled = np.array([generator.permutation(row) for row in rows])
        for table, traces in ((rows, spread), (shuffled, random)):
            x = table - table.mean(axis=1, keepdims=True)
            traces.append(np.trace(np.linalg.pinv(x.T @ x, rcond=1e-9, hermitian=True)))
    assert np.mean(spread) < 0.85 * np.mean(random)


@pytest.mark.parametrize("count", [0, 3, 11, 12, 40])
def test_the_measure_is_the_sum_of_squared_deviations(count):
    generator = np.random.default_rng(0)
    n = 11
    rows = [generator.permutation(np.arange(n) < size) for size in generator.integers(1, n, count)]
    candidates = np.array([generator.permutation(np.arange(n) < 4) for _ in range(6)])
    overlaps = OverlapDeviations(n)
    for row in rows:
        overlaps.add(row, int(row.sum()))
    expected = [sum((n * int((c & r).sum()) - 4 * int(r.sum())) ** 2 for r in rows) for c in candidates]
    assert overlaps.of(candidates, 4).tolist() == expected
