import numpy as np
import pytest
from scipy import stats

from diffcredit.credit.correlations import correlation, correlations, jackknifed_correlation, jackknifed_size_adjusted
from diffcredit.validation.statistics import linear_datamodeling_score

SCIPY = {"spearman": stats.spearmanr, "pearson": stats.pearsonr}


def pair(m=40, seed=0, rho=0.7):
    generator = np.random.default_rng(seed)
    a = generator.normal(size=m)
    return a, rho * a + (1 - rho**2) ** 0.5 * generator.normal(size=m)


def by_deleting(statistic, m):
    """Of all rows, then without each of them."""
    return [statistic(np.arange(m)), *(statistic(np.delete(np.arange(m), row)) for row in range(m))]


@pytest.mark.parametrize("kind", ["spearman", "pearson"])
@pytest.mark.parametrize("digits", [0, 10])  # 0: many ties
def test_correlations_are_scipys_of_all_rows_and_of_all_but_one(kind, digits):
    a, b = np.round(pair(25), digits)
    expected = by_deleting(lambda rows: SCIPY[kind](a[rows], b[rows]).statistic, 25)
    assert jackknifed_correlation(a, b, kind) == pytest.approx(expected)
    assert correlation(a, b, kind) == pytest.approx(expected[0])


@pytest.mark.parametrize("kind", ["spearman", "pearson"])
def test_rows_are_correlated_one_by_one_whatever_their_scale(kind):
    generator = np.random.default_rng(2)
    a, b = generator.integers(0, 5, (2, 6, 9)).astype(float)
    scales = np.array([[1.0], [1e-200], [1e200], [1.0], [1e-6], [1.0]])
    expected = [SCIPY[kind](*rows).statistic for rows in zip(a, b, strict=True)]
    assert correlations(scales * a, b, kind) == pytest.approx(expected)


def test_sums_in_another_order_are_ties():
    generator = np.random.default_rng(3)
    credits, coalitions = np.repeat([0.1, 0.2, 0.7], 5), generator.random((60, 15)) < 0.5
    values = coalitions @ generator.normal(size=15)
    assert len(np.unique(coalitions @ credits)) > len(np.unique(np.round(coalitions @ credits, 9)))
    assert correlation(coalitions @ credits, values, "spearman") == pytest.approx(
        linear_datamodeling_score(credits, coalitions, values)
    )


@pytest.mark.parametrize("kind", ["spearman", "pearson"])
def test_what_is_constant_without_one_row_has_no_correlation_there(kind):
    odd = np.where(np.arange(12) == 4, 0.7, 0.1)
    found = jackknifed_correlation(odd, np.sqrt(np.arange(12)), kind)
    assert np.flatnonzero(np.isnan(found)).tolist() == [5]


def residuals(values, terms):
    return values - terms @ np.linalg.lstsq(terms, values, rcond=None)[0]


def test_the_size_adjusted_correlation_is_that_of_residuals():
    n, sizes = 30, np.random.default_rng(1).integers(1, 30, 60)
    a, b = pair(60)
    a, b = a + np.log(sizes), b - sizes / n
    s = sizes.astype(float)
    terms = np.stack([np.ones(60), s / n, (s / n) ** 2, np.log(s + 0.5), np.log(n - s + 0.5)], axis=1)

    def of_residuals(rows):
        return stats.pearsonr(residuals(a[rows], terms[rows]), residuals(b[rows], terms[rows])).statistic

    assert jackknifed_size_adjusted(a, b, sizes, n) == pytest.approx(by_deleting(of_residuals, 60), rel=1e-6)


def test_a_size_of_one_row_has_no_say():
    sizes = np.array([1, *[2] * 15, *[3] * 15])
    a, b = pair(31)
    far = np.where(sizes == 1, 1e3, 0.0)
    with_it = jackknifed_size_adjusted(a + far, b + far, sizes, 4)
    assert with_it == pytest.approx(jackknifed_size_adjusted(a, b, sizes, 4))


def test_what_only_grows_with_the_size_does_not_correlate_within_it():
    generator = np.random.default_rng(0)
    sizes = generator.integers(1, 20, 300)
    a, b = (np.log(sizes) + 0.1 * generator.normal(size=300) for _ in range(2))
    assert correlation(a, b, "pearson") > 0.95
    assert abs(jackknifed_size_adjusted(a, b, sizes, 20)[0]) < 0.15


def test_what_is_constant_has_no_correlation():
    a, _ = pair()
    sizes = np.arange(40) % 9 + 1
    for constant in (np.zeros(40), np.full(40, 0.1), 1e6 + np.arange(40) % 2 * 1e-9):
        found = (
            jackknifed_correlation(a, constant, "pearson"),
            jackknifed_correlation(constant, a, "spearman"),
            jackknifed_size_adjusted(a, constant, sizes, 10),
        )
        assert np.isnan(found).all()
