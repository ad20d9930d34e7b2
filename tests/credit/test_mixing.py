from dataclasses import replace

import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.credit import METHODS, estimate
from diffcredit.credit.mixing import mix
from diffcredit.errors import UserError

N, M = 8, 60
COALITIONS = make_design("uniform").draw(N, 0, M)


def correlated(generator, count, correlation):
    """(count, 2) standard normal."""
    return generator.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], size=count)


def two(method="unshrunk", *, seed=0, empty=(0.0, 1.0), full=(5.0, -2.0), coalitions=COALITIONS, **options):
    values = np.random.default_rng(seed).normal(size=(len(coalitions), 2)) + coalitions @ np.ones((N, 2))
    return values, both(coalitions, values, empty, full, method=method, **options)


def both(coalitions, values, empty, full, **options):
    """The credits of properties a and b, from values (m, 2)."""
    credits = {}
    for name, column, *ends in zip("ab", values.T, empty, full, strict=True):
        found = estimate(coalitions, column, empty=ends[0], full=ends[1], **options)
        credits[name] = replace(found, property_name=name)
    return credits


@pytest.mark.parametrize(("method", "a", "b"), [("unshrunk", -3.0, 0.2), ("kernelshap", 1.0, -1.0), ("unshrunk", 0, 2)])
def test_a_linear_method_gives_what_it_gives_for_the_mixed_values(method, a, b):
    values, credits = two(method)
    mixed = mix(credits, {"a": a, "b": b})
    direct = estimate(COALITIONS, a * values[:, 0] + b * values[:, 1], empty=b, full=5 * a - 2 * b, method=method)
    for name in ("values", "low", "high", "standard_error", "influence", "bias", "empty", "full", "degrees"):
        np.testing.assert_allclose(getattr(mixed, name), getattr(direct, name), atol=1e-12, err_msg=name)
    np.testing.assert_allclose(mixed.table.values, direct.table.values)
    np.testing.assert_array_equal(mixed.rank_intervals(), direct.rank_intervals())
    assert mixed.efficient
    assert mixed.method == "mix"
    assert mixed.evaluations == M
    assert mixed.diagnostics == {name: weight for name, weight in (("weight_a", a), ("weight_b", b)) if weight != 0}


@pytest.mark.parametrize("method", [method for method in METHODS if method != "datamodel-lasso"])
def test_a_multiple_of_one_property_is_that_multiple(method):
    rows = make_design("exhaustive").draw(N, 0, 2**N - 2)
    _, credits = two(
        method, coalitions=rows.repeat(2, axis=0), size_distribution="exhaustive", empty=([0.0, 1.0], [2.0])
    )
    mixed = mix(credits, {"a": -2.0})
    np.testing.assert_allclose(mixed.values, -2 * credits["a"].values)
    np.testing.assert_allclose(mixed.low, -2 * credits["a"].high)
    np.testing.assert_allclose(mixed.high, -2 * credits["a"].low)
    np.testing.assert_allclose(mixed.standard_error, 2 * credits["a"].standard_error)


def test_what_is_not_known_between_properties_adds_up():
    _, credits = two("shapley", empty=([0.0, 1.0], [1.0]), full=([5.0, 4.0, 4.5], [-2.0, -1.0]))
    mixed = mix(credits, {"a": 2.0, "b": -3.0})
    a, b = credits["a"], credits["b"]
    np.testing.assert_allclose(mixed.bias, 2 * a.bias + 3 * b.bias)
    np.testing.assert_allclose(mixed.influence[:, -2:], 2 * a.influence[:, -2:] + 3 * b.influence[:, -2:])
    assert mixed.empty == pytest.approx(2 * 0.5 - 3 * 1.0)
    assert mixed.full == pytest.approx(2 * 4.5 - 3 * -1.5)
    assert mixed.values.sum() == pytest.approx(mixed.full - mixed.empty)


def exact_pair(correlation, seed=0):
    n = 4
    rows = make_design("exhaustive").draw(n, 0, 2**n - 2).repeat(3, axis=0)
    values = correlated(np.random.default_rng(seed), len(rows), correlation) * [1, 5]
    zero = (0.0, 0.0)
    return rows, values, both(rows, values, zero, zero, method="exact", size_distribution="exhaustive")


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, -1.0), (-2.0, 0.3)])
def test_without_residuals_deviations_add_up(weights):
    _, _, credits = exact_pair(0.0)
    mixed = mix(credits, dict(zip("ab", weights, strict=True)))
    expected = sum(abs(w) * credits[name].standard_error for name, w in zip("ab", weights, strict=True))
    np.testing.assert_allclose(mixed.standard_error, expected)


def test_the_scatter_of_replicates_is_bounded():
    rows, values, credits = exact_pair(-0.5)
    mixed = mix(credits, {"a": 1.0, "b": -0.2}).table
    direct = estimate(
        rows, values @ [1, -0.2], empty=0.0, full=0.0, method="exact", size_distribution="exhaustive"
    ).table
    np.testing.assert_allclose(mixed.values, direct.values, atol=1e-12)
    assert (mixed.scatter >= direct.scatter - 1e-12).all()
    assert (mixed.scatter < 4 * direct.scatter).any()


@pytest.mark.parametrize(
    ("weights", "correlation"),
    [((1.0, -2.0), 0.9), *(pytest.param(w, -0.9, marks=pytest.mark.slow) for w in ((0.7, 0.7), (1.0, -2.0)))],
)
def test_mixes_of_the_default_cover(weights, correlation):
    hits = []
    for seed in range(8):
        generator = np.random.default_rng(seed)
        truth = generator.normal(size=(N, 2))
        coalitions = make_design("uniform", seed).draw(N, 0, 160)
        values = coalitions @ truth + correlated(generator, 160, correlation)
        empty, full = (level + correlated(generator, 2, correlation) for level in (0.0, truth.sum(axis=0)))
        mixed = mix(both(coalitions, values, empty.T, full.T), dict(zip("ab", weights, strict=True)))
        target = truth @ weights
        hits.append((mixed.low <= target) & (target <= mixed.high))
    assert np.mean(hits) > 0.93


def test_what_is_unknown_of_one_property_is_unknown_of_the_mix():
    _, credits = two()
    unknown = replace(credits["b"], influence=np.full_like(credits["b"].influence, np.inf))
    mixed = mix(credits | {"b": unknown}, {"a": 1.0, "b": -1.0})
    assert (mixed.low == -np.inf).all()
    assert (mixed.high == np.inf).all()
    np.testing.assert_array_equal(mixed.rank_intervals(), [[1] * N, [N] * N])
    assert np.isnan(mixed.share_intervals()).all()


def other(**changes):
    """Credits that differ from those of `two` in one respect."""
    coalitions = changes.pop("coalitions", COALITIONS)
    values = np.random.default_rng(3).normal(size=len(coalitions))
    return estimate(coalitions, values, empty=[0.0], full=[1.0], **{"method": "unshrunk"} | changes)


@pytest.mark.parametrize(
    ("b", "message"),
    [
        (other(coalitions=COALITIONS[3:]), "mix of 'a' and 'b': their evaluations differ in 3 coalitions"),
        (other(coalitions=np.concatenate([COALITIONS, COALITIONS[:2]])), "differ in 2 coalitions"),
        (other(coalitions=COALITIONS[:, :7]), "contributors 8 and 7"),
        (other(confidence=0.9), "confidence 0.95 and 0.9"),
        (other(method="kernelshap"), "method unshrunk and kernelshap"),
        (other(names=[*"0123457", "6"]), "contributors '6' and '7' in the same place"),
    ],
)
def test_what_was_not_measured_together_is_refused(b, message):
    with pytest.raises(UserError, match=message):
        mix({"a": other(), "b": b}, {"a": 1.0, "b": 1.0})


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "weights: all are 0"),
        ({"a": 0.0, "b": 0.0}, "weights: all are 0"),
        ({"c": 1.0}, "weights: 'c' has no credits; accepted: a, b"),
        ({"a": 1.0, "b": np.nan}, "weights: 'b': nan; a finite number"),
    ],
)
def test_weights_that_say_nothing_are_refused(weights, message):
    with pytest.raises(UserError, match=message):
        mix(two()[1], weights)


def test_errors_known_from_replicates_alone_do_not_cancel():
    # As many coefficients as coalitions: no residual tells that the two properties' errors go together.
    coalitions = np.repeat(np.eye(N, dtype=bool)[: N - 1], 3, axis=0)
    credits = two("kernelshap", coalitions=coalitions)[1]
    mixed = mix(credits, {"a": 1.0, "b": -1.0})
    assert credits["a"].degrees == 2 * (N - 1)
    assert (mixed.standard_error > 0.9 * (credits["a"].standard_error + credits["b"].standard_error)).all()


@pytest.mark.parametrize("method", ["shapley", "exact"])
def test_arithmetic_is_the_mix(method):
    options = {"coalitions": make_design("exhaustive").draw(N, 0, 2**N - 2), "size_distribution": "exhaustive"}
    _, credits = two(method, empty=([0.0, 1.0], [1.0]), **options)
    a, b = credits["a"], credits["b"]
    for found, weights in (
        (0.7 * a + np.float64(0.3) * b, {"a": 0.7, "b": 0.3}),
        (a - b, {"a": 1.0, "b": -1.0}),
        (2 * (a - (b - a)) - a, {"a": 3.0, "b": -2.0}),
        (-a, {"a": -1.0}),
    ):
        expected = mix(credits, weights)
        for name in ("values", "standard_error", "influence", "bias", "low", "high"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
        assert (found.names, found.diagnostics) == (expected.names, expected.diagnostics)
    assert (a - 2 * b).property_name == "a − 2·b"
    with pytest.raises(UserError, match="all are 0"):
        a - a
    for wrong in (1.0, "b"):
        with pytest.raises(TypeError):
            a + wrong


def test_units_and_unnamed_properties():
    same, unnamed = (replace(other(), unit=unit) for unit in ("points", "bits"))
    assert (same + replace(other(), unit="points")).unit == "points"
    assert (same + unnamed).unit == ""
    assert (same + 2 * unnamed).diagnostics == {"weight_1": 1.0, "weight_2": 2.0}
