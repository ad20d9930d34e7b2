"""Coalitions that overlap evenly."""

from collections import Counter
from math import comb

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


@pytest.mark.parametrize("count", [0, 3, 11, 12, 40])
def test_the_measure_is_the_sum_of_squared_deviations(count):
    generator = np.random.default_rng(0)
    n = 11
    rows = [generator.permutation(np.arange(n) < size) for size in generator.integers(1, n, count)]
    candidates = np.array([generator.permutation(np.arange(n) < 4) for _ in range(6)])
    strays = OverlapDeviations(n)
    for row in rows:
        strays.add(row, int(row.sum()))
    expected = [sum((n * int((c & r).sum()) - 4 * int(r.sum())) ** 2 for r in rows) for c in candidates]
    assert strays.of(candidates, 4).tolist() == expected


def test_thousands_of_rows_are_as_distinct_as_their_sizes_allow():
    """20 contributors: of every size as many coalitions as there are come before one comes again."""
    rows = make_design("uniform", 0).draw(20, 0, 4000)
    for size in range(1, 20):
        drawn = [row.tobytes() for row in rows if row.sum() == size]
        times = Counter(drawn).values()
        assert len(times) == min(len(drawn), comb(20, size))
        assert max(times) - min(times) <= 1
