import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.errors import UserError
from diffcredit.testing import games


def closed_form(coalitions, values, weights, empty, full):
    """β = A⁻¹ (b − 1·(1ᵀA⁻¹b − F(N) + F(∅)) / (1ᵀA⁻¹1)), A = E[1_S 1_Sᵀ], b = E[1_S (F(S) − F(∅))]."""
    x = coalitions.astype(float)
    inverse = np.linalg.inv((x * weights[:, None]).T @ x / weights.sum())
    b = x.T @ (weights * (values - empty)) / weights.sum()
    one = np.ones(x.shape[1])
    return inverse @ (b - one * (one @ inverse @ b - full + empty) / (one @ inverse @ one))


@pytest.mark.parametrize("design", ["kernel", "uniform"])
@pytest.mark.parametrize(("n", "m", "seed"), [(3, 8, 0), (8, 40, 1), (20, 60, 2), (20, 500, 3)])
def test_equals_the_closed_form_on_random_tables(design, n, m, seed):
    generator = np.random.default_rng(seed)
    coalitions, values = make_design(design, seed).draw(n, 0, m), generator.normal(size=m)
    empty, full = generator.normal(size=2) * 5
    sizes = coalitions.sum(axis=1)
    kernel = np.array([1 / (s * (n - s)) for s in sizes])
    weights = kernel / kernel.sum() if design == "uniform" else np.ones(m)
    credits = estimate(coalitions, values, empty=empty, full=full, method="kernelshap", size_distribution=design)
    np.testing.assert_allclose(credits.values, closed_form(coalitions, values, weights, empty, full), atol=1e-8)
    assert credits.values.sum() == pytest.approx(full - empty, abs=1e-9)


@pytest.mark.parametrize("design", ["kernel", "uniform"])
def test_the_sampling_variance_is_the_jackknifes(design):
    # HC3 is the sum of the squared changes when one row is left out.
    n, m = 6, 40
    generator = np.random.default_rng(1)
    coalitions, values = make_design(design, 1).draw(n, 0, m), generator.normal(size=m)
    sizes = coalitions.sum(axis=1)
    weights = 1 / (sizes * (n - sizes)) if design == "uniform" else np.ones(m)
    whole = closed_form(coalitions, values, weights, 0.0, 1.0)
    changes = [
        closed_form(coalitions[kept], values[kept], weights[kept], 0.0, 1.0) - whole
        for kept in (np.arange(m) != row for row in range(m))
    ]
    # So many replicates that the endpoints' variance vanishes.
    credits = estimate(
        coalitions,
        values,
        empty=[0.0] * 10**5,
        full=[1.0] * 10**5,
        method="kernelshap",
        size_distribution=design,
    )
    np.testing.assert_allclose(credits.standard_error**2, np.sum(np.square(changes), axis=0), rtol=1e-6)


def test_an_untrained_endpoint_far_off_the_line_changes_nothing_exact():
    game = games.random_game(6, seed=1)
    coalitions = make_design("exhaustive").draw(6, 0, 62)
    truth = games.brute_force_shapley(lambda x: np.where(x.any(axis=1), game(x), -1e6), 6)
    credits = estimate(
        coalitions,
        game(coalitions),
        empty=-1e6,
        full=game(np.ones((1, 6), dtype=bool)),
        method="kernelshap",
        size_distribution="exhaustive",
    )
    np.testing.assert_allclose(credits.values, truth, rtol=1e-10)


@pytest.mark.parametrize("design", ["kernel", "uniform"])
def test_intervals_cover_and_standard_errors_are_the_size_of_the_errors(design):
    n, m, simulations = 12, 100, 300
    truth = games.brute_force_shapley(games.learning(n, seed=4), n)
    errors, claimed, covered = np.empty((3, simulations, n))
    for seed in range(simulations):
        noisy = games.noisy(games.learning(n, seed=4), 2 * truth.std(), seed)
        coalitions = make_design(design, seed).draw(n, 0, m)
        credits = estimate(
            coalitions,
            noisy(coalitions),
            empty=noisy(np.zeros((1, n), dtype=bool)),
            full=noisy(np.ones((1, n), dtype=bool)),
            method="kernelshap",
            size_distribution=design,
        )
        errors[seed], claimed[seed] = credits.values - truth, credits.standard_error
        covered[seed] = (credits.low <= truth) & (truth <= credits.high)
    assert 0.92 <= covered.mean() <= 0.99
    # HC3 errs on the safe side, and the distance from the line inflates the level's part.
    assert 1 <= claimed.mean() / np.sqrt((errors**2).mean()) < 1.3


def test_too_few_or_unhelpful_evaluations_are_refused():
    coalitions = make_design("kernel").draw(10, 0, 7)
    with pytest.raises(UserError, match="needs 10, 3 more"):
        estimate(coalitions, np.ones(7), empty=0, full=1, method="kernelshap", size_distribution="kernel")
    same = np.tile(make_design("uniform").draw(4, 0, 3)[:1], (9, 1))
    with pytest.raises(UserError, match="at least 2 more"):
        estimate(same, np.ones(9), empty=0, full=1, method="kernelshap", size_distribution="uniform")


def test_uniform_sizes_are_weighted_back_to_the_kernel():
    # 105 = lcm(7, 21, 35) rows of every size, each coalition of a size equally often.
    n = 7
    rows = make_design("exhaustive").draw(n, 0, 126)
    coalitions = np.concatenate([np.resize(rows[rows.sum(axis=1) == size], (105, n)) for size in range(1, n)])
    game = games.random_game(n, seed=0)
    ends = game(np.array([[False] * n, [True] * n]))
    credits = estimate(coalitions, game(coalitions), empty=ends[0], full=ends[1], method="kernelshap")
    np.testing.assert_allclose(credits.values, games.brute_force_shapley(game, n), atol=1e-8)
