import numpy as np
import pytest

from diffcredit import estimate
from diffcredit.surrogates import tabulate, tabulating
from diffcredit.testing.games import additive, airport, brute_force_shapley


def test_small_games_are_known_whole_and_credited_exactly():
    game = airport([6.0, 2.0, 3.0, 1.0])
    table = tabulate(game, 4, most=14)
    assert table.size_distribution == "exhaustive"
    assert table.full == 6.0
    assert len({row.tobytes() for row in table.coalitions}) == 14
    np.testing.assert_array_equal(table.values, game(table.coalitions))
    credits = estimate(table.coalitions, table.values, empty=0.0, full=table.full, method="exact")
    np.testing.assert_allclose(credits.values, brute_force_shapley(game, 4), atol=1e-12)


@pytest.mark.parametrize(("n", "most"), [(4, 13), (30, 300)])
def test_large_games_are_sampled_with_the_design_that_an_estimate_expects(n, most):
    weights = np.linspace(-1, 1, n)
    table = tabulate(additive(weights, offset=5.0), n, most)
    assert table.size_distribution == "uniform"
    assert table.coalitions.shape == (most, n)
    credits = estimate(
        table.coalitions,
        table.values,
        empty=5.0,
        full=table.full,
        size_distribution=table.size_distribution,
    )
    np.testing.assert_allclose(credits.values, weights, atol=1e-4)


def test_the_value_of_nobody_shifts_all_credits_alike():
    table = tabulate(airport([6.0, 2.0, 3.0]), 3, most=100)
    low, high = (
        estimate(table.coalitions, table.values, empty=empty, full=table.full, method="exact").values
        for empty in (0.0, 3.0)
    )
    np.testing.assert_allclose(low - high, 3.0 / 3)


def test_more_than_the_exhaustive_design_can_list_is_sampled(monkeypatch):
    monkeypatch.setattr(tabulating, "LARGEST", 3)
    assert tabulate(additive([1.0] * 3), 3, most=20).size_distribution == "exhaustive"
    assert tabulate(additive([1.0] * 4), 4, most=20).size_distribution == "uniform"


def test_the_seed_chooses_the_sample():
    game = additive(np.arange(20.0))
    first, same, other = (tabulate(game, 20, 50, seed).coalitions for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert (first != other).any()
