import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate, mix, mixed_model
from diffcredit.credit.outliers import outliers_in
from diffcredit.testing.games import all_coalitions, brute_force_shapley

N = 6


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


def from_the_model(generator, spread, slope, noise, lone=0.0):
    """From all coalitions of six with values that follow the model: a size effect, normal slopes, normal noise, which
    fall with the size; with ``lone`` added to the value of contributor 0 alone."""
    coalitions = all_coalitions(N)[1:-1]
    sizes = coalitions.sum(axis=1)
    slopes = (coalitions - sizes[:, None] / N) @ (spread * generator.standard_normal(N)) * sizes ** -float(slope)
    errors = sizes ** (-float(noise) / 2) * generator.standard_normal(len(sizes))
    odd = lone * (coalitions[:, 0] & (sizes == 1))
    values = 3 * np.sqrt(sizes / N) + slopes + errors + odd
    return estimate(coalitions, values, empty=0.0, full=3.0, size_distribution="exhaustive")


def test_a_null_player_is_found_and_covered():
    covered, null_covered, errors = [], [], []
    for seed in range(8):
        game = null_player(seed)
        credits, truth = measured(game, 0.05, seed), brute_force_shapley(game, N)
        assert [each.coalition for each in outliers_in(credits.diagnostics)][:1] == ["100000"]
        assert credits.diagnostics["lack_of_fit_p"] < 0.01
        inside = (credits.low <= truth) & (truth <= credits.high)
        covered.append(inside.mean())
        null_covered.append(inside[0])
        errors.append(((credits.values - truth) ** 2).mean())
    assert truth[0] == pytest.approx(0)
    assert np.mean(covered) > 0.9
    assert np.mean(null_covered) > 0.8
    # `exact` has Σ w² σ² = 0.0156² here; the default used to be off by 0.074.
    assert np.mean(errors) ** 0.5 < 0.0156


def test_credits_still_sum_to_the_total():
    credits = measured(null_player(0), 0.05, 0)
    assert credits.values.sum() == pytest.approx(credits.full - credits.empty)


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


def test_two_null_players():
    def game(coalitions):
        return (coalitions & (np.arange(N) > 1)).any(axis=1).astype(float)

    credits, truth = measured(game, 0.01, 0), brute_force_shapley(game, N)
    assert truth[:2] == pytest.approx(0)
    np.testing.assert_allclose(credits.values, truth, atol=0.02)


@pytest.mark.parametrize(("spread", "slope", "noise"), [(0.3, 1, 1), (1.0, 0, 0)])
def test_values_that_follow_the_model_are_seldom_rejected(spread, slope, noise):
    generator, p = np.random.default_rng(3), []
    for _ in range(20):
        p.append(from_the_model(generator, spread, slope, noise).diagnostics["lack_of_fit_p"])
    # Binomial(20, 0.05) and (20, 0.01): all but a thousandth.
    assert np.sum(np.array(p) < 0.05) <= 5
    assert np.sum(np.array(p) < 0.01) <= 2


def test_an_outlier_among_the_few_small_coalitions_does_not_pass_for_their_noise():
    generator = np.random.default_rng(4)
    for _ in range(4):
        (outlier, *_) = outliers_in(from_the_model(generator, 0.3, 0, 0, lone=15.0).diagnostics)
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


def test_mixes_take_the_worst_of_what_has_no_residual():
    """Of a coalition set apart in two properties nobody knows how its errors go together: they must not cancel."""
    game = null_player(2)
    first, second = measured(game, 0.05, 2), measured(game, 0.05, 3)
    mixed = mix({"a": first, "b": second}, {"a": 1, "b": -1})
    assert (mixed.standard_error >= first.standard_error).all()


def test_a_shape_from_some_of_the_rows_knows_of_those_set_apart(monkeypatch):
    monkeypatch.setattr(mixed_model, "SIZE_MODEL_ROWS", 30)
    game = null_player(4)
    credits, truth = measured(game, 0.02, 4), brute_force_shapley(game, N)
    assert outliers_in(credits.diagnostics)
    assert np.isfinite(credits.standard_error).all()
    np.testing.assert_allclose(credits.values, truth, atol=0.05)
