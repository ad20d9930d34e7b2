from math import comb

import numpy as np
import pytest
import shapiq
from hypothesis import given, settings
from hypothesis import strategies as st

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


def from_all(method, game, n):
    coalitions = make_design("exhaustive").draw(n, 0, 2**n - 2)
    return credits_of(method, coalitions, game(coalitions), *ends(game, n), "exhaustive")


def from_drawn(method, game, n, design, m, seed, noise=0.0):
    noisy = games.noisy(game, noise, seed)
    coalitions = make_design(design, seed).draw(n, 0, m)
    empty, full = ends(noisy, n)
    return credits_of(method, coalitions, noisy(coalitions), [empty], [full], design)


GAMES = {
    "additive": games.additive([1.5, -2, 0, 3, 0.25], offset=4),
    "unanimity": games.unanimity([1, 3], value=2),
    "airport": games.airport([1, 5, 2, 2, 8]),
    "voting": games.weighted_voting([4, 3, 2, 1, 1], quota=6),
    "random": games.random_game(5, seed=3),
    "untrained": lambda x: games.random_game(5, seed=3)(x) - 1e3 * ~x.any(axis=1),
}


@pytest.mark.parametrize("name", list(GAMES))
def test_brute_force_agrees_with_shapiq(name):
    game = GAMES[name]
    theirs = shapiq.ExactComputer(game=lambda x: game(np.asarray(x, dtype=bool)), n_players=5)("BV")
    np.testing.assert_allclose(games.brute_force_banzhaf(game, 5), [theirs[(i,)] for i in range(5)], atol=1e-9)


def test_known_answers():
    # 50, 49, 1 with a quota of 51: the first swings 3 of the 4 coalitions of the others, the others one each.
    np.testing.assert_allclose(
        games.brute_force_banzhaf(games.weighted_voting([50, 49, 1], 51), 3), [3 / 4, 1 / 4, 1 / 4]
    )
    np.testing.assert_allclose(games.brute_force_banzhaf(games.unanimity([0, 1, 2], value=8), 4), [2, 2, 2, 0])


@BOTH
@pytest.mark.parametrize("name", list(GAMES))
def test_all_coalitions_give_the_banzhaf_value(name, method):
    truth = games.brute_force_banzhaf(GAMES[name], 5)
    credits = from_all(method, GAMES[name], 5)
    np.testing.assert_allclose(credits.values, truth, atol=1e-8)
    assert credits.diagnostics["sum"] == pytest.approx(truth.sum())


@BOTH
@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_all_coalitions_of_fewer_and_more_contributors(n, method):
    game = games.random_game(n, seed=n)
    credits = from_all(method, game, n)
    np.testing.assert_allclose(credits.values, games.brute_force_banzhaf(game, n), atol=1e-8)
    # Of two contributors one coalition speaks for each: nothing is left to tell an error by.
    assert np.isfinite(credits.low).all() == (n > 2)
    assert (credits.low < credits.high).all()


@BOTH
def test_sizes_drawn_otherwise_are_weighted_back_to_fair_coins(method):
    # 105 = lcm(7, 21, 35) rows of every size, each coalition of a size equally often.
    n = 7
    rows = make_design("exhaustive").draw(n, 0, 126)
    coalitions = np.concatenate([np.resize(rows[rows.sum(axis=1) == size], (105, n)) for size in range(1, n)])
    game = games.random_game(n, seed=0)
    credits = credits_of(method, coalitions, game(coalitions), *ends(game, n), "uniform")
    np.testing.assert_allclose(credits.values, games.brute_force_banzhaf(game, n), atol=1e-8)


values_of = st.lists(st.integers(-1000, 1000), min_size=16, max_size=16)


def tabled(table):
    array = np.array(table, dtype=float)
    return lambda coalitions: array[coalitions @ (1 << np.arange(4))]


@BOTH
@settings(max_examples=15, deadline=None)
@given(a=values_of, b=values_of, scale=st.integers(-5, 5))
def test_linearity(method, a, b, scale):
    first, second = (from_all(method, tabled(table), 4).values for table in (a, b))
    combined = from_all(method, tabled(np.array(a) + scale * np.array(b)), 4).values
    np.testing.assert_allclose(combined, first + scale * second, atol=1e-7)


@BOTH
@settings(max_examples=15, deadline=None)
@given(a=values_of)
def test_symmetry_and_null_player(method, a):
    # F depends on contributors 0 and 1 through their number alone, and not at all on contributor 3.
    def game(coalitions):
        return np.array(a, dtype=float)[coalitions[:, 0].astype(int) + coalitions[:, 1] + 4 * coalitions[:, 2]]

    credits = from_all(method, game, 4).values
    assert credits[0] == pytest.approx(credits[1], abs=1e-8)
    assert credits[3] == pytest.approx(0, abs=1e-8)


@BOTH
def test_a_constant_changes_nothing(method):
    n, game = 12, games.learning(12, seed=4)
    plain = from_drawn(method, game, n, "half", 60, 0, noise=0.1)
    shifted = from_drawn(method, lambda x: game(x) + 1e4, n, "half", 60, 0, noise=0.1)
    np.testing.assert_allclose(shifted.values, plain.values, atol=1e-9)
    np.testing.assert_allclose(shifted.high, plain.high, atol=1e-8)


def elementary(coalitions, degree):
    """Σ over all sets of ``degree`` contributors of the product of their signs, by its definition."""
    n = coalitions.shape[1]
    sums = np.zeros((degree + 1, len(coalitions)))
    sums[0] = 1
    for i in range(n):
        sums[1:] += np.where(coalitions[:, i], 1, -1) * sums[:-1].copy()
    return sums[degree] / comb(n, degree) ** 0.5


@pytest.mark.parametrize("degree", [2, 3, 4])
def test_curvature_in_the_size_is_regressed_out(degree):
    n, game = 12, games.learning(12, seed=4)
    plain = from_drawn("banzhaf", game, n, "half", 60, 0, noise=0.1)
    bent = from_drawn("banzhaf", lambda x: game(x) + 100 * elementary(x, degree), n, "half", 60, 0, noise=0.1)
    np.testing.assert_allclose(bent.values, plain.values, atol=1e-8)
    np.testing.assert_allclose(bent.high, plain.high, atol=1e-7)


@pytest.mark.parametrize("design", ["half", "uniform"])
def test_that_saves_variance_and_adds_no_bias(design):
    n, m, runs = 10, 60, 80

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


@pytest.mark.parametrize(
    ("method", "design", "m"),
    [
        ("banzhaf", "half", 60),
        ("banzhaf", "uniform", 120),
        ("banzhaf", "kernel-paired", 120),
        ("banzhaf-msr", "half", 60),
        ("banzhaf-msr", "uniform", 120),
        ("banzhaf-msr", "kernel-paired", 120),
    ],
)
def test_intervals_cover_and_standard_errors_are_the_size_of_the_errors(method, design, m):
    n, runs = 10, 60
    game = games.learning(n, seed=4)
    truth = games.brute_force_banzhaf(game, n)
    errors, claimed, covered = np.empty((3, runs, n))
    for seed in range(runs):
        credits = from_drawn(method, game, n, design, m, seed, noise=truth.std())
        errors[seed], claimed[seed] = credits.values - truth, credits.standard_error
        covered[seed] = (credits.low <= truth) & (truth <= credits.high)
    # Evenly spread members take out of the means what others add to them; the jackknife does not see that.
    cautious = method == "banzhaf-msr" and design in ("half", "uniform")
    assert 0.93 <= covered.mean() <= (1 if cautious else 0.995)
    assert 0.95 < np.sqrt((claimed**2).mean() / (errors**2).mean()) < (3 if cautious else 1.5)


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
    with pytest.raises(
        UserError, match=r"with and without each; contributor 0 \(counted from 0\) is in all or in none"
    ):
        credits_of("banzhaf-msr", rows, np.ones(30), 0.0, 1.0, "half")
