"""The kernels against dense algebra, and λ against planted combinations whose best λ is known."""

import numpy as np
import pytest

from diffcredit.baselines import kernels
from diffcredit.baselines.kernels import DenseKernel, IterativeKernel, chosen_lambda, kernel
from diffcredit.errors import DiffcreditError, UserError

SHAPES = [(40, 15), (15, 40), (30, 30)]
LAMBDAS = [1e-3, 0.5, 100.0]


def made_up(m, k, queries=5, seed=0):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((m, k)), generator.standard_normal((queries, k))


def inverse(phi, lam):
    return np.linalg.inv(phi.T @ phi + lam * np.eye(phi.shape[1]))


def gcv(phi, queries, lam):
    """By its definition, with the k × k matrix I − H."""
    k = phi.shape[1]
    rest = np.eye(k) - phi.T @ phi @ inverse(phi, lam)
    return np.mean([np.sum((rest @ g) ** 2) for g in queries]) / np.trace(rest) ** 2


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Rows come in several blocks even here."""
    monkeypatch.setattr(kernels, "NUMBERS_AT_ONCE", 400)


@pytest.mark.parametrize(("m", "k"), SHAPES)
@pytest.mark.parametrize("lam", LAMBDAS)
@pytest.mark.parametrize("make", [kernel, IterativeKernel])
def test_scores_are_the_ridge_coefficients(m, k, lam, make):
    phi, queries = made_up(m, k)
    expected = phi @ inverse(phi, lam) @ queries.T
    np.testing.assert_allclose(make(phi).scores(queries, lam), expected, rtol=0, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize(("m", "k"), SHAPES)
def test_without_lambda_scores_come_from_the_pseudo_inverse(m, k):
    phi, queries = made_up(m, k)
    phi[1] = phi[0]  # of rank less than m, and with the last column less than k
    phi[:, -1] = phi[:, 0]
    made = kernel(phi)
    np.testing.assert_allclose(made.scores(queries, 0.0), np.linalg.pinv(phi).T @ queries.T, atol=1e-8)
    directions = np.linalg.pinv(phi.T @ phi, rcond=1e-10) @ phi.T
    np.testing.assert_allclose(made.direction_norms(0.0), np.linalg.norm(directions, axis=0), rtol=1e-6)


@pytest.mark.parametrize(("m", "k"), SHAPES)
@pytest.mark.parametrize("lam", LAMBDAS)
def test_direction_norms(m, k, lam):
    phi, _ = made_up(m, k)
    expected = np.linalg.norm(inverse(phi, lam) @ phi.T, axis=0)
    np.testing.assert_allclose(kernel(phi).direction_norms(lam), expected, rtol=1e-8)
    # a chi of 256 degrees of freedom: 4 % is one standard error
    np.testing.assert_allclose(IterativeKernel(phi).direction_norms(lam), expected, rtol=0.18)


@pytest.mark.parametrize(("m", "k"), SHAPES)
def test_cross_validation_is_its_definition(m, k):
    phi, queries = made_up(m, k)
    grid, found = kernel(phi).cross_validation(queries)
    well_conditioned = grid > 1e-6 * grid[-1]
    expected = [gcv(phi, queries, lam) for lam in grid[well_conditioned]]
    np.testing.assert_allclose(found[well_conditioned], expected, rtol=1e-6)


@pytest.mark.parametrize(("m", "k"), [(150, 100), (60, 120)])
def test_iterative_cross_validation_is_near_the_exact_one(m, k):
    phi, _ = made_up(m, k, seed=1)
    phi *= np.arange(1, k + 1) ** -0.5
    generator = np.random.default_rng(2)
    queries = generator.standard_normal((8, m)) @ phi + 3 * generator.standard_normal((8, k))
    made = IterativeKernel(phi)
    grid, found = made.cross_validation(queries)
    expected = [gcv(phi, queries, lam) for lam in grid]
    np.testing.assert_allclose(found[10:], expected[10:], rtol=0.1)
    assert chosen_lambda(made, queries) == pytest.approx(chosen_lambda(kernel(phi), queries), rel=0.6)


@pytest.mark.parametrize(("m", "k", "noise", "decay"), [(60, 300, 0.1, 0.7), (300, 150, 3.0, 0.0)])
def test_lambda_is_near_the_best_for_planted_combinations(m, k, noise, decay):
    """g = Φᵀa + noise with known a: the error of the scores is hardly above that of the best λ of all."""
    generator = np.random.default_rng(int(10 * noise) + m)
    phi = generator.standard_normal((m, k))
    u, s, vt = np.linalg.svd(phi, full_matrices=False)
    phi = (u * s * np.arange(1, len(s) + 1) ** -decay) @ vt
    planted = np.where(generator.random((m, 30)) < 10 / m, 1.0, 0.0)
    signal = phi.T @ planted
    disturbance = generator.standard_normal(signal.shape)
    queries = (signal + noise * np.linalg.norm(signal) / np.linalg.norm(disturbance) * disturbance).T
    made = kernel(phi)

    def error(lam):
        return np.linalg.norm(made.scores(queries, lam) - planted) / np.linalg.norm(planted)

    best = min(error(lam) for lam in made.cross_validation(queries)[0])
    assert error(chosen_lambda(made, queries)) < 1.03 * best + 0.003


def test_lambda_scales_with_the_gradients_and_not_with_the_order():
    phi, queries = made_up(50, 20)
    lam = chosen_lambda(kernel(phi), queries)
    assert chosen_lambda(kernel(10 * phi), 10 * queries) == pytest.approx(100 * lam)
    order = np.random.default_rng(3).permutation(50)
    assert chosen_lambda(kernel(phi[order]), queries) == pytest.approx(lam)
    np.testing.assert_allclose(kernel(phi[order]).scores(queries, lam), kernel(phi).scores(queries, lam)[order])


def test_lambda_is_chosen_on_at_most_256_queries():
    class Counting:
        def cross_validation(self, queries):
            self.seen = queries
            return np.array([1.0, 2.0, 3.0]), np.array([2.0, 1.0, 3.0])

    counting = Counting()
    assert chosen_lambda(counting, np.arange(1000.0)[:, None]) == 2.0
    assert len(counting.seen) == 256
    assert counting.seen[0] == 0
    assert counting.seen[-1] == 999
    chosen_lambda(counting, np.arange(3.0)[:, None])
    np.testing.assert_array_equal(counting.seen[:, 0], [0, 1, 2])


def test_which_kernel(tmp_path):
    rows = np.memmap(tmp_path / "rows", np.float32, "w+", shape=(30, 12))
    rows[:] = made_up(30, 12)[0]
    assert isinstance(kernel(rows), DenseKernel)
    assert isinstance(kernel(rows, dense=11), IterativeKernel)
    assert isinstance(kernel(rows[:11], dense=11), DenseKernel)


def test_the_decomposition_is_kept_and_belongs_to_its_rows(tmp_path, monkeypatch):
    phi, queries = made_up(30, 12)
    expected = kernel(phi, tmp_path).scores(queries, 1.0)
    other = kernel(2 * phi, tmp_path).scores(queries, 1.0)
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(kernels, "_spectrum", None)  # nothing is decomposed again
    np.testing.assert_array_equal(kernel(phi, tmp_path).scores(queries, 1.0), expected)
    np.testing.assert_array_equal(kernel(2 * phi, tmp_path).scores(queries, 1.0), other)


@pytest.mark.parametrize("make", [kernel, lambda rows: IterativeKernel(rows).scores(rows[:1], 1.0)])
def test_gradients_that_attribute_nothing(make):
    with pytest.raises(UserError, match="all are 0"):
        make(np.zeros((5, 4)))
    broken = made_up(5, 4)[0]
    broken[2, 1] = np.nan
    with pytest.raises(UserError, match="not finite"):
        make(broken)


def test_conjugate_gradients_need_a_positive_lambda():
    phi, queries = made_up(5, 4)
    with pytest.raises(UserError, match="lam: 0; more than 0"):
        IterativeKernel(phi).scores(queries, 0.0)


def test_conjugate_gradients_say_when_they_do_not_converge(monkeypatch):
    phi, queries = made_up(40, 40)
    monkeypatch.setattr(IterativeKernel, "_steps_needed", lambda self, lam: 3)
    with pytest.raises(DiffcreditError, match="did not converge in 3 steps"):
        IterativeKernel(phi).scores(queries, 1e-3)
