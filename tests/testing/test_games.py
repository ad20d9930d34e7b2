import subprocess
import sys
from itertools import permutations

import numpy as np
import pytest

from diffcredit import testing
from diffcredit.testing import games


def shapley_by_permutations(game, n):
    """The mean over all orders of what each adds to those before: another road to the same number."""
    totals = np.zeros(n)
    orders = list(permutations(range(n)))
    for order in orders:
        chain = np.zeros((n + 1, n), dtype=bool)
        for step, player in enumerate(order):
            chain[step + 1 :, player] = True
        totals[list(order)] += np.diff(game(chain))
    return totals / len(orders)


@pytest.mark.parametrize("seed", range(3))
def test_brute_force_equals_the_mean_over_orders(seed):
    game = games.random_game(5, seed)
    np.testing.assert_allclose(games.brute_force_shapley(game, 5), shapley_by_permutations(game, 5), atol=1e-12)


def test_known_answers():
    weights = [3.0, -1.0, 0.0, 2.0]
    np.testing.assert_allclose(games.brute_force_shapley(games.additive(weights, offset=7), 4), weights, atol=1e-12)
    np.testing.assert_allclose(games.brute_force_shapley(games.unanimity([0, 2], value=4), 4), [2, 0, 2, 0], atol=1e-12)
    # Costs 6, 2, 3: the first 2 shared by three, the next 1 by two, the last 3 by one.
    np.testing.assert_allclose(
        games.brute_force_shapley(games.airport([6, 2, 3]), 3), [2 / 3 + 1 / 2 + 3, 2 / 3, 2 / 3 + 1 / 2], atol=1e-12
    )
    # 50, 49, 1 with a quota of 51: the first is pivotal in 4 of 6 orders, the others in one each.
    np.testing.assert_allclose(
        games.brute_force_shapley(games.weighted_voting([50, 49, 1], 51), 3), [4 / 6, 1 / 6, 1 / 6], atol=1e-12
    )


def test_learning_saturates():
    game = games.learning(10, seed=1)
    nested = np.tril(np.ones((11, 10), dtype=bool), -1)
    values = game(nested)
    assert values[0] == 0
    many = np.array([game(np.random.default_rng(k).permuted(nested, axis=1)) for k in range(200)]).mean(axis=0)
    steps = np.diff(many)
    assert (steps > 0).all()
    assert steps[0] > 2 * steps[4] > 2 * steps[9]


def test_noise_is_fresh_on_every_call_and_reproducible():
    coalitions = np.zeros((4000, 3), dtype=bool)
    first, second = (games.noisy(games.additive([1, 1, 1]), 2.0, seed=5) for _ in range(2))
    a = first(coalitions)
    np.testing.assert_array_equal(a, second(coalitions))
    assert (first(coalitions) != a).all()
    assert a.std() == pytest.approx(2.0, rel=0.05)


def test_every_public_name_is_there_and_others_are_refused():
    assert all(getattr(testing, name) is not None for name in testing.__all__)
    with pytest.raises(AttributeError, match="'check_everything'"):
        testing.check_everything  # noqa: B018


def test_importing_brings_no_torch():
    code = (
        "import sys; from diffcredit.testing import check_design, check_property, check_retraining, learning; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
