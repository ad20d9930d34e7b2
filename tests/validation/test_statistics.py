import numpy as np
import pytest
from scipy.stats import spearmanr

from diffcredit.errors import UserError
from diffcredit.validation.statistics import bootstrap_interval, linear_datamodeling_score


def table(seed=0, n=8, m=60):
    generator = np.random.default_rng(seed)
    return generator.normal(size=n), generator.random((m, n)) < 0.5, generator.normal(size=m)


def test_lds_is_spearmans_correlation_of_the_sums():
    credits, coalitions, noise = table()
    values = coalitions @ credits + noise
    sums = [sum(c for c, member in zip(credits, row, strict=True) if member) for row in coalitions]
    assert linear_datamodeling_score(credits, coalitions, values) == pytest.approx(spearmanr(sums, values).statistic)


def test_lds_of_a_monotone_transform_is_one():
    credits, coalitions, _ = table()
    assert linear_datamodeling_score(credits, coalitions, np.exp(coalitions @ credits)) == pytest.approx(1)
    assert linear_datamodeling_score(-credits, coalitions, np.exp(coalitions @ credits)) == pytest.approx(-1)


def test_equal_credits_predict_ties_and_nothing_else():
    _, coalitions, values = table(n=30)
    half = np.argsort(np.argsort(np.random.default_rng(1).random((60, 30)), axis=1), axis=1) < 15
    assert np.isnan(linear_datamodeling_score(np.full(30, 0.1), half, values))
    assert np.isnan(linear_datamodeling_score(np.zeros(30), coalitions, values))
    assert np.isnan(linear_datamodeling_score(np.arange(30), coalitions, np.ones(60)))


def test_lds_refuses_what_does_not_fit():
    credits, coalitions, values = table()
    with pytest.raises(UserError, match=r"expected \(n,\), \(m, n\), \(m,\)"):
        linear_datamodeling_score(credits[:-1], coalitions, values)
    with pytest.raises(UserError, match=r"values\[3\]"):
        linear_datamodeling_score(credits, coalitions, np.where(np.arange(60) == 3, np.nan, values))


def test_bootstrap_interval_of_the_mean_has_the_normal_width():
    sample = np.random.default_rng(0).normal(size=400)
    low, high = bootstrap_interval(lambda x: x.mean(), sample, resamples=4000)
    half = 1.96 * sample.std() / 20
    assert low == pytest.approx(sample.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(sample.mean() + half, abs=0.1 * half)
    narrow = bootstrap_interval(lambda x: x.mean(), sample, resamples=4000, confidence=0.5)
    assert narrow[1] - narrow[0] == pytest.approx(2 * half * 0.6745 / 1.96, rel=0.1)


def test_bootstrap_resamples_rows_jointly():
    x = np.arange(50.0)
    assert bootstrap_interval(lambda a, b: float(np.corrcoef(a, b)[0, 1]), x, 2 * x) == pytest.approx((1, 1))
    assert np.isnan(bootstrap_interval(lambda a: float("nan"), x)).all()
