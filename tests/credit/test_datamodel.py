import sys
from math import comb

import numpy as np
import pytest
from sklearn.linear_model import Lasso, Ridge

from diffcredit.coalitions import make_design, size_probabilities
from diffcredit.credit.datamodel import datamodel, datamodel_lasso
from diffcredit.credit.table import read_table
from diffcredit.errors import UserError
from diffcredit.testing import games

METHODS = {"datamodel": datamodel, "datamodel-lasso": datamodel_lasso}
BOTH = pytest.mark.parametrize("method", list(METHODS))


def credits_of(method, coalitions, values, size_distribution="uniform", empty=0.0, full=1.0):
    return METHODS[method](read_table(coalitions, values, empty, full, size_distribution), 0.95)


def linear_prediction(game, n, design):
    """(n,): the slopes of the best linear prediction over all coalitions as likely as the design draws them."""
    rows = games.all_coalitions(n)[1:-1]
    sizes = rows.sum(axis=1)
    root = np.sqrt(size_probabilities(design, n)[sizes - 1] / [comb(n, size) for size in sizes])
    columns = np.column_stack([np.ones(len(rows)), rows])
    return np.linalg.lstsq(columns * root[:, None], game(rows) * root)[0][1:]


def test_ridge_is_sklearns_at_the_lambda_of_generalised_cross_validation():
    n, m = 7, 40
    rows = np.unique(make_design("uniform", 1).draw(n, 0, m), axis=0)
    values = games.noisy(games.learning(n, seed=3), 0.2, seed=1)(rows)
    credits = credits_of("datamodel", rows, values)

    def cross_validation(ridge):
        model = Ridge(alpha=ridge)
        # The hat matrix, column by column: the fits to the unit vectors.
        hat = np.stack([model.fit(rows, unit).predict(rows) for unit in np.eye(len(rows))], axis=1)
        left = values - hat @ values
        return (left @ left) / (1 - np.trace(hat) / len(rows)) ** 2

    ridge = credits.diagnostics["lambda"]
    np.testing.assert_allclose(credits.values, Ridge(alpha=ridge).fit(rows, values).coef_, atol=1e-9)
    assert cross_validation(ridge) <= min(cross_validation(ridge * f) for f in (0.01, 0.1, 0.9, 1.1, 10, 100)) + 1e-9
    assert credits.diagnostics["predicted_share"] == pytest.approx(
        1 - cross_validation(ridge) / ((values - values.mean()) ** 2).sum(), abs=1e-6
    )


@BOTH
def test_endpoints_are_not_used_and_a_constant_changes_nothing(method):
    rows = make_design("uniform").draw(8, 0, 40)
    values = games.noisy(games.learning(8), 0.1)(rows)
    plain = credits_of(method, rows, values)
    other = credits_of(method, rows, values + 50, empty=[-1e3, 1e3], full=[1e5])
    np.testing.assert_allclose(other.values, plain.values, atol=1e-6)
    np.testing.assert_allclose(other.high, plain.high, atol=1e-6)


def test_over_coalitions_of_one_size_only_differences_exist():
    n = 8
    weights = np.random.default_rng(0).normal(size=n)
    rows = make_design("subset(0.5)").draw(n, 0, 50)
    credits = credits_of("datamodel", rows, rows @ weights, "subset(0.5)")
    np.testing.assert_allclose(credits.values, weights - weights.mean(), atol=1e-5)


@pytest.mark.parametrize(
    ("method", "design", "m", "runs"),
    [
        ("datamodel", "half", 60, 25),
        ("datamodel", "leverage", 40, 25),
        pytest.param("datamodel", "uniform", 9, 40, marks=pytest.mark.slow),
        pytest.param("datamodel-lasso", "uniform", 60, 8, marks=pytest.mark.slow),
        ("datamodel-lasso", "leverage", 40, 2),
    ],
)
def test_intervals_cover_what_endless_coalitions_would_give(method, design, m, runs):
    n = 10
    game = games.learning(n, seed=4)
    truth = linear_prediction(game, n, design)
    covered = []
    for seed in range(runs):
        rows = make_design(design, seed).draw(n, 0, m)
        credits = credits_of(method, rows, games.noisy(game, 2 * truth.std(), seed)(rows), design)
        covered.append((credits.low <= truth) & (truth <= credits.high))
        assert (credits.low < credits.high).all()
    assert np.mean(covered) >= (0.92 if method == "datamodel" else 0.9)
    assert np.isfinite(credits.standard_error).all()


def test_lasso_is_sklearns_at_its_alpha_and_finds_the_few_who_matter():
    n, m = 20, 120
    weights = np.zeros(n)
    weights[[2, 11, 17]] = [2.0, -1.0, 1.5]
    rows = make_design("uniform").draw(n, 0, m)
    values = games.noisy(games.additive(weights), 0.3)(rows)
    credits = credits_of("datamodel-lasso", rows, values)
    alpha = credits.diagnostics["alpha"]
    rows, first = np.unique(rows, axis=0, return_index=True)
    assert len(rows) == m
    expected = Lasso(alpha=alpha, tol=1e-8, max_iter=100_000).fit(rows, values[first]).coef_
    np.testing.assert_allclose(credits.values, expected, atol=2e-3)
    assert set(np.argsort(-np.abs(credits.values))[:3]) == {2, 11, 17}
    assert credits.diagnostics["selected"] < n
    again = credits_of("datamodel-lasso", rows[::-1], values[first][::-1])
    np.testing.assert_array_equal(again.low, credits.low)


def test_a_missing_scikit_learn_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    rows = make_design("uniform").draw(6, 0, 30)
    with pytest.raises(UserError, match="needs the package scikit-learn"):
        credits_of("datamodel-lasso", rows, np.arange(30.0))


@BOTH
def test_values_that_are_all_equal_give_no_credit(method):
    rows = make_design("uniform").draw(6, 0, 30)
    credits = credits_of(method, rows, np.full(30, 7.0))
    np.testing.assert_allclose(credits.values, 0, atol=1e-9)
    assert np.isfinite(credits.low).all()


@BOTH
def test_too_few_coalitions_are_refused(method):
    rows = make_design("uniform").draw(6, 0, 3)
    with pytest.raises(UserError, match=f"{method} needs 5 different coalitions, 2 more"):
        credits_of(method, rows, np.ones(3))


def test_the_lasso_does_not_depend_on_the_order_of_the_contributors_nor_on_the_sign():
    n = 8
    rows, order = make_design("uniform").draw(n, 0, 40), np.random.default_rng(0).permutation(n)
    values = games.noisy(games.learning(n), 0.2)(rows)
    base = credits_of("datamodel-lasso", rows, values)
    renamed = credits_of("datamodel-lasso", rows[:, order], values)
    turned = credits_of("datamodel-lasso", rows, -values)
    scale = np.abs(base.values).max()
    np.testing.assert_allclose(renamed.values, base.values[order], atol=1e-3 * scale)
    np.testing.assert_allclose(renamed.standard_error, base.standard_error[order], rtol=0.01)
    np.testing.assert_allclose(turned.values, -base.values, atol=1e-3 * scale)
    np.testing.assert_allclose(turned.standard_error, base.standard_error, rtol=0.01)
