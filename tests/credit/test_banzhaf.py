from math import comb

import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.credit.banzhaf import banzhaf, banzhaf_msr
from diffcredit.credit.table import read_table
from diffcredit.errors import UserError
from diffcredit.testing import games

METHODS = {"banzhaf": banzhaf, "banzhaf-msr": banzhaf_msr}
BOTH = pytest.mark.parametrize("method", list(METHODS))


def credits_of(method, coalitions, values, empty, full, size_distribution):
    return METHODS[method](read_table(coalitions, values, empty, full, size_distribution), 0.95)


def ends(game, n):
    return game(np.array([[False] * n, [True] * n])).tolist()


def from_drawn(method, game, n, design, m, seed, noise=0.0):
    noisy = games.noisy(game, noise, seed)
    coalitions = make_design(design, seed).draw(n, 0, m)
    empty, full = ends(noisy, n)
    return credits_of(method, coalitions, noisy(coalitions), [empty], [full], design)


def elementary(coalitions, degree):
    """Σ over all sets of ``degree`` contributors of the product of their signs, by its definition."""
    n = coalitions.shape[1]
    sums = np.zeros((degree + 1, len(coalitions)))
    sums[0] = 1
    for i in range(n):
        sums[1:] += np.where(coalitions[:, i], 1, -1) * sums[:-1].copy()
    return sums[degree] / comb(n, degree) ** 0.5


@pytest.mark.parametrize("degree", [2, 4])
def test_curvature_in_the_size_is_regressed_out(degree):
    n, game = 12, games.learning(12, seed=4)
    plain = from_drawn("banzhaf", game, n, "half", 60, 0, noise=0.1)
    bent = from_drawn("banzhaf", lambda x: game(x) + 100 * elementary(x, degree), n, "half", 60, 0, noise=0.1)
    np.testing.assert_allclose(bent.values, plain.values, atol=1e-8)
    np.testing.assert_allclose(bent.high, plain.high, atol=1e-7)


@pytest.mark.parametrize("design", ["half", pytest.param("uniform", marks=pytest.mark.slow)])
def test_that_saves_variance_and_adds_no_bias(design):
    n, m, runs = 10, 60, 40

    def game(coalitions):
        # Best at half of all contributors, no polynomial, and the untrained network far off.
        hump = 0.1 * np.abs(coalitions.sum(axis=1) - n / 2)
        return games.learning(n, seed=4)(coalitions) - hump - 5 * ~coalitions.any(axis=1)

    truth = games.brute_force_banzhaf(game, n)
    probabilities = np.full(n - 1, 1 / (n - 1))
    errors = np.empty((2, runs, n))
    for seed in range(runs):
        credits = from_drawn("banzhaf", game, n, design, m, seed, noise=0.02)
        errors[0, seed] = credits.values - truth
        coalitions, sizes = credits.table.coalitions, credits.table.sizes
        coins = np.array([comb(n, size) for size in range(1, n)]) / 2**n
        weights = coins[sizes - 1] / probabilities[sizes - 1] if design == "uniform" else np.ones(len(sizes))
        root = np.sqrt(weights * credits.table.replicates)
        ones, y = np.ones(len(sizes)), credits.table.values
        plain = np.linalg.lstsq(np.column_stack([ones, coalitions]) * root[:, None], y * root)[0][1:]
        errors[1, seed] = plain + 2 ** (1 - n) * (credits.full - credits.empty - plain.sum()) - truth
    adjusted, plain = np.sqrt((errors**2).mean(axis=(1, 2)))
    assert adjusted < 0.7 * plain
    # The mean error is what chance leaves of the runs.
    assert np.sqrt((errors[0].mean(axis=0) ** 2).mean()) < 2 * adjusted / runs**0.5


def test_the_interval_of_maximum_sample_reuse_is_the_jackknifes():
    # Leaving out one coalition at a time; the endpoints, of probability 2⁻²⁰ each, hardly count.
    n, m = 20, 60
    generator = np.random.default_rng(0)
    coalitions = generator.random((m, n)) < 0.5
    values = generator.normal(size=m)
    credits = credits_of("banzhaf-msr", coalitions, values, 0.0, 0.0, "half")

    def difference(kept):
        x, y = coalitions[kept], values[kept]
        return np.array([y[x[:, i]].mean() - y[~x[:, i]].mean() for i in range(n)])

    whole = difference(np.full(m, True))
    changes = [difference(np.arange(m) != row) - whole for row in range(m)]
    np.testing.assert_allclose(credits.values, whole, atol=1e-5)
    np.testing.assert_allclose(credits.standard_error**2, np.sum(np.square(changes), axis=0), rtol=1e-4)


def test_endpoints_count_with_their_probability():
    n = 4
    coalitions = make_design("exhaustive").draw(n, 0, 14)
    for method in METHODS:
        at_zero, at_one = (
            credits_of(method, coalitions, np.zeros(14), 0.0, full, "exhaustive").values for full in (0.0, 1.0)
        )
        np.testing.assert_allclose(at_one - at_zero, 1 / 8, atol=1e-12)
        noisy = credits_of(method, coalitions, np.zeros(14), [0.0], [1.0, -1.0], "exhaustive")
        # The variance of the mean of two values that differ by 2, and what one evaluation's noise adds to it.
        assert noisy.standard_error == pytest.approx(np.full(n, 0.5**0.5 / 8), rel=0.05)


def test_what_cannot_be_answered_is_refused():
    rows = make_design("half").draw(10, 0, 8)
    with pytest.raises(UserError, match=r"banzhaf needs 13 different coalitions, 5 more"):
        credits_of("banzhaf", rows, np.ones(8), 0.0, 1.0, "half")
    rows = make_design("subset(0.5)").draw(10, 0, 50)
    with pytest.raises(UserError, match=r"'subset\(0.5\)': never draws coalitions of size 4; banzhaf needs"):
        credits_of("banzhaf", rows, np.ones(50), 0.0, 1.0, "subset(0.5)")
    rows = make_design("uniform").draw(30, 0, 45)
    with pytest.raises(UserError, match=r"these count as .*the design 'half'"):
        credits_of("banzhaf", rows, np.ones(45), 0.0, 1.0, "uniform")
    rows = np.eye(30, dtype=bool)[[0] * 30] | (np.random.default_rng(0).random((30, 30)) < 0.5)
    with pytest.raises(UserError, match=r"with and without each; contributor 0 is in all or in none"):
        credits_of("banzhaf-msr", rows, np.ones(30), 0.0, 1.0, "half")
