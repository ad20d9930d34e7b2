"""Coalitions that overlap evenly."""

import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.coalitions.spread import squared_strays


def squared_overlaps(rows):
    """Σ over pairs of rows of (|S ∩ T| − st/n)², and what it is for random members: the hypergeometric variance."""
    n, sizes = rows.shape[1], rows.sum(axis=1)
    overlaps = rows.astype(int) @ rows.T.astype(int)
    pairs = np.triu_indices(len(rows), 1)
    s, t = sizes[pairs[0]], sizes[pairs[1]]
    expected = s * t * (n - s) * (n - t) / (n**2 * (n - 1.0))
    return ((overlaps[pairs] - s * t / n) ** 2).sum(), expected.sum()


@pytest.mark.parametrize("name", ["uniform", "mix", "half"])
@pytest.mark.parametrize(("n", "m"), [(20, 60), (50, 150)])
def test_overlaps_stray_less_than_by_chance(name, n, m):
    ratios = [np.divide(*squared_overlaps(make_design(name, seed).draw(n, 0, m))) for seed in range(5)]
    assert np.mean(ratios) < 0.9
    random = [np.divide(*squared_overlaps(make_design("kernel", seed).draw(n, 0, m))) for seed in range(5)]
    assert np.mean(random) > 0.9


def test_a_regression_on_spread_members_has_less_variance():
    # tr (x̃ᵀx̃)⁺ for m evaluations of n contributors, against members drawn at random with the same sizes
    n, m = 40, 80
    spread, random = [], []
    for seed in range(8):
        rows = make_design("uniform", seed).draw(n, 0, m)
        generator = np.random.default_rng(seed)
        shuffled = np.array([generator.permutation(row) for row in rows])
        for table, traces in ((rows, spread), (shuffled, random)):
            x = table - table.mean(axis=1, keepdims=True)
            traces.append(np.trace(np.linalg.pinv(x.T @ x, rcond=1e-9, hermitian=True)))
    assert np.mean(spread) < 0.85 * np.mean(random)


def test_every_row_by_itself_is_any_coalition_of_its_size():
    # over seeds: the members of row 60 are equally often in, and so are pairs of them
    n, seeds = 7, 1500
    rows = np.array([make_design("uniform", seed).draw(n, 11, 1)[0] for seed in range(seeds)])
    part = rows.mean(axis=0)
    assert np.abs(part - part.mean()).max() < 4.5 * (0.25 / seeds) ** 0.5


def test_the_measure_is_the_sum_of_squared_deviations():
    generator = np.random.default_rng(0)
    n, sizes = 11, np.array([3, 5, 8])
    rows = np.array([generator.permutation(np.arange(n) < s) for s in sizes])
    candidates = np.array([generator.permutation(np.arange(n) < 4) for _ in range(6)])
    expected = [sum((n * int((c & r).sum()) - 4 * int(r.sum())) ** 2 for r in rows) for c in candidates]
    assert squared_strays(candidates, rows.astype(np.float32), 4, sizes).tolist() == expected
