import numpy as np
import pytest
from scipy.linalg import fractional_matrix_power
from scipy.optimize import minimize
from scipy.stats import t as student

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate, robust_critical_value
from diffcredit.testing import games


def ends(game, n, replicates=1):
    return {"empty": game(np.zeros((replicates, n), dtype=bool)), "full": game(np.ones((replicates, n), dtype=bool))}


def size_columns(coalitions):
    n, s = coalitions.shape[1], coalitions.sum(axis=1)
    t = s / n
    return np.stack([np.ones_like(t), t, t**2, np.log(s + 0.5), np.log(n - s + 0.5)], axis=1)


@pytest.mark.parametrize(
    ("design", "n", "m"), [("uniform", 2, 4), ("kernel", 3, 6), ("uniform", 40, 25), ("kernel", 60, 300)]
)
def test_credits_sum_to_the_difference_of_the_endpoints(design, n, m):
    game = games.noisy(games.learning(n, seed=1), 0.3, seed=2)
    coalitions = make_design(design).draw(n, 0, m)
    credits = estimate(coalitions, 50 + game(coalitions), empty=[-3.0, -2.0], full=60.0, size_distribution=design)
    assert credits.values.sum() == pytest.approx(62.5, abs=1e-9)
    assert credits.average == pytest.approx(62.5 / n)
    assert (credits.low < credits.values).all()
    assert (credits.values < credits.high).all()


def test_noise_free_additive_games_are_recovered():
    n = 15
    weights = np.random.default_rng(0).normal(size=n)
    game = games.additive(weights, offset=3)
    coalitions = make_design("uniform").draw(n, 0, 60)
    credits = estimate(coalitions, game(coalitions), **ends(game, n))
    np.testing.assert_allclose(credits.values, weights, atol=1e-7)
    assert (credits.high - credits.low).max() < 1e-3


def test_any_function_of_the_size_in_the_regressors_changes_nothing():
    n = 10
    coalitions = make_design("uniform").draw(n, 0, 80)
    values = games.noisy(games.learning(n), 0.1)(coalitions)
    curved = values + size_columns(coalitions) @ [5.0, -20.0, 30.0, 7.0, -9.0]
    plain, bent = (estimate(coalitions, y, empty=0.0, full=1.0) for y in (values, curved))
    np.testing.assert_allclose(plain.values, bent.values, atol=1e-9)
    np.testing.assert_allclose(plain.low, bent.low, atol=1e-9)


def test_units_and_names_do_not_matter():
    n = 10
    coalitions = make_design("uniform").draw(n, 0, 80)
    values = games.noisy(games.learning(n), 0.1)(coalitions)
    base = estimate(coalitions, values, empty=0.0, full=1.0)
    scaled = estimate(coalitions, 1000 * values + 7, empty=7.0, full=1007.0)
    np.testing.assert_allclose(scaled.values, 1000 * base.values, rtol=1e-6)
    np.testing.assert_allclose(scaled.high, 1000 * base.high, rtol=1e-6)
    order = np.random.default_rng(0).permutation(n)
    rows = np.random.default_rng(1).permutation(80)
    renamed = estimate(coalitions[rows][:, order], values[rows], empty=0.0, full=1.0)
    np.testing.assert_allclose(renamed.values, base.values[order], rtol=1e-6)
    np.testing.assert_allclose(renamed.standard_error, base.standard_error[order], rtol=1e-5)


def power_of_size(coalitions, exponent):
    """s^exponent, scaled to mean 1 over all sizes a coalition can have."""
    sizes, n = coalitions.sum(axis=1).astype(float), coalitions.shape[1]
    return sizes**exponent / np.mean([float(s) ** exponent for s in range(1, n)])


def modulated(coalitions, exponent):
    """x̃ s^−γ."""
    return (coalitions - coalitions.mean(axis=1, keepdims=True)) * power_of_size(coalitions, -exponent)[:, None]


def restricted_deviance(logs, values, b, x, variance):
    """The textbook form: log|V| + log|BᵀV⁻¹B| + yᵀPy for V = τ²xxᵀ + σ²diag(v)."""
    v = np.exp(logs[0]) * x @ x.T + np.exp(logs[1]) * np.diag(variance)
    inverse = np.linalg.inv(v)
    inner = b.T @ inverse @ b
    p = inverse - inverse @ b @ np.linalg.solve(inner, b.T @ inverse)
    return np.linalg.slogdet(v)[1] + np.linalg.slogdet(inner)[1] + values @ p @ values


def test_variances_and_exponents_maximise_the_restricted_likelihood():
    n, m = 9, 70
    coalitions = make_design("uniform", 2).draw(n, 0, m)
    noise = np.random.default_rng(1).normal(size=m) * np.sqrt(power_of_size(coalitions, -1.0))
    values = modulated(coalitions, 0.5) @ np.random.default_rng(1).normal(size=n) + 0.7 * noise
    b = size_columns(coalitions)[:, :5]
    diagnostics = estimate(coalitions, values, empty=0.0, full=1.0).diagnostics

    def profile(slope, exponent):
        x, v = modulated(coalitions, slope), power_of_size(coalitions, -exponent)
        # what is left of x besides the size regressors, per contributor: the penalty's measure of a typical slope
        weighted, regressors = x / np.sqrt(v)[:, None], b / np.sqrt(v)[:, None]
        left = weighted - regressors @ np.linalg.lstsq(regressors, weighted, rcond=None)[0]
        typical = (left**2).sum() / (n - 1)  # rows of x sum to 0, so that n − 1 directions are left

        def penalised(logs):
            return restricted_deviance(logs, values, b, x, v) + np.log1p(typical * np.exp(logs[0] - logs[1]))

        found = minimize(penalised, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10})
        return found.fun + slope**2 + exponent**2, found.x

    here = diagnostics["slope_exponent"], diagnostics["noise_exponent"]
    deviance, best = profile(*here)
    for step in ((0.25, 0), (-0.25, 0), (0, 0.25), (0, -0.25)):
        assert profile(here[0] + step[0], here[1] + step[1])[0] > deviance
    assert diagnostics["tau"] == pytest.approx(np.exp(best[0] / 2), rel=1e-3)
    assert diagnostics["sigma"] == pytest.approx(np.exp(best[1] / 2), rel=1e-3)
    assert diagnostics["lambda"] == pytest.approx(np.exp(best[1] - best[0]), rel=1e-3)


def test_credits_are_the_ridge_and_stein_combination_of_the_formulae():
    n, m = 10, 88
    coalitions = make_design("uniform", 5).draw(n, 0, m)
    sizes = coalitions.sum(axis=1)
    x = coalitions - coalitions.mean(axis=1, keepdims=True)
    # Slopes that jump with the size, so that the two fits differ beyond their noise.
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=(2, n))
    values = x @ first + np.where(sizes <= n // 2, 2, -2) * (x @ second) + 0.1 * generator.normal(size=m)
    credits = estimate(coalitions, values, empty=[0.0], full=[2.0])
    ridge, found = credits.diagnostics["lambda"], credits.diagnostics
    # Penalised normal equations, the five size regressors unpenalised.
    b = size_columns(coalitions)
    z = modulated(coalitions, found["slope_exponent"])

    def linear_map(weights, indicators):
        full = np.concatenate([b, indicators], axis=1)
        penalty = np.diag([0.0] * 5 + [ridge] * n)
        return np.linalg.solve(full.T @ (full * weights[:, None]) + penalty, (full * weights[:, None]).T), full

    precision = 1 / power_of_size(coalitions, -found["noise_exponent"])
    weights = 1 / (sizes * (n - sizes))
    weights = weights * (precision[:, None] * z**2).sum() / (weights[:, None] * x**2).sum()
    plain, full = linear_map(precision, z)
    weighted, _ = linear_map(weights, x)
    weighted = weighted - weighted @ (z - x) @ plain[5:]  # of what is left of y when β(m(s) − 1)x̃ is taken out
    hat = full @ plain
    units = [min(tuple(row), tuple(~row)) for row in coalitions]
    blocks = [np.flatnonzero([u == unit for u in units]) for unit in set(units)]
    assert any(len(rows) == 2 for rows in blocks)
    # H is symmetric for √w·y, not for y.
    white = np.sqrt(precision)[:, None] * hat / np.sqrt(precision)
    e = np.sqrt(precision) * (values - hat @ values)

    def influences(linear, power):
        """(n, units): L (I − H)^−power e of each unit: without the unit (1), or of the right variance (½)."""
        columns = []
        for rows in blocks:
            free = np.eye(len(rows)) - white[np.ix_(rows, rows)]
            whitened = linear[:, rows] / np.sqrt(precision[rows])
            columns.append(whitened @ fractional_matrix_power(free, -power) @ e[rows])
        return np.stack(columns, axis=1)

    difference = (weighted - plain)[5:]
    d, v_d = difference @ values, (influences(difference, 1) ** 2).sum(axis=1)
    omega = max(0.0, 1 - v_d.sum() / (d @ d))
    assert 0.1 < omega < 1
    assert found["stein_weight"] == pytest.approx(omega, rel=1e-6)
    expected = plain[5:] @ values + omega * d
    np.testing.assert_allclose(credits.values, expected - expected.mean() + 2.0 / n, atol=1e-8)

    slopes = plain[5:] + omega * difference
    # ω = 1 − tr V_D/‖D‖² changes with D by 2 tr V_D D/‖D‖⁴.
    answer = np.outer(d, 2 * v_d.sum() / (d @ d) ** 2 * d) @ influences(difference, 0.5)
    variance = ((influences(slopes, 0.5) + answer) ** 2).sum(axis=1) + 2 * found["sigma"] ** 2 / n**2
    shrinkage = found["tau"] ** 2 * ((slopes @ z - np.eye(n) + 1 / n) ** 2).sum(axis=1)
    squares = (plain[5:] @ values) ** 2
    spread = (v_d / v_d.sum() + squares / squares.sum()) / 2
    tilt = (1 - omega) ** 2 * (d @ d - v_d.sum() + v_d.sum() * (2 / (n - 1)) ** 0.5) * spread
    np.testing.assert_allclose(credits.standard_error**2, variance + shrinkage + tilt, rtol=1e-6)
    parameters = np.trace(hat) - 5
    student_t = student.ppf(0.975, m - 5 - parameters) / student.ppf(0.975, np.inf)
    spread = student_t * np.sqrt(variance)
    half = robust_critical_value((shrinkage + tilt) / spread**2) * spread
    np.testing.assert_allclose(credits.high - credits.values, half, rtol=1e-6)
    np.testing.assert_allclose(credits.values - credits.low, half, rtol=1e-6)


def test_the_stein_step_finds_the_shapley_value_where_slopes_depend_on_the_size():
    # Contributors 0–3 count when alone, and only then: the unweighted fit gives single contributors far too
    # little weight.
    n = 8

    def game(x):
        s = x.sum(axis=1)
        return np.where(s == 1, 3.0 * x[:, :4].any(axis=1), 0.0)

    truth = games.brute_force_shapley(game, n)
    coalitions = np.tile(make_design("uniform").draw(n, 0, 700), (4, 1))
    credits = estimate(coalitions, game(coalitions), **ends(game, n))
    assert credits.diagnostics["stein_weight"] > 0.9
    np.testing.assert_allclose(credits.values, truth, atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m", "deviation"), [(12, 60, 1.0), (12, 200, 3.0)])
def test_intervals_cover_at_their_rate(n, m, deviation):
    covered, correlations = [], []
    truths = [games.brute_force_shapley(games.learning(n, seed), n) for seed in range(10)]
    for seed in range(220):
        truth = truths[seed % 10]
        noisy = games.noisy(games.learning(n, seed % 10), deviation * truth.std(), seed)
        coalitions = make_design("uniform", seed).draw(n, 0, m)
        credits = estimate(coalitions, noisy(coalitions), **ends(noisy, n))
        covered.append((credits.low <= truth) & (truth <= credits.high))
        correlations.append((credits.diagnostics["predicted_correlation"], np.corrcoef(credits.values, truth)[0, 1]))
    assert 0.92 <= np.mean(covered) <= 0.99
    predicted, realised = np.mean(correlations, axis=0)
    assert realised - 0.12 < predicted < realised + 0.05


def test_fewer_evaluations_than_contributors_beat_guessing_and_cover():
    n, m = 40, 26
    covered, correlations = [], []
    for seed in range(10):
        truth = np.random.default_rng(seed).normal(size=n)
        noisy = games.noisy(games.additive(truth), 1.0, seed)
        coalitions = make_design("uniform", seed).draw(n, 0, m)
        credits = estimate(coalitions, noisy(coalitions), **ends(noisy, n))
        covered.append((credits.low <= truth) & (truth <= credits.high))
        correlations.append(np.corrcoef(credits.values, truth)[0, 1])
    assert np.mean(covered) >= 0.92
    assert np.mean(correlations) > 0.4


def test_contributors_who_do_not_differ_get_the_average_and_a_width():
    n, m = 30, 200
    noisy = games.noisy(games.additive(np.ones(n)), 1.0, seed=0)
    coalitions = make_design("uniform").draw(n, 0, m)
    credits = estimate(coalitions, noisy(coalitions), empty=0.0, full=float(n))
    unshrunk = estimate(coalitions, noisy(coalitions), empty=0.0, full=float(n), method="kernelshap")
    assert np.abs(credits.values - 1).max() < np.abs(unshrunk.values - 1).max() / 3
    assert ((credits.low <= 1) & (credits.high >= 1)).all()
    assert (credits.high - credits.low).min() > 0.05


def test_values_all_equal_are_shared_equally():
    coalitions = make_design("uniform").draw(6, 0, 30)
    for constant in (0.0, 5.0):
        credits = estimate(coalitions, np.full(30, constant), empty=constant, full=constant + 3)
        np.testing.assert_allclose(credits.values, 0.5, atol=1e-9)
        assert all(np.isfinite(number) for number in credits.diagnostics.values())
        assert np.isfinite(credits.high).all()


def test_confidence_widens_and_replicated_endpoints_narrow_the_interval():
    n = 10
    noisy = games.noisy(games.learning(n), 0.3)
    coalitions = make_design("uniform").draw(n, 0, 120)
    values = noisy(coalitions)
    widths = [
        (c.high - c.low).mean()
        for c in (estimate(coalitions, values, empty=0.0, full=1.0, confidence=p) for p in (0.5, 0.95, 0.99))
    ]
    assert (np.diff(widths) > 0).all()
    once = estimate(coalitions, values, empty=[0.0], full=[1.0])
    known = estimate(coalitions, values, empty=0.0, full=1.0)
    half_known = estimate(coalitions, values, empty=0.0, full=[1.0])
    often = estimate(coalitions, values, **ends(noisy, n, replicates=200))
    assert often.diagnostics["level_standard_error"] == pytest.approx(0.3 * (2 / 200) ** 0.5 / n, rel=0.15)
    sigma = once.diagnostics["sigma"]
    assert once.diagnostics["level_standard_error"] == pytest.approx(2**0.5 * sigma / n)
    assert half_known.diagnostics["level_standard_error"] == pytest.approx(sigma / n)
    assert known.diagnostics["level_standard_error"] == 0
    assert (known.high - known.low).mean() < (often.high - often.low).mean() < (once.high - once.low).mean()


def test_slopes_that_fall_with_the_size_are_found_and_credited():
    # A model that follows the average of its members: within size s the slope of i is a_i / s, up to a constant.
    n, m = 12, 150
    strengths = np.random.default_rng(3).normal(size=n)

    def follows_the_average(coalitions):
        return coalitions @ strengths / np.maximum(coalitions.sum(axis=1), 1)

    truth = games.brute_force_shapley(follows_the_average, n)
    coalitions = make_design("uniform", 1).draw(n, 0, m)
    noise = 0.05 * np.random.default_rng(4).normal(size=m)
    credits = estimate(coalitions, follows_the_average(coalitions) + noise, empty=0.0, full=float(strengths.mean()))
    assert credits.diagnostics["slope_exponent"] == 1.0
    # One slope for all sizes leaves the change of slopes as noise; the modulated fit does not.
    values, full = follows_the_average(coalitions) + noise, float(strengths.mean())
    one_slope = estimate(coalitions, values, empty=0.0, full=full, method="kernelshap")
    assert np.abs(credits.values - truth).max() < 0.03 < np.abs(one_slope.values - truth).max()
    assert np.mean((credits.low <= truth) & (truth <= credits.high)) >= 0.8
    assert (credits.high - credits.low).mean() < (one_slope.high - one_slope.low).mean()


@pytest.mark.parametrize(("n", "m"), [(5, 8), (8, 11)])
def test_about_as_many_evaluations_as_parameters_leave_no_blind_faith(n, m):
    """There the slopes fit the values exactly, and a likelihood alone sees no noise: 73 % coverage at (8, 11)."""
    covered, widths = [], []
    for seed in range(25):
        random = np.random.default_rng(1000 * n + seed)
        truth = random.normal(size=n)
        coalitions = make_design("uniform", seed).draw(n, 0, m)
        values = coalitions @ truth + random.normal(size=m)
        full = truth.sum() + random.normal(size=3)
        credits = estimate(coalitions, values, empty=0.0, full=list(full))
        covered.append(np.mean((credits.low <= truth) & (truth <= credits.high)))
        widths.append(np.median(credits.high - credits.low))
    assert np.mean(covered) > 0.84
    assert min(widths) > 0.5


@pytest.mark.parametrize("game", [games.random_game(6, 1), games.weighted_voting(range(1, 7), 11)])
def test_the_default_finds_any_game_as_all_coalitions_are_replicated(game):
    # Interactions everywhere: only where nothing is left to chance may the shrinkage vanish.
    n, errors = 6, []
    truth, every = games.brute_force_shapley(game, n), make_design("exhaustive").draw(n, 0, 2**n - 2)
    for replicates in (2, 10, 50):
        coalitions, noisy = np.tile(every, (replicates, 1)), games.noisy(game, 0.5, replicates)
        credits = estimate(coalitions, noisy(coalitions), **ends(game, n), size_distribution="exhaustive")
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
