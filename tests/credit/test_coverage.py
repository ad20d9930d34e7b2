"""Simulated intervals cover the truth at their rate, and standard errors are the size of the errors."""

from functools import cache

import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.testing import games

draw = cache(lambda design, seed, n, m: make_design(design, seed).draw(n, 0, m))
truth_of = cache(lambda value, n: getattr(games, f"brute_force_{value}")(games.learning(n, seed=4), n))

# Too wide: HC3 errs on the safe side, and the jackknife does not see what evenly spread members take out of means.
SAFE, RIGHT, WIDE = (1, 1.3), (0.9, 1.5), (0.95, 3)


@pytest.mark.parametrize(
    ("method", "design", "n", "m", "noise", "ratio"),
    [
        ("kernelshap", "kernel", 12, 100, 2, SAFE),
        ("unshrunk", "kernel-paired", 10, 100, 1, RIGHT),
        ("shapley", "uniform", 10, 60, 1, RIGHT),
        ("banzhaf", "half", 10, 60, 1, RIGHT),
        ("banzhaf-msr", "half", 10, 60, 1, WIDE),
        pytest.param("kernelshap", "uniform", 12, 100, 2, SAFE, marks=pytest.mark.slow),
        pytest.param("unshrunk", "uniform", 10, 100, 1, RIGHT, marks=pytest.mark.slow),
        pytest.param("unshrunk", "leverage", 10, 100, 1, RIGHT, marks=pytest.mark.slow),
        pytest.param("banzhaf", "uniform", 10, 100, 1, RIGHT, marks=pytest.mark.slow),
        pytest.param("banzhaf", "kernel-paired", 10, 100, 1, RIGHT, marks=pytest.mark.slow),
        pytest.param("banzhaf-msr", "kernel-paired", 10, 100, 1, RIGHT, marks=pytest.mark.slow),
    ],
)
def test_intervals_cover_a_learning_game(method, design, n, m, noise, ratio):
    runs = 30 if method == "shapley" else 60
    truth = truth_of("banzhaf" if method.startswith("banzhaf") else "shapley", n)
    errors, claimed, covered = np.empty((3, runs, n))
    for seed in range(runs):
        game = games.noisy(games.learning(n, seed=4), noise * truth.std(), seed)
        coalitions = draw(design, seed, n, m)
        (empty,), (full,) = game(np.zeros((1, n), bool)), game(np.ones((1, n), bool))
        credits = estimate(
            coalitions, game(coalitions), empty=[empty], full=[full], method=method, size_distribution=design
        )
        errors[seed], claimed[seed] = credits.values - truth, credits.standard_error
        covered[seed] = (credits.low <= truth) & (truth <= credits.high)
    assert 0.92 <= covered.mean() <= (1 if ratio == WIDE else 0.995)
    assert ratio[0] < np.sqrt((claimed**2).mean() / (errors**2).mean()) < ratio[1]
    if method == "unshrunk":  # each contributor's interval for its own sake
        assert covered.mean(axis=0).min() > 0.87
