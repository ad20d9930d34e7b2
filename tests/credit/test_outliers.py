"""Coalitions that the model cannot explain: the test, their terms, and replicates that tell noise from misfit."""

import numpy as np
import pytest
from scipy.stats import t as student

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate, mixed_model
from diffcredit.credit.mixed_model import fit_mixed_model
from diffcredit.credit.outliers import (
    Outlier,
    as_diagnostics,
    indicator_game_credits,
    noise_degrees,
    outliers_in,
    residual_of,
)
from diffcredit.credit.regression import size_regressors
from diffcredit.credit.table import read_table
from diffcredit.testing.games import all_coalitions, brute_force_shapley

N = 6
EVERY = all_coalitions(N)[1:-1]
SIZES = EVERY.sum(axis=1)


def model_values(generator, spread, slope, noise):
    """All coalitions of six with values that follow the model: a size effect, normal slopes, normal noise."""
    falling, deviation = SIZES ** -float(slope), SIZES ** (-float(noise) / 2)
    effects = (EVERY - SIZES[:, None] / N) @ (spread * generator.standard_normal(N))
    return 3 * np.sqrt(SIZES / N) + falling * effects + deviation * generator.standard_normal(len(EVERY))


def credits_of(values):
    return estimate(EVERY, values, empty=0.0, full=3.0, size_distribution="exhaustive")


def fitted(values):
    table = read_table(EVERY, values, 0.0, 3.0, "exhaustive").about_mean
    nuisance = size_regressors(table.sizes, table.n)
    return table, nuisance, fit_mixed_model(table, nuisance, np.empty((table.n, 0)))


def test_residuals_are_those_of_fits_without_the_coalition():
    """By generalised least squares with the dense covariance of all other values."""
    values = model_values(np.random.default_rng(1), 0.5, 1, 1)
    table, nuisance, model = fitted(values)
    covariance = (
        np.diag(model.size_model.variance(table)) + model.modulated @ model.modulated.T / model.components.ridge
    )
    expected, sizes = [], []
    for j in range(len(values)):
        rest = np.arange(len(values)) != j
        inverse = np.linalg.inv(covariance[np.ix_(rest, rest)])
        b, y = nuisance[rest], table.values[rest]
        information = np.linalg.inv(b.T @ inverse @ b)
        alpha = information @ b.T @ inverse @ y
        variance = (y - b @ alpha) @ inverse @ (y - b @ alpha) / (len(y) - b.shape[1])
        towards = covariance[j, rest] @ inverse
        new = nuisance[j] - towards @ b
        foretold = nuisance[j] @ alpha + towards @ (y - b @ alpha)
        error = covariance[j, j] - towards @ covariance[rest, j] + new @ information @ new
        sizes.append(table.values[j] - foretold)
        expected.append(sizes[-1] / np.sqrt(variance * error))
    np.testing.assert_allclose(
        [residual_of(model, table.values, j).studentised for j in range(62)], expected, rtol=1e-6
    )
    worst = residual_of(model, table.values)
    assert worst.row == int(np.argmax(np.abs(expected)))
    assert worst.size == pytest.approx(sizes[worst.row])
    assert worst.p == pytest.approx(min(1, 2 * 62 * student.sf(abs(worst.studentised), 62 - nuisance.shape[1] - 1)))


def test_degrees_of_freedom_of_a_sizes_own_noise():
    """The variance of log(σ̂²s^−δ̂), where normal values have σ² and δ estimated by least squares of log squares in
    spirit, is 2/degrees: here by the inverse information of (log σ², δ), with δ's prior of variance 1."""
    table = read_table(EVERY, np.zeros(62), 0.0, 3.0, "exhaustive")
    logs = np.log(table.sizes)
    design = np.column_stack([np.ones(62), -logs])
    variance = np.linalg.inv(design.T @ design / 2 + np.diag([0, 1.0]))
    expected = 2 / np.einsum("jk,kl,jl->j", design, variance, design)
    assert noise_degrees(table, 63) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("values", [np.full(62, 0.3), EVERY @ np.arange(1.0, 7.0) / 7])
def test_rounding_is_no_residual(values):
    table, _, model = fitted(values)
    assert residual_of(model, table.values).p == 1


def test_replicates_tell_noise_from_misfit():
    """Additive games are rejected at about the stated rate, games without any pattern always."""
    generator, rejected = np.random.default_rng(5), 0
    coalitions = np.tile(all_coalitions(4)[1:-1], (2, 1))
    for _ in range(12):
        additive = coalitions @ generator.standard_normal(4) + generator.standard_normal(28)
        credits = estimate(coalitions, additive, empty=0.0, full=1.0, size_distribution="exhaustive")
        rejected += credits.diagnostics["misfit_p"] < 0.05
    assert rejected <= 4  # Binomial(12, 0.05): all but a thousandth
    without_pattern = np.tile(generator.standard_normal(14), 2) + 0.05 * generator.standard_normal(28)
    credits = estimate(coalitions, without_pattern, empty=0.0, full=1.0, size_distribution="exhaustive")
    assert credits.diagnostics["misfit_p"] < 1e-6
    assert "misfit_p" not in credits_of(model_values(generator, 1, 0, 0)).diagnostics  # without replicates


@pytest.mark.parametrize("members", [[0], [1, 3], [0, 1, 2, 4]])
def test_credits_of_a_lone_coalitions_game(members):
    coalition = np.isin(np.arange(5), members)
    expected = brute_force_shapley(lambda rows: (rows == coalition).all(axis=1).astype(float), 5)
    np.testing.assert_allclose(indicator_game_credits(coalition), expected, atol=1e-12)
    text = "".join("1" if inside else "0" for inside in coalition)
    np.testing.assert_allclose(Outlier(text, -3.0, 9.0).moves, -3 * expected, atol=1e-12)


def test_diagnostics_hold_outliers():
    outliers = (Outlier("100", 2.5, 7.0), Outlier("011", -1.0, -6.0))
    assert outliers_in({"sigma": 1.0, **as_diagnostics(outliers), "tau": 2.0}) == outliers


def null_player(seed):
    """Contributor 0 adds nothing to anybody; whoever else comes first brings 1, and a little of their own."""
    own = 0.02 * np.random.default_rng(seed).standard_normal(N)

    def game(coalitions):
        others = coalitions & (np.arange(N) > 0)
        count = others.sum(axis=1)
        return np.where(count > 0, 1 + others @ own / np.maximum(count, 1), 0.0)

    return game


def measured(game, deviation, seed, n=N, evaluations=None, **options):
    """Credits of ``game`` with noise, from all coalitions or from so many ``evaluations`` of the design uniform."""
    generator = np.random.default_rng(1000 + seed)
    design, count = ("exhaustive", 2**n - 2) if evaluations is None else ("uniform", evaluations)
    coalitions = make_design(design, seed).draw(n, 0, count)
    values = game(coalitions) + deviation * generator.standard_normal(count)
    nobody, everybody = game(np.array([[False] * n, [True] * n]))
    full = everybody + deviation * generator.standard_normal(3)
    return estimate(coalitions, values, empty=float(nobody), full=list(full), size_distribution=design, **options)


def test_a_null_player_is_found_and_covered():
    covered, errors = [], []
    for seed in range(6):
        game = null_player(seed)
        credits, truth = measured(game, 0.05, seed), brute_force_shapley(game, N)
        assert [each.coalition for each in outliers_in(credits.diagnostics)][:1] == ["100000"]
        assert credits.diagnostics["lack_of_fit_p"] < 0.01
        inside = (credits.low <= truth) & (truth <= credits.high)
        covered.append(inside.mean())
        assert credits.values.sum() == pytest.approx(credits.full - credits.empty)
        errors.append(((credits.values - truth) ** 2).mean())
    assert truth[0] == pytest.approx(0)
    assert np.mean(covered) > 0.9
    # `exact` has Σ w² σ² = 0.0156² here; the default used to be off by 0.074.
    assert np.mean(errors) ** 0.5 < 0.0156


def test_of_a_part_of_the_coalitions_an_odd_one_is_told_of_and_left_to_noise():
    """Ten contributors, the pair of the first two alone is off by 5."""
    n = 10
    weights = np.random.default_rng(0).standard_normal(n)
    odd = np.arange(n) < 2

    def game(coalitions):
        return coalitions @ weights + 5.0 * (coalitions == odd).all(axis=1)

    drawn = make_design("uniform", 3).draw(n, 0, 120)
    seen = (drawn == odd).all(axis=1).any()
    coalitions = drawn if seen else np.vstack([drawn, odd])
    values = game(coalitions) + 0.1 * np.random.default_rng(1).standard_normal(len(coalitions))
    credits = estimate(coalitions, values, empty=0.0, full=float(weights.sum()))
    (outlier,) = outliers_in(credits.diagnostics)
    assert outlier.coalition == "1100000000"
    assert outlier.size == pytest.approx(5, abs=0.5)
    assert credits.diagnostics["set_apart"] == 0
    truth = brute_force_shapley(game, n)
    assert ((credits.low <= truth) & (truth <= credits.high)).mean() >= 0.8


@pytest.mark.parametrize(("spread", "slope", "noise"), [(0.3, 1, 1), (1.0, 0, 0)])
def test_values_that_follow_the_model_are_seldom_rejected(spread, slope, noise):
    generator, p = np.random.default_rng(3), []
    for _ in range(12):
        p.append(credits_of(model_values(generator, spread, slope, noise)).diagnostics["lack_of_fit_p"])
    assert np.sum(np.array(p) < 0.05) <= 4  # Binomial(12, 0.05): all but a thousandth


def test_an_outlier_among_the_few_small_coalitions_does_not_pass_for_their_noise():
    generator = np.random.default_rng(4)
    for _ in range(4):
        values = model_values(generator, 0.3, 0, 0) + 15.0 * (EVERY[:, 0] & (SIZES == 1))
        (outlier, *_) = outliers_in(credits_of(values).diagnostics)
        assert outlier.coalition == "100000"
        assert outlier.size == pytest.approx(15, abs=5)
        assert outlier.studentised > 5


def test_a_surrogates_coefficient_keeps_its_name():
    game = null_player(1)
    surrogate = np.random.default_rng(9).standard_normal(2**N)
    codes = 1 << np.arange(N)
    both = measured(
        lambda rows: game(rows) + 2 * surrogate[rows @ codes], 0.02, 1, surrogate=lambda rows: surrogate[rows @ codes]
    )
    assert outliers_in(both.diagnostics)
    assert both.diagnostics["anchor_1"] == pytest.approx(2, abs=0.1)
    assert "anchor_2" not in both.diagnostics


def test_a_shape_from_some_of_the_rows_knows_of_those_set_apart(monkeypatch):
    monkeypatch.setattr(mixed_model, "SIZE_MODEL_ROWS", 30)
    game = null_player(4)
    credits, truth = measured(game, 0.02, 4), brute_force_shapley(game, N)
    assert outliers_in(credits.diagnostics)
    assert np.isfinite(credits.standard_error).all()
    np.testing.assert_allclose(credits.values, truth, atol=0.05)
