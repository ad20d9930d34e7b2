from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.validation.made_up import inner_coalitions, recipe_game, section_of, uniform

from diffcredit.credit import estimate
from diffcredit.errors import UserError
from diffcredit.testing.games import additive, brute_force_shapley, learning, noisy, random_game
from diffcredit.validation.parts.fidelity import WANTED
from diffcredit.validation.statistics.fidelity import compare_with_retraining, recommended_steps, shared

N, TAU = 12, 400.0
STEPS = tuple(range(100, 2001, 50))


def size_terms(coalitions):
    s, n = coalitions.sum(axis=1).astype(float), coalitions.shape[1]
    return np.stack([np.ones_like(s), s / n, (s / n) ** 2, np.log(s + 0.5), np.log(n - s + 0.5)], axis=1)


def residuals(values, terms):
    return values - terms @ np.linalg.lstsq(terms, values, rcond=None)[0]


def tuned(steps=STEPS, ratio=3.0, m=80):
    """Fine-tuning games F_k = F + gap·exp(−k/τ), the truth F, and the gap (m,), which within the sizes is unrelated to
    F and ``ratio`` times as wide: the size-adjusted correlation is 1/√(1 + ratio²·exp(−2k/τ))."""
    rows = uniform(N, m)
    truth = recipe_game(learning(N, 1), rows, recipe="from_scratch", method="from_scratch", steps=20000)
    terms = size_terms(rows)
    own = residuals(truth.values, terms)
    gap = residuals(np.random.default_rng(0).normal(size=m), np.column_stack([terms, truth.values]))
    gap *= ratio * np.linalg.norm(own) / np.linalg.norm(gap)
    games = [
        replace(truth, recipe=f"tuned-{k}", method="sparsified", steps=k, values=truth.values + gap * np.exp(-k / TAU))
        for k in steps
    ]
    return games, truth, gap


def test_fidelity_rises_with_the_steps_as_its_closed_form():
    games, truth, gap = tuned()
    result = compare_with_retraining(games[::-1], truth, "unshrunk")
    assert [row.steps for row in result.recipes] == list(STEPS)
    for row in result.recipes:
        left = np.exp(-row.steps / TAU)
        assert row.size_adjusted.value == pytest.approx((1 + 9 * left**2) ** -0.5)
        assert row.size_adjusted.low < row.size_adjusted.value < row.size_adjusted.high
        assert row.mean_gap == pytest.approx(np.abs(gap).mean() * left)
        assert row.largest_gap == pytest.approx(np.abs(gap).max() * left)
        assert row.pearson.value == pytest.approx(stats.pearsonr(row.values, row.retrained).statistic)
        assert row.spearman.value == pytest.approx(stats.spearmanr(row.values, row.retrained).statistic)
    assert result.lottery_gap("sparsified") == pytest.approx(np.abs(gap).max() * np.exp(-2000 / TAU))


def test_recommended_steps_are_those_of_the_closed_form():
    """1/√(1 + 9·exp(−2k/τ)) = w at k = τ·log(3/√(1/w² − 1)); with steps 50 apart, at most a few too many."""
    games, truth, _ = tuned()
    result = compare_with_retraining(games, truth, "unshrunk")
    for wanted in (0.5, 0.8, WANTED, 0.95):
        steps, words = recommended_steps(result, "sparsified", wanted)
        exact = TAU * np.log(3 / (1 / wanted**2 - 1) ** 0.5)
        assert exact - 1 <= steps <= exact + 5
        assert f"{steps} steps are expected to reach a correlation of {wanted:g}." in words
    assert section_of("fidelity", {"F": result}).tables[2].rows[0][1:3] == (
        "sparsified",
        recommended_steps(result, "sparsified", WANTED)[0],
    )


def test_steps_that_do_not_reach_what_is_wanted():
    games, truth, _ = tuned(steps=(100, 200))
    result = compare_with_retraining(games, truth)
    highest = (1 + 9 * np.exp(-400 / TAU)) ** -0.5
    steps, words = recommended_steps(result, "sparsified", 0.9)
    assert steps is None
    assert "none of up to 200 steps" in words
    assert f"{highest:.2f}" in words
    assert recommended_steps(result, "sparsified", 0.1)[0] == 100
    assert recommended_steps(result, "soup", 0.1)[0] is None


def exhaustive(game, n, **about):
    return recipe_game(game, inner_coalitions(n), design="exhaustive", **about)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 10))
def test_the_bound_of_the_credits_holds(seed, scale):
    """Exact credits of F and of F + gap: they differ by the Shapley values of the gap, at most 2√n·max|gap|."""
    n = 5
    base, gap = random_game(n, seed), random_game(n, seed + 1)
    truth = exhaustive(base, n, recipe="from_scratch", method="from_scratch")
    result = compare_with_retraining([exhaustive(lambda x: base(x) + scale * gap(x), n)], truth, "exact")
    credits = result.recipes[0].credits
    everything = np.concatenate([gap(inner_coalitions(n)), gap(np.zeros((1, n), bool)), gap(np.ones((1, n), bool))])
    assert credits.distance == pytest.approx(scale * np.linalg.norm(brute_force_shapley(gap, n)))
    assert credits.bound == pytest.approx(2 * 5**0.5 * scale * np.abs(everything).max())
    assert credits.distance <= credits.bound


def test_credits_are_compared_from_all_evaluations_of_each():
    rows = uniform(N, 90)
    truth = recipe_game(noisy(learning(N, 1), 0.02), rows[:60], recipe="from_scratch", method="from_scratch")
    game = recipe_game(noisy(learning(N, 1), 0.02, seed=1), rows)
    one, other = (
        estimate(g.coalitions, g.values, empty=g.empty, full=g.full, method="unshrunk").values for g in (game, truth)
    )
    row = compare_with_retraining([game], truth, "unshrunk").recipes[0]
    assert len(row.values) == 60
    assert row.credits.pearson == pytest.approx(stats.pearsonr(one, other).statistic)
    assert row.credits.spearman == pytest.approx(stats.spearmanr(one, other).statistic)
    assert row.credits.distance == pytest.approx(np.sqrt(((one - other) ** 2).sum()))


def test_the_truths_own_noise_is_told_from_replicates():
    """F has variance 1 within the sizes, retraining adds noise of variance 1: two trainings correlate by ½; the mean
    of two with F itself by √(2/3). Freed of that, F correlates by 1."""
    n, m = 40, 1000
    generator = np.random.default_rng(0)
    weights = generator.normal(size=n)
    rows = uniform(n, m)
    weights /= residuals(rows @ weights, size_terms(rows)).std()
    truth = recipe_game(
        noisy(additive(weights), 1.0), np.concatenate([rows, rows]), recipe="from_scratch", method="from_scratch"
    )
    once = recipe_game(noisy(additive(weights), 1.0, seed=1), rows, recipe="once")
    result = compare_with_retraining([recipe_game(additive(weights), rows), once], truth, "unshrunk")
    assert result.ceiling.coalitions == m
    assert result.ceiling.size_adjusted.value == pytest.approx(0.5, abs=0.04)
    exact, tried = result.recipes
    assert exact.attainable == pytest.approx((2 / 3) ** 0.5, abs=0.02)
    assert exact.size_adjusted.value == pytest.approx((2 / 3) ** 0.5, abs=0.02)
    assert exact.freed_of_noise == pytest.approx(1, abs=0.03)
    assert tried.freed_of_noise == pytest.approx(0.5**0.5, abs=0.03)  # its own noise stays


def test_credits_that_cannot_be_estimated_leave_a_note():
    games, truth, _ = tuned(steps=(100,))
    few = replace(games[0], recipe="few", coalitions=truth.coalitions[:12], values=truth.values[:12])
    short = replace(few, recipe="short", coalitions=truth.coalitions[:9], values=truth.values[:9])
    result = compare_with_retraining([few, short], truth, "unshrunk")
    row, other = result.recipes
    assert result.ceiling is None  # without replicates
    assert row.freed_of_noise == row.size_adjusted.value
    assert other.note == "shares 9 coalitions with from_scratch; at least 10 are needed"
    assert np.isnan(other.pearson.value)
    assert row.credits is None
    assert "no credits: few: 12 evaluations of 12 contributors" in row.note
    assert np.isfinite(row.pearson.value)
    no_endpoint = compare_with_retraining(games, replace(truth, empty=()), "shapley").recipes[0]
    assert "no credits: from_scratch: empty" in no_endpoint.note


def test_a_constant_property_has_no_correlation():
    games, truth, _ = tuned(steps=(100, 200))
    result = compare_with_retraining(
        [replace(game, values=np.ones(80), empty=(1.0,), full=(1.0,)) for game in games], truth
    )
    row = result.recipes[0]
    assert np.isnan([row.pearson.value, row.spearman.value, row.size_adjusted.value, row.freed_of_noise]).all()
    assert "constant over the coalitions of tuned-100" in row.note
    assert recommended_steps(result, "sparsified", 0.9)[0] is None
    section = section_of("fidelity", {"IS": result})
    assert any("constant" in sentence for sentence in section.summary)


def test_what_cannot_be_compared_is_refused():
    games, truth, _ = tuned(steps=(100,))
    with pytest.raises(UserError, match="no recipe beside 'from_scratch'"):
        compare_with_retraining([truth], truth)
    empty = replace(truth, coalitions=truth.coalitions[:0], values=truth.values[:0])
    with pytest.raises(UserError, match="'from_scratch' has 0 coalitions; at least 10"):
        compare_with_retraining(games, empty)


def test_the_section_shows_every_recipe_of_every_property():
    games, truth, _ = tuned(steps=(100, 400, 1600))
    twice = replace(
        truth, coalitions=np.tile(truth.coalitions, (2, 1)), values=np.tile(truth.values, 2) + np.arange(160) % 7 * 0.01
    )
    results = {"IS": compare_with_retraining(games, truth), "entropy": compare_with_retraining(games, twice)}
    section = section_of("fidelity", results)
    assert section.part == "fidelity"
    for table in section.tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
    correlations, gaps, steps = section.tables
    assert [row[:2] for row in correlations.rows] == [
        *(("IS", f"tuned-{k}") for k in (100, 400, 1600)),
        *(("entropy", f"tuned-{k}") for k in (100, 400, 1600)),
        ("entropy", "from_scratch, another seed"),
    ]
    assert correlations.rows[0][7] == results["IS"].recipes[0].size_adjusted
    assert len(gaps.rows) == 6
    assert [row[:2] for row in steps.rows] == [("IS", "sparsified"), ("entropy", "sparsified")]
    assert {figure.name for figure in section.figures} == {"values-against-retraining", "correlation-by-steps"}
    assert any("tuned-1600 follows retraining best" in sentence for sentence in section.summary)


def test_coalitions_are_matched_by_content_and_replicates_averaged():
    """Endpoints are not among them."""
    weights, rows = 2.0 ** np.arange(6), uniform(6, 20)
    assert len(np.unique(rows, axis=0)) == 20
    mixed = np.concatenate([np.zeros((1, 6), bool), rows[12:3:-1], np.ones((1, 6), bool), rows[5:7]])
    truth = recipe_game(additive(weights), mixed)
    truth.values[-2:] += [3.0, 6.0]
    game = recipe_game(additive(weights, 100.0), np.concatenate([mixed[:1], rows[:10]]))
    coalitions, first, second, replicates = shared(game, truth)
    assert (coalitions == rows[4:10]).all()
    assert first == pytest.approx(rows[4:10] @ weights + 100)
    assert second == pytest.approx(rows[4:10] @ weights + [0, 1.5, 3, 0, 0, 0])
    assert replicates.tolist() == [1, 2, 2, 1, 1, 1]
    assert len(shared(recipe_game(additive(weights), rows[:2]), recipe_game(additive(weights), rows[2:]))[0]) == 0
