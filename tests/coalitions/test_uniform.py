import numpy as np
import pytest

from diffcredit.coalitions import make_design


def test_keeps_the_quota_of_every_size_at_every_prefix():
    n = 12
    sizes = make_design("uniform", seed=5).draw(n, 0, 10 * (n - 1)).sum(axis=1)
    for m in range(1, len(sizes) + 1):
        counts = np.bincount(sizes[:m], minlength=n)[1:n]
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("m", [10, 30, 60])
def test_spreads_a_prefix_shorter_than_a_block_over_the_sizes(m):
    n = 258
    for seed in range(5):
        t = np.sort(make_design("uniform", seed).draw(n, 0, m).sum(axis=1)) / n
        # Kolmogorov's distance to the uniform; that of independent sizes shrinks as 1/√m only.
        grid = np.arange(m)
        assert max(abs(t - grid / m).max(), abs(t - (grid + 1) / m).max()) < 3 / m
