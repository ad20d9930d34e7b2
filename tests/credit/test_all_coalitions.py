"""From all coalitions every method gives its value exactly, with the axioms that define it."""

import numpy as np
import pytest
import shapiq
from hypothesis import given, settings
from hypothesis import strategies as st

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.testing import games

TRUTH = dict.fromkeys(("exact", "kernelshap", "unshrunk", "permutation"), games.brute_force_shapley)
TRUTH |= dict.fromkeys(("banzhaf", "banzhaf-msr"), games.brute_force_banzhaf)
METHODS = pytest.mark.parametrize("method", list(TRUTH))
GAMES = {
    "additive": games.additive([1.5, -2, 0, 3, 0.25], offset=4),
    "unanimity": games.unanimity([1, 3], value=2),
    "airport": games.airport([1, 5, 2, 2, 8]),
    "voting": games.weighted_voting([4, 3, 2, 1, 1], quota=6),
    "random": games.random_game(5, seed=3),
    "untrained": lambda x: games.random_game(5, seed=3)(x) - 1e3 * ~x.any(axis=1),
}


def from_all(game, n, method):
    coalitions = make_design("exhaustive").draw(n, 0, 2**n - 2)
    empty, full = game(np.array([[False] * n, [True] * n]))
    return estimate(coalitions, game(coalitions), empty=empty, full=full, method=method, size_distribution="exhaustive")


@METHODS
@pytest.mark.parametrize("name", list(GAMES))
def test_the_value_is_the_definitions(name, method):
    credits, truth = from_all(GAMES[name], 5, method), TRUTH[method](GAMES[name], 5)
    np.testing.assert_allclose(credits.values, truth, atol=1e-8)
    assert credits.diagnostics.get("sum", truth.sum()) == pytest.approx(truth.sum())
    if not method.startswith("banzhaf"):
        assert credits.efficient


@METHODS
@pytest.mark.parametrize("n", [2, 3, 8, 12])
def test_fewer_and_more_contributors(n, method):
    game = games.random_game(n, seed=n)
    credits = from_all(game, n, method)
    np.testing.assert_allclose(credits.values, TRUTH[method](game, n), atol=1e-8)
    if method.startswith("banzhaf"):
        # With two contributors there is one coalition for each, and nothing shows the noise.
        assert np.isfinite(credits.low).all() == (n > 2)
        assert (credits.low < credits.high).all()


VALUES = st.lists(st.integers(-1000, 1000), min_size=16, max_size=16)


def tabled(table):
    array = np.array(table, dtype=float)
    return lambda coalitions: array[coalitions @ (1 << np.arange(4))]


@METHODS
@settings(max_examples=10, deadline=None)
@given(a=VALUES, b=VALUES, scale=st.integers(-5, 5))
def test_linearity_symmetry_and_null_player(method, a, b, scale):
    first, second = (from_all(tabled(table), 4, method).values for table in (a, b))
    combined = from_all(tabled(np.array(a) + scale * np.array(b)), 4, method).values
    np.testing.assert_allclose(combined, first + scale * second, atol=1e-7)

    # F depends on contributors 0 and 1 only through their number, and not at all on contributor 3.
    def game(coalitions):
        return np.array(a, dtype=float)[coalitions[:, 0].astype(int) + coalitions[:, 1] + 4 * coalitions[:, 2]]

    credits = from_all(game, 4, method).values
    assert credits[0] == pytest.approx(credits[1], abs=1e-8)
    assert credits[3] == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("name", list(GAMES))
def test_shapiq_agrees(name):
    def game(x):
        return GAMES[name](np.asarray(x, dtype=bool))

    for method, index in (("exact", "SV"), ("banzhaf", "BV")):
        theirs = shapiq.ExactComputer(game=game, n_players=5)(index)
        ours = from_all(GAMES[name], 5, method).values
        np.testing.assert_allclose(ours, [theirs[(i,)] for i in range(5)], atol=1e-8)


def test_shapiqs_kernelshap_agrees():
    game = games.learning(7, seed=3)
    theirs = shapiq.KernelSHAP(n=7, random_state=0).approximate(budget=2**7, game=game)
    np.testing.assert_allclose(from_all(game, 7, "kernelshap").values, theirs.get_n_order_values(1), atol=1e-6)


@pytest.mark.parametrize("method", ["kernelshap", "banzhaf", "banzhaf-msr"])
def test_sizes_drawn_otherwise_are_weighted_back(method):
    # 105 = lcm(7, 21, 35) rows of every size, each coalition of a size equally often.
    n = 7
    rows = make_design("exhaustive").draw(n, 0, 126)
    coalitions = np.concatenate([np.resize(rows[rows.sum(axis=1) == size], (105, n)) for size in range(1, n)])
    game = games.random_game(n, seed=0)
    empty, full = game(np.array([[False] * n, [True] * n]))
    credits = estimate(coalitions, game(coalitions), empty=empty, full=full, method=method)
    np.testing.assert_allclose(credits.values, TRUTH[method](game, n), atol=1e-8)
