"""Coalitions that overlap evenly."""

import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.coalitions.spread import OverlapDeviations


def squared_overlaps(rows):
    """Σ over pairs of rows of (|S ∩ T| − st/n)², and what it is for random members: the hypergeometric variance."""
    n, sizes = rows.shape[1], rows.sum(axis=1)
    overlaps = rows.astype(int) @ rows.T.astype(int)
    pairs = np.triu_indices(len(rows), 1)
    s, t = sizes[pairs[0]], sizes[pairs[1]]
    expected = s * t * (n - s) * (n - t) / (n**2 * (n - 1.0))
    return ((overlaps[pairs] - s * t / n) ** 2).sum(), expected.sum()


@pytest.mark.parametrize("name", ["uniform", "mix", "half"])
@pytest.mark.parametrize(("n", "m"), [(20, 60)])
def test_overlaps_stray_less_than_by_chance(name, n, m):
    ratios = [np.divide(*squared_overlaps(make_design(name, seed).draw(n, 0, m))) for seed in range(2)]
    assert np.mean(ratios) < 0.9
    random = [np.divide(*squared_overlaps(make_design("kernel", seed).draw(n, 0, m))) for seed in range(2)]
    assert np.mean(random) > 0.9


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
