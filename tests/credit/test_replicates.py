"""Replicates of one coalition, seeds told twice, and several properties in one call."""

import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.errors import UserError
from diffcredit.testing import games

N = 8
EVERY = make_design("exhaustive").draw(N, 0, 2**N - 2)


@pytest.mark.parametrize("game", [games.random_game(N, 1), games.weighted_voting(range(1, N + 1), 18)])
def test_the_default_finds_any_game_as_all_coalitions_are_replicated(game):
    # Interactions everywhere: only where nothing is left to chance may the shrinkage vanish.
    truth = games.brute_force_shapley(game, N)
    ends = game(np.array([[False] * N, [True] * N]))
    errors = []
    for replicates in (2, 10, 50):
        coalitions = np.tile(EVERY, (replicates, 1))
        noisy = games.noisy(game, 0.5, replicates)
        credits = estimate(coalitions, noisy(coalitions), empty=ends[0], full=ends[1], size_distribution="exhaustive")
        errors.append(np.sqrt(np.mean((credits.values - truth) ** 2)))
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 0.3 * truth.std()


@pytest.mark.slow
def test_more_replicates_of_one_coalition_are_worth_less_than_more_coalitions():
    # Half of the variance is interaction: five replicates of one coalition do not make five coalitions.
    n, simulations = 12, 120
    covered, claimed, errors = [], [], []
    for seed in range(simulations):
        generator = np.random.default_rng(seed)
        truth = generator.normal(size=n)
        pairs = np.triu(generator.normal(size=(n, n)), 1)

        def game(x, truth=truth, pairs=pairs):
            u = x - 0.5
            return x @ truth + np.einsum("mi,ij,mj->m", u, pairs, u)  # even: no part in the Shapley contrasts

        rows = make_design("uniform", seed).draw(n, 0, 60)
        coalitions = np.repeat(rows, generator.integers(1, 9, size=60), axis=0)
        values = games.noisy(game, 1.5, seed)(coalitions)
        credits = estimate(coalitions, values, empty=0.0, full=float(truth.sum()))
        contrast = truth - truth.mean() + credits.average
        covered.append((credits.low <= contrast) & (contrast <= credits.high))
        errors.append(credits.values - contrast)
        claimed.append(credits.standard_error)
    assert np.mean(covered) > 0.93
    assert 0.8 < np.sqrt(np.mean(np.square(claimed)) / np.mean(np.square(errors))) < 1.4


def test_the_same_evaluation_told_twice_counts_once():
    coalitions = make_design("uniform").draw(N, 0, 40)
    values = np.random.default_rng(0).normal(size=40)
    seeds = np.arange(40) % 7
    once = estimate(coalitions, values, empty=0.0, full=1.0, seeds=seeds)
    twice = estimate(
        np.concatenate([coalitions, coalitions[::2]]),
        np.concatenate([values, values[::2]]),
        empty=0.0,
        full=1.0,
        seeds=np.concatenate([seeds, seeds[::2]]),
    )
    assert twice.evaluations == once.evaluations == 40
    np.testing.assert_array_equal(twice.values, once.values)
    # With another seed the same value is a replicate.
    replicated = estimate(
        np.concatenate([coalitions, coalitions[:1]]),
        np.append(values, values[0]),
        empty=0.0,
        full=1.0,
        seeds=np.append(seeds, 99),
    )
    assert replicated.evaluations == 41


def test_one_evaluation_with_two_values_is_refused():
    coalitions = make_design("uniform").draw(N, 0, 40)
    values = np.random.default_rng(0).normal(size=40)
    text = "".join("01"[int(member)] for member in coalitions[3])
    with pytest.raises(UserError, match=rf"values\[3\] and values\[40\]: .* coalition {text} with the same seed 3;"):
        estimate(
            np.concatenate([coalitions, coalitions[3:4]]),
            np.append(values, values[3] + 0.5),
            empty=0.0,
            full=1.0,
            seeds=np.append(np.arange(40), 3),
        )
    with pytest.raises(UserError, match="seeds of shape"):
        estimate(coalitions, values, empty=0.0, full=1.0, seeds=[1, 2])


def test_several_properties_in_one_call():
    coalitions = make_design("uniform").draw(N, 0, 40)
    generator = np.random.default_rng(0)
    values = {"a": generator.normal(size=40), "b": 10 * generator.normal(size=40)}
    both = estimate(coalitions, values, empty={"a": 0.0, "b": [1.0, 2.0]}, full={"a": 5.0, "b": 50.0})
    assert list(both) == ["a", "b"]
    alone = estimate(coalitions, values["b"], empty=[1.0, 2.0], full=50.0)
    np.testing.assert_array_equal(both["b"].values, alone.values)
    np.testing.assert_array_equal(both["b"].low, alone.low)
    with pytest.raises(UserError, match="mappings with the keys a, b"):
        estimate(coalitions, values, empty={"a": 0.0}, full={"a": 5.0, "b": 50.0})
    values["b"][4] = np.nan
    with pytest.raises(UserError, match=r"b: values\[4\]: nan"):
        estimate(coalitions, values, empty={"a": 0.0, "b": 0.0}, full={"a": 5.0, "b": 50.0})


def test_size_probabilities_serve_as_well_as_a_design():
    coalitions = make_design("kernel").draw(N, 0, 60)
    values = np.random.default_rng(0).normal(size=60)
    sizes = np.arange(1, N)
    kernel = 1 / (sizes * (N - sizes))
    named = estimate(coalitions, values, empty=0, full=1, method="unshrunk", size_distribution="kernel")
    given = estimate(coalitions, values, empty=0, full=1, method="unshrunk", size_distribution=kernel / kernel.sum())
    np.testing.assert_allclose(named.values, given.values, atol=1e-12)
    for wrong in (kernel, [0.5, 0.5], -kernel / kernel.sum()):
        with pytest.raises(UserError, match="expected a design's name or the 7 probabilities"):
            estimate(coalitions, values, empty=0, full=1, size_distribution=wrong)
    with pytest.raises(UserError, match="contradicts"):
        estimate(np.tile(coalitions, (9, 1))[:, ::-1], np.tile(values, 9), empty=0, full=1, size_distribution=_at(3))


def _at(size):
    return np.eye(N - 1)[size - 1] * 0.94 + 0.06 / (N - 1) * np.ones(N - 1)
