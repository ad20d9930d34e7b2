import ast
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import f_oneway, pearsonr, spearmanr, ttest_1samp, ttest_ind
from scipy.stats import t as student

from diffcredit import validation
from diffcredit.credit.correlations import jackknifed_correlation, jackknifed_size_adjusted
from diffcredit.errors import UserError
from diffcredit.validation import statistics
from diffcredit.validation.statistics.ceilings import (
    additive_predictions,
    jackknifed_split,
    mean_over_seeds,
    replicate_ceiling,
)
from diffcredit.validation.statistics.datamodeling import lds, linear_datamodeling_score, predictions
from diffcredit.validation.statistics.intervals import (
    correlation_interval,
    correlation_with_interval,
    jackknife_interval,
    satterthwaite_estimate,
    seeds_interval,
    variance_of_mean,
)

SCIPY = {"spearman": spearmanr, "pearson": pearsonr}


def table(seed=0, n=8, m=60):
    generator = np.random.default_rng(seed)
    return generator.normal(size=n), generator.random((m, n)) < 0.5, generator.normal(size=m)


def test_lds_is_spearmans_correlation_of_the_sums():
    credits, coalitions, noise = table()
    values = coalitions @ credits + noise
    sums = [sum(c for c, member in zip(credits, row, strict=True) if member) for row in coalitions]
    assert linear_datamodeling_score(credits, coalitions, values) == pytest.approx(spearmanr(sums, values).statistic)
    perfect = lds(-credits, coalitions, np.exp(coalitions @ credits))
    assert perfect.value == pytest.approx(-1)
    assert np.isnan([perfect.low, perfect.high]).all()  # no bounds are known of ±1


def test_equal_credits_predict_ties_and_nothing_else():
    _, coalitions, values = table(n=30)
    half = np.argsort(np.argsort(np.random.default_rng(1).random((60, 30)), axis=1), axis=1) < 15
    assert np.isnan(linear_datamodeling_score(np.full(30, 0.1), half, values))
    assert np.isnan(linear_datamodeling_score(np.zeros(30), coalitions, values))
    assert np.isnan(linear_datamodeling_score(np.arange(30), coalitions, np.ones(60)))


def test_lds_refuses_what_does_not_fit():
    credits, coalitions, values = table()
    with pytest.raises(
        UserError, match=r"credits \(7,\), coalitions \(60, 8\), values \(60,\); expected \(n,\), \(B, n\), and \(B,\)"
    ):
        linear_datamodeling_score(credits[:-1], coalitions, values)
    for shape in ((60, 1, 1), (59,), (60, 0)):
        with pytest.raises(UserError, match=r"expected \(n,\), \(B, n\), and \(B,\) or \(B, R\)"):
            lds(credits, coalitions, np.zeros(shape))
    with pytest.raises(UserError, match=r"LDS: values\[3\] is not a finite number"):
        lds(credits, coalitions, np.where(np.arange(60) == 3, np.nan, values))
    with pytest.raises(UserError, match=r"LDS: values\[2, 1\] is not a finite number"):
        lds(credits, coalitions, np.where(np.arange(120).reshape(60, 2) == 5, np.inf, 1.0))


def test_lds_takes_lists_and_averages_seeds():
    credits, coalitions, values = table()
    seeds = np.stack([values, values + np.random.default_rng(3).normal(size=60)], axis=1)
    found = lds(credits.tolist(), coalitions.astype(int).tolist(), seeds.tolist())
    expected = spearmanr(coalitions @ credits, seeds.mean(axis=1)).statistic
    assert found.value == float(found) == pytest.approx(expected)
    assert found.low < found.value < found.high
    assert found.high - found.low < np.ptp([*vars(lds(credits, coalitions, seeds, confidence=0.99)).values()][1:])
    assert linear_datamodeling_score(credits, coalitions, seeds) == found.value
    few = lds(credits, coalitions[:9], seeds[:9])
    assert few.value == pytest.approx(spearmanr(coalitions[:9] @ credits, seeds[:9].mean(axis=1)).statistic)
    assert np.isnan([few.low, few.high]).all()


def without(array, row):
    return np.delete(array, row, axis=0)


def correlated(rho, count, generator):
    a, rest = generator.standard_normal((2, count))
    return a, rho * a + np.sqrt(1 - rho**2) * rest


def test_equal_sums_and_means_are_ties():
    credits = np.array([0.1, 0.2, 0.3, 0.3])
    coalitions = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], bool)
    assert 0.1 + 0.2 != 0.3
    assert len(set(predictions(credits, coalitions))) == 1
    assert (0.1 + 0.2) + 0.3 != 0.1 + (0.2 + 0.3)
    assert len(set(mean_over_seeds(np.array([[0.1, 0.2, 0.3], [0.2, 0.3, 0.1], [0.3, 0.1, 0.2]])))) == 1
    assert predictions(np.zeros(4), coalitions).tolist() == [0, 0, 0]
    assert mean_over_seeds(np.zeros((3, 2))).tolist() == [0, 0, 0]


def test_correlation_interval_is_students_about_fishers_z_with_a_jackknifed_deviation():
    a, b = correlated(0.6, 30, np.random.default_rng(1))
    left_out = np.arctanh([spearmanr(without(a, row), without(b, row)).statistic for row in range(30)])
    deviation = np.sqrt(29 / 30 * ((left_out - left_out.mean()) ** 2).sum())
    middle, half = np.arctanh(spearmanr(a, b).statistic), student.ppf(0.95, 28) * deviation
    found = correlation_with_interval(a, b, "spearman", 0.9)
    expected = (np.tanh(middle), np.tanh(middle - half), np.tanh(middle + half))
    assert (found.value, found.low, found.high) == pytest.approx(expected)


@pytest.mark.parametrize(("rho", "count"), [(0.6, 40), (0.9, 20)])
def test_correlation_interval_covers_over_coalitions_and_seeds(rho, count):
    """Two seeds a coalition, whose mean has half of its variance from noise: the population's Spearman correlation is
    the normal's (6/π) asin(ρ/(2√2))."""
    generator, truth = np.random.default_rng(count), 6 / np.pi * np.arcsin(rho / 2**1.5)
    hits = []
    for _ in range(300):
        a, b = correlated(rho, count, generator)
        values = b[:, None] + np.sqrt(2) * generator.standard_normal((count, 2))
        found = correlation_interval(jackknifed_correlation(a, mean_over_seeds(values), "spearman"), 0.95)
        hits.append(found.low <= truth <= found.high)
    assert 0.92 <= np.mean(hits) <= 0.985


def skewed(generator, m):
    return generator.exponential(size=m) - 1


def normal(generator, m):
    return generator.normal(size=m)


@pytest.mark.parametrize(("m", "rho", "draw"), [(12, 0.6, normal), (20, 0.9, skewed)])
def test_intervals_over_rows_cover_with_sizes_taken_out_too(m, rho, draw):
    """The correlation of x with ρx + √(1−ρ²)e is ρ, whatever the distributions. Of 400 draws, 95 % come out between
    92.8 and 97.2 % nineteen times out of twenty; skewed values at 20 rows are allowed a little less."""
    generator = np.random.default_rng(5)
    sizes = np.arange(m) % 19 + 1
    inside = np.zeros(2)
    for _ in range(400):
        a, e = draw(generator, m), generator.normal(size=m)
        b = rho * a + (1 - rho**2) ** 0.5 * e
        adjusted = jackknifed_size_adjusted(a + 5 * np.log(sizes), b - sizes, sizes, 20)
        found = correlation_with_interval(a, b, "pearson"), correlation_interval(adjusted, 0.95)
        inside += [estimate.low <= rho <= estimate.high for estimate in found]
    assert (inside / 400 >= 0.915).all()
    assert (inside / 400 <= 0.99).all()


def test_jackknife_of_a_mean_is_its_standard_error():
    sample = np.random.default_rng(2).exponential(size=15)
    means = np.array([sample.mean(), *(without(sample, row).mean() for row in range(15))])
    found = jackknife_interval(means, 0.95)
    half = student.ppf(0.975, 13) * sample.std(ddof=1) / np.sqrt(15)
    assert (found.low, found.high) == pytest.approx((sample.mean() - half, sample.mean() + half))


def test_interval_over_seeds_is_students():
    scores = np.array([0.5, 0.61, 0.58])
    low, high = ttest_1samp(scores, 0).confidence_interval(0.95)
    found = seeds_interval(scores, 0.95)
    assert (found.value, found.low, found.high) == pytest.approx((scores.mean(), low, high))
    assert np.isnan(seeds_interval(scores[:1], 0.95).low)


@pytest.mark.parametrize("kind", ["spearman", "pearson"])
def test_split_correlation_is_the_mean_over_pairs_of_seeds(kind):
    values = np.random.default_rng(4).standard_normal((12, 3)) + np.arange(12)[:, None] / 4

    def mean(rows):
        return np.mean([SCIPY[kind](rows[:, i], rows[:, j]).statistic for i, j in combinations(range(3), 2)])

    expected = [mean(values), *(mean(without(values, row)) for row in range(12))]
    assert jackknifed_split(values, kind) == pytest.approx(expected)


def test_replicate_ceiling_by_hand():
    split = np.array([0.5, 1.0, 0.0, -0.2, np.nan])
    expected = [np.sqrt(2 / 3), 1, 0, 0, np.nan]
    assert replicate_ceiling(split, 2, "pearson") == pytest.approx(expected, nan_ok=True)
    # Spearman's .4826 is Pearson's ½ for normal values, and √(2/3) is .8026.
    half, high = (6 / np.pi * np.arcsin(each / 2) for each in (0.5, np.sqrt(2 / 3)))
    assert replicate_ceiling(np.array([half, 1.0]), 2, "spearman") == pytest.approx([high, 1])


@pytest.mark.parametrize(("kind", "seeds"), [("spearman", 3), ("pearson", 2)])
def test_replicate_ceiling_is_what_values_without_noise_reach(kind, seeds):
    generator = np.random.default_rng(5)
    quiet = generator.standard_normal(3000)
    values = quiet[:, None] + 1.3 * generator.standard_normal((3000, seeds))
    split = np.mean([SCIPY[kind](values[:, i], values[:, j]).statistic for i, j in combinations(range(seeds), 2)])
    reached = SCIPY[kind](quiet, values.mean(axis=1)).statistic
    assert replicate_ceiling(np.array([split]), seeds, kind)[0] == pytest.approx(reached, abs=0.02)
    if kind == "pearson":  # the intraclass correlation of the mean, by analysis of variance
        intraclass = 1 - 1 / f_oneway(*values).statistic
        assert replicate_ceiling(np.array([split]), seeds, kind)[0] == pytest.approx(np.sqrt(intraclass), abs=0.005)


def half_coalitions(n, count, generator):
    return np.argsort(np.argsort(generator.random((count, n)), axis=1), axis=1) < n // 2


def test_additive_predictions_of_an_additive_game_are_right_and_of_noise_unrelated():
    generator = np.random.default_rng(7)
    coalitions = half_coalitions(10, 60, generator)
    values = coalitions @ generator.standard_normal(10)
    assert spearmanr(additive_predictions(coalitions, values), values).statistic > 0.99
    found = []
    for _ in range(16):
        coalitions, noise = half_coalitions(12, 20, generator), generator.standard_normal(20)
        found.append(spearmanr(additive_predictions(coalitions, noise), noise).statistic)
    # Pooled predictions with their constants and scales as fitted give −.3.
    assert abs(np.mean(found)) < 0.2


@pytest.mark.parametrize("n", [8, 60])  # fewer and more contributors than coalitions
def test_no_value_has_a_say_in_its_own_prediction(n):
    generator = np.random.default_rng(8)
    coalitions, values = half_coalitions(n, 30, generator), generator.standard_normal(30)
    changed = values + 5.0 * (np.arange(30) == 3)
    before, after = additive_predictions(coalitions, values), additive_predictions(coalitions, changed)
    same = before == after
    assert same[3]
    assert not same[:3].any()


def test_additive_predictions_where_nothing_can_be_learnt():
    generator = np.random.default_rng(9)
    coalitions = half_coalitions(6, 20, generator)
    assert np.ptp(additive_predictions(coalitions, np.ones(20))) == 0
    assert np.ptp(additive_predictions(np.tile(coalitions[:1], (20, 1)), generator.standard_normal(20))) == 0


def welch(value, parts, **confidence):
    return satterthwaite_estimate(value, [variance_of_mean(*part) for part in parts], **confidence)


def test_the_difference_of_two_means_is_welchs():
    generator = np.random.default_rng(0)
    x, y = generator.normal(3, 1, 5), generator.normal(1, 4, 9)
    found = welch(float(x.mean() - y.mean()), [(1, x), (-1, y)], confidence=0.9)
    expected = ttest_ind(x, y, equal_var=False).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_a_sample_of_one_gives_no_bounds_and_equal_values_no_width():
    found = welch(2.0, [(1, np.array([1.0, 2.0])), (1, np.array([1.0]))])
    assert found.value == 2
    assert np.isnan([found.low, found.high]).all()
    found = welch(2.0, [(1, np.full(3, 2.0))])
    assert (found.low, found.high) == (2, 2)


def test_statistics_import_numbers_alone():
    """Anybody's numbers need no study: neither torch nor a ledger."""
    allowed = ("diffcredit.credit", "diffcredit.coalitions", "diffcredit.errors", "diffcredit.util.arrays")
    allowed += ("diffcredit.util.seeds", "diffcredit.validation.statistics")
    for file in Path(statistics.__file__).parent.glob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        found = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        found |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        assert not [name for name in found if name.startswith("diffcredit") and not name.startswith(allowed)]
    assert validation.lds is lds
