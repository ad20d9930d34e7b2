import numpy as np
import pytest
from scipy.stats import t as student

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


@pytest.mark.parametrize(
    ("design", "n", "m", "seed"), [("kernel", 3, 8, 0), ("uniform", 8, 40, 1), ("kernel", 20, 60, 2)]
)
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
    # HC3 is the sum of the squared changes when one unit is left out: a coalition with its replicates and its
    # complement.
    n, m = 6, 40
    generator = np.random.default_rng(1)
    coalitions, values = make_design(design, 1).draw(n, 0, m), generator.normal(size=m)
    sizes = coalitions.sum(axis=1)
    weights = 1 / (sizes * (n - sizes)) if design == "uniform" else np.ones(m)
    whole = closed_form(coalitions, values, weights, 0.0, 1.0)
    units = {min(tuple(row), tuple(~row)) for row in coalitions}
    assert len(units) < len({tuple(row) for row in coalitions})
    changes = [
        closed_form(coalitions[kept], values[kept], weights[kept], 0.0, 1.0) - whole
        for kept in (np.array([min(tuple(row), tuple(~row)) != unit for row in coalitions]) for unit in units)
    ]
    # So many replicates that the endpoints' variance vanishes.
    credits = estimate(
        coalitions, values, empty=[0.0] * 10**5, full=[1.0] * 10**5, method="kernelshap", size_distribution=design
    )
    np.testing.assert_allclose(credits.standard_error**2, np.sum(np.square(changes), axis=0), rtol=1e-6)


def test_too_few_or_unhelpful_evaluations_are_refused():
    coalitions = make_design("kernel").draw(10, 0, 7)
    with pytest.raises(UserError, match="needs 9 different coalitions, 2 more"):
        estimate(coalitions, np.ones(7), empty=0, full=1, method="kernelshap", size_distribution="kernel")
    # Contributors 2 and 3 are always together.
    alike = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0]])
    with pytest.raises(UserError, match="distinguish all contributors, at least 1 more"):
        estimate(alike, np.ones(6), empty=0, full=1, method="kernelshap", size_distribution="uniform")


def test_unshrunk_is_the_weighted_fit_with_hc2_intervals():
    n, m = 7, 60
    coalitions = make_design("uniform", 3).draw(n, 0, m)
    kept = {}
    for row in coalitions:  # without complements, so that rows are the units
        kept.setdefault(min(tuple(row), tuple(~row)), row)
    coalitions = np.array(list(kept.values()))
    values = np.random.default_rng(3).normal(size=len(coalitions)) + coalitions @ np.arange(n)
    sizes = coalitions.sum(axis=1)
    t = sizes / n
    # six distinct sizes: four size regressors, then n − 1 contrasts
    basis = [np.ones_like(t), t, t**2, np.log(sizes + 0.5)]
    x = np.column_stack([*basis, coalitions[:, :-1] - coalitions[:, -1:].astype(float)])
    w = 1 / (sizes * (n - sizes))
    bread = np.linalg.inv(x.T @ (x * w[:, None]))
    beta = bread @ (x.T @ (w * values))
    # Σβ = 0 is built in: the last contributor's contrast is minus the sum of the others'
    contrast = np.append(beta[4:], -beta[4:].sum())
    full = estimate(coalitions, values, empty=0.0, full=5.0, method="unshrunk")
    # sizes' parts of the indicators are regressed out in either parametrisation
    np.testing.assert_allclose(full.values, contrast - contrast.mean() + 5 / n, atol=1e-8)
    hat = np.einsum("ij,jk,ik->i", x, bread, x) * w
    e = (values - x @ beta) / np.sqrt(1 - hat)
    cov = bread @ (x.T @ (x * (w * e)[:, None] ** 2)) @ bread
    back = np.zeros((n, x.shape[1]))
    back[:-1, 4:], back[-1, 4:] = np.eye(n - 1), -1
    np.testing.assert_allclose(full.standard_error, np.sqrt(np.diag(back @ cov @ back.T)), rtol=1e-6)
    half = student.ppf(0.975, len(values) - 4 - (n - 1)) * full.standard_error
    np.testing.assert_allclose(full.high - full.values, half, rtol=1e-6)


def test_paired_designs_are_judged_by_their_pairs():
    # Complements share what the fit misses of a game that is odd under complements: rows taken one by one are
    # wrong about the error, pairs are right.
    n, m, simulations = 10, 80, 30
    pairs = np.random.default_rng(5).normal(size=(n, n))

    def game(x):
        u = x - 0.5
        return x @ np.arange(n) + np.einsum("mi,ij,mj->m", u, np.triu(pairs, 1), u)

    truth = games.brute_force_shapley(game, n)
    ends = game(np.array([[False] * n, [True] * n]))
    errors, claimed = [], []
    for seed in range(simulations):
        coalitions = make_design("kernel-paired", seed).draw(n, 0, m)
        credits = estimate(
            coalitions,
            game(coalitions),
            empty=ends[0],
            full=ends[1],
            method="unshrunk",
            size_distribution="kernel-paired",
        )
        errors.append(credits.values - truth)
        claimed.append(credits.standard_error)
    # An even game on pairs: the errors cancel within each pair, which rows alone would never know. (Where few
    # sizes were drawn there are fewer size regressors, and not all cancels.)
    assert np.quantile(np.abs(errors), 0.95) < 1e-10
    assert np.quantile(claimed, 0.95) < 1e-7


@pytest.mark.parametrize("method", ["unshrunk", "kernelshap"])
def test_with_as_many_coefficients_as_coalitions_replicates_tell_the_error(method):
    n = 5
    coalitions = make_design("uniform", 1).draw(n, 0, 40)
    coalitions = np.unique(coalitions, axis=0)
    generator = np.random.default_rng(0)
    coefficients = n - 1 + (3 if method == "unshrunk" else 0)  # of four sizes, three regressors
    for _ in range(100):  # until these have all sizes and tell all contributors apart
        chosen = np.sort(generator.permutation(len(coalitions))[:coefficients])
        x = coalitions[chosen] - coalitions[chosen].mean(axis=1, keepdims=True)
        if len(np.unique(coalitions[chosen].sum(axis=1))) == n - 1 and np.linalg.matrix_rank(x) == n - 1:
            break
    replicates = generator.integers(2, 6, size=coefficients)
    rows = np.repeat(coalitions[chosen], replicates, axis=0)

    def fitted(values):
        return estimate(rows, values, empty=0.0, full=0.0, method=method)

    values = generator.normal(size=len(rows))
    credits = fitted(values)
    groups = np.repeat(np.arange(coefficients), replicates)
    pooled = sum(((values[groups == k] - values[groups == k].mean()) ** 2).sum() for k in range(coefficients))
    pooled /= len(rows) - coefficients
    # The credits are linear in the means: one mean raised at a time gives the map.
    linear = np.stack([fitted((groups == k) * 1.0).values for k in range(coefficients)], axis=1)
    np.testing.assert_allclose(credits.standard_error**2, linear**2 @ (pooled / replicates), rtol=1e-9)
