"""shapiq's estimators behind one call: exact or consistent where they claim it, within the budget, reproducible."""

import numpy as np
import pytest
from benchmarks.estimators.against_shapiq import ESTIMATORS
from benchmarks.estimators.tables import _mean
from scipy.stats import sem

from diffcredit.testing.games import additive, brute_force_shapley, learning, noisy, random_game

EXACT = [name for name in ESTIMATORS if name.startswith(("KernelSHAP", "kADD-SHAP", "UnbiasedKernelSHAP", "SVARM"))]


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.slow if name == "ProxySPEX" else ()) for name in ESTIMATORS]
)
def name(request: pytest.FixtureRequest) -> str:
    if request.param == "ProxySPEX":
        pytest.importorskip("lightgbm")
    return request.param


@pytest.mark.filterwarnings("ignore:Sampling might be inefficient")
@pytest.mark.parametrize("exact", EXACT)
def test_exact_with_the_whole_budget(exact: str):
    game = random_game(8, seed=1)
    credits = ESTIMATORS[exact](game, 8, 2**8, 0)
    np.testing.assert_allclose(credits, brute_force_shapley(game, 8), atol=1e-6)


@pytest.mark.parametrize("consistent", ["permutation sampling", "stratified sampling"])
def test_consistent(consistent: str):
    game = learning(8)
    truth = brute_force_shapley(game, 8)
    credits = ESTIMATORS[consistent](game, 8, 10_000, 0)
    np.testing.assert_allclose(credits, truth, atol=0.06 * truth.std())


def test_owen_sampling_is_exact_for_an_additive_game():
    weights = np.arange(8.0)
    np.testing.assert_allclose(ESTIMATORS["Owen sampling"](additive(weights), 8, 101, 0), weights)


def test_spends_no_more_than_the_budget_and_most_of_it(name: str):
    n, budget, spent = 12, 101, 0
    game = learning(n)

    def counted(coalitions: np.ndarray) -> np.ndarray:
        nonlocal spent
        assert coalitions.dtype == np.bool_
        assert coalitions.shape[1] == n
        spent += len(coalitions)
        return game(coalitions)

    assert ESTIMATORS[name](counted, n, budget, 0).shape == (n,)
    assert budget - (n - 1) < spent <= budget


def test_a_seed_fixes_the_coalitions_and_noise_is_drawn_anew(name: str):
    def run(seed: int, noise_seed: int) -> np.ndarray:
        return ESTIMATORS[name](noisy(learning(8), 0.05, noise_seed), 8, 100, seed)

    np.testing.assert_array_equal(run(1, 1), run(1, 1))
    assert np.abs(run(1, 1) - run(2, 1)).max() > 1e-3
    assert np.abs(run(1, 1) - run(1, 2)).max() > 1e-3


def test_the_tables_have_the_standard_errors_of_means():
    scores = np.random.default_rng(0).normal(2, 3, 50)
    assert _mean(scores) == {"mean": pytest.approx(scores.mean()), "se": pytest.approx(sem(scores))}
