import subprocess
import sys

import numpy as np
import pytest

from diffcredit.coalitions import DESIGNS, make_design
from diffcredit.credit import METHODS, Credits, estimate
from diffcredit.credit.estimate import method_of
from diffcredit.credit.table import read_table
from diffcredit.errors import UserError

N = 6
COALITIONS = make_design("uniform").draw(N, 0, 40)
VALUES = np.random.default_rng(0).normal(size=40) + COALITIONS @ np.arange(N)


def credits_of(*values, empty=0.0, full=1.0):
    n = len(values)
    table = read_table(np.eye(n, dtype=bool), np.zeros(n), empty, full, "uniform")
    array = np.array(values, dtype=float)
    return Credits.of(table, "exact", array, np.zeros((n, n + 2)), confidence=0.95, diagnostics={})


def test_shares_average_and_ranks():
    credits = credits_of(3, -1, 3, 5, empty=-2.0, full=8.0)
    assert credits.average == 2.5
    np.testing.assert_allclose(credits.shares, [0.3, -0.1, 0.3, 0.5])
    assert credits.rank().tolist() == [2, 4, 2, 1]
    assert credits.rank(higher_is_better=False).tolist() == [2, 1, 2, 4]
    assert np.isnan(credits_of(1, -1, empty=2.0, full=2.0).shares).all()


def test_what_differs_by_rounding_is_equal():
    credits = credits_of(1e-16, -2e-16, 3e-16, empty=0.974, full=0.974)
    assert credits.rank().tolist() == [1, 1, 1]
    assert len(set(credits.rounded)) == 1
    np.testing.assert_allclose(credits_of(3, -1, 1e-6, empty=-2.0, full=8.0).rounded, [3, -1, 1e-6], rtol=1e-5)
    assert credits_of(0, 0, empty=0.0, full=0.0).rounded.tolist() == [0, 0]


@pytest.mark.parametrize("design", [name.replace("alpha", "0.5") for name in DESIGNS])
def test_a_design_has_credits_by_its_own_method(design):
    """Shapley values wherever all sizes from 1 to n − 1 are drawn, and else what can be had at all."""
    drawn = make_design(design).draw(N, 0, N if design in ("leave-one-out", "add-one-in") else 40)
    method = method_of(design)
    credits = estimate(drawn, drawn @ np.arange(N), empty=0.0, full=15.0, method=method, size_distribution=design)
    level = 2.5 if method == "datamodel" else 0  # one size tells contributors from each other alone
    np.testing.assert_allclose(credits.values + level, np.arange(N), atol=1e-6)
    assert (method == "shapley") == (make_design(design).size_probabilities(N) > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "design"),
    [("shapley", "uniform"), ("unshrunk", "uniform"), ("kernelshap", "kernel"), ("permutation", "permutation"),
     ("banzhaf", "half")],
)  # fmt: skip
def test_null_player_and_twins_hold_within_the_intervals(method, design):
    """Contributor 0 changes nothing; 1 and 2 are interchangeable; the others interact, with diminishing returns."""
    amounts, held = np.array([0.0, 2.0, 2.0, 0.5, 3.0, 1.0, 4.0, 0.2, 1.5, 2.5]), []
    for seed in range(60):
        rows = np.concatenate([make_design(design, seed).draw(10, 0, 117), np.zeros((1, 10), bool)])
        rows = np.concatenate([rows, np.ones((3, 10), bool)])
        values = np.sqrt(rows @ amounts) + 0.5 * (rows[:, 1] | rows[:, 2]) * rows[:, 3]
        values += np.random.default_rng(seed).normal(0, 0.3, len(rows))
        found = estimate(rows, values, empty=[], full=[], method=method, size_distribution=design)
        twins = found.low[1] <= found.high[2] and found.low[2] <= found.high[1]
        held.append((found.low[0] <= 0 <= found.high[0], twins, *found.values[:3]))
    null, twins, *means = np.mean(held, axis=0)
    assert null > 0.85
    assert twins > 0.95
    assert means[0] == pytest.approx(0, abs=0.06)  # `shapley` shrinks towards the average, 0.46
    assert means[1] == pytest.approx(means[2], abs=0.03)
    assert means[1] > 0.2


@pytest.mark.parametrize("method", ["shapley", "kernelshap"])
def test_empty_and_full_rows_are_replicates_of_the_endpoints(method):
    rows = np.concatenate([COALITIONS, np.zeros((1, N), bool), np.ones((2, N), bool)])
    mixed = estimate(rows, [*VALUES, 1.0, 14.0, 17.0], empty=[0.0], full=[16.0], method=method)
    apart = estimate(COALITIONS, VALUES, empty=[0.0, 1.0], full=[16.0, 14.0, 17.0], method=method)
    np.testing.assert_allclose(mixed.values, apart.values)
    np.testing.assert_allclose(mixed.standard_error, apart.standard_error)
    assert mixed.evaluations == apart.evaluations == 40
    assert mixed.empty == 0.5
    assert mixed.values.sum() == pytest.approx((16 + 14 + 17) / 3 - 0.5)
    rows_alone = estimate(rows, [*VALUES, 1.0, 14.0, 17.0], empty=[], full=[16.0], method=method)
    assert rows_alone.empty == 1.0
    for wrong in ({"empty": 0.0, "full": [16.0]}, {"empty": [0.0], "full": 16.0}):
        with pytest.raises(UserError, match=r"(16|0)\.0 is a plain number, .* has [12] rows"):
            estimate(rows, [*VALUES, 1.0, 14.0, 17.0], **wrong, method=method)


def broken(index, value):
    values = VALUES.copy()
    values[index] = value
    return values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "shaply"}, "unknown; choose one of shapley, unshrunk, kernelshap, permutation, exact"),
        ({"size_distribution": "flat"}, "unknown; choose one of .*exhaustive.*uniform"),
        ({"confidence": 95}, "between 0 and 1"),
        ({"values": VALUES[:-1]}, r"\(40, 6\) and values of shape \(39,\)"),
        ({"coalitions": COALITIONS[0]}, r"expected \(m, n\), one row per coalition"),
        ({"coalitions": COALITIONS * 2}, "expected booleans"),
        ({"coalitions": COALITIONS[:, :1]}, "at least 2"),
        ({"values": broken(7, np.nan)}, r"values\[7\]: nan for the coalition [01]{6};"),
        ({"empty": np.nan}, "empty: nan"),
        ({"full": [1.0, np.inf]}, "full: "),
        ({"full": []}, "full: "),
        (
            {"coalitions": COALITIONS[:4], "values": VALUES[:4]},
            "4 evaluations of 4 different coalitions of 6 contributors: shapley needs 2 more",
        ),
        ({"coalitions": np.tile([1, 0], (8, 1)), "values": np.arange(8.0)}, "shapley needs 1 more"),
        ({"values": ["a", *VALUES[1:]]}, "values: could not convert string to float: 'a'; expected real numbers"),
        ({"values": VALUES + 1j}, "values: complex numbers"),
        ({"values": [[1.0, 2.0], *VALUES[1:]]}, "values: .*expected real numbers"),
        ({"values": np.ma.masked_array(VALUES, np.arange(40) == 5)}, r"values\[5\]: nan"),
        ({"coalitions": np.ma.masked_array(COALITIONS, ~COALITIONS)}, "expected booleans, .*none missing"),
        ({"coalitions": [np.flatnonzero(row).tolist() for row in COALITIONS]}, r"expected \(m, n\) booleans"),
        ({"empty": {"a": 0.0}}, "empty: .*expected real numbers"),
        ({"empty": [[0.0, 1.0]]}, r"empty: \[\[0.0, 1.0\]\]; expected a finite number or a sequence"),
        ({"confidence": "0.95"}, "confidence: '0.95'; expected a number"),
        ({"size_distribution": make_design("uniform")}, "size_distribution: .*expected real numbers"),
        ({"prior": ["a"] * N}, "prior: .*expected real numbers"),
        ({"names": ["a", "b"]}, "names: 2 given; expected 6"),
        ({"names": "abcdef"}, "names: 1 given; expected 6"),
        ({"names": [*"abcde", "a"]}, "names: 'a' is given 2 times"),
    ],
)
def test_what_cannot_be_used_is_refused(change, message):
    arguments = {"coalitions": COALITIONS, "values": VALUES, "empty": 0.0, "full": 1.0} | change
    with pytest.raises(UserError, match=message):
        estimate(**arguments)


@pytest.mark.parametrize(
    ("method", "drawn", "stated"), [("shapley", "kernel", "uniform"), ("kernelshap", "uniform", "exhaustive")]
)
def test_sizes_that_contradict_the_stated_design_are_refused(method, drawn, stated):
    coalitions = make_design(drawn).draw(14, 0, 400)
    values = np.random.default_rng(0).normal(size=400)
    with pytest.raises(UserError, match=f"size_distribution '{stated}': contradicts"):
        estimate(coalitions, values, empty=0, full=1, method=method, size_distribution=stated)


@pytest.mark.parametrize("design", ["uniform", "kernel", "exhaustive"])
def test_sizes_of_the_stated_design_are_never_refused(design):
    generator = np.random.default_rng(0)
    for seed in range(5):
        n, m = int(generator.integers(5, 15)), int(generator.integers(8, 30))
        coalitions = make_design(design, seed).draw(n, 0, m)
        estimate(coalitions, generator.normal(size=m), empty=0, full=1, size_distribution=design)


def test_needs_numpy_and_scipy_alone():
    code = (
        "import sys, diffcredit.credit, diffcredit.coalitions, diffcredit.validation.statistics, "
        "diffcredit.testing.games\n"
        "sys.exit(', '.join({'torch', 'sklearn', 'diffusers', 'matplotlib', 'pandas', 'shapiq'} & set(sys.modules)) "
        "or None)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(("method", "design"), [("shapley", "subset(0.5)"), ("kernelshap", "add-one-in")])
def test_coalitions_of_one_size_tell_no_shapley_value(method, design):
    coalitions = np.tile(make_design(design).draw(N, 0, N), (5, 1))
    with pytest.raises(UserError, match=f"never draws coalitions of size .; .* all sizes from 1 to {N - 1}"):
        estimate(coalitions, np.arange(5.0 * N), empty=0, full=1, method=method, size_distribution=design)


@pytest.mark.parametrize("design", ["uniform", "kernel", "leverage"])
def test_a_coalition_replicated_for_its_noise_contradicts_no_design(design):
    coalitions = make_design(design).draw(12, 0, 60)
    coalitions = np.concatenate([coalitions, np.tile(coalitions[0], (50, 1))])
    values = np.random.default_rng(0).normal(size=110)
    credits = estimate(coalitions, values, empty=0, full=1, size_distribution=design)
    assert credits.evaluations == 110


def relative_difference(one, other):
    return np.abs(one - other).max() / np.abs(other).max()


@pytest.mark.parametrize(
    "method", [method for method in METHODS if method not in ("exact", "permutation", "datamodel-lasso")]
)
def test_a_large_constant_changes_nothing(method):
    # As far as numbers of this size can tell: values + 2^30 hold 2^-22 of them.
    one = {"leave-one-out": ~np.eye(N, dtype=bool), "add-one-in": np.eye(N, dtype=bool)}
    coalitions = np.concatenate([one.get(method, COALITIONS), COALITIONS])
    values = np.round(np.random.default_rng(0).normal(size=len(coalitions)) + coalitions @ np.arange(N), 6)
    values = np.ldexp(np.round(np.ldexp(values, 20)), -20)
    plain = estimate(coalitions, values, empty=[0.0, 0.5], full=[15.0], method=method)
    raised = estimate(coalitions, values + 2.0**30, empty=[2.0**30, 2.0**30 + 0.5], full=[2.0**30 + 15], method=method)
    assert relative_difference(raised.values, plain.values) < 1e-7
    finite = np.isfinite(plain.standard_error)
    assert relative_difference(raised.standard_error[finite], plain.standard_error[finite]) < 1e-7


def test_a_bias_alone_has_a_width():
    table = read_table(np.eye(3, dtype=bool), np.zeros(3), 0.0, 1.0, "uniform")
    bias = np.array([0.0, 1.0, 2.0])
    credits = Credits.of(table, "made-up", np.zeros(3), np.zeros((3, 5)), confidence=0.96, bias=bias, diagnostics={})
    # Chebyshev: P(|b| > 5·√E[b²]) ≤ 1/25.
    np.testing.assert_allclose(credits.high, 5 * bias)
    np.testing.assert_allclose(credits.low, -5 * bias)


def test_size_probabilities_serve_as_well_as_a_design():
    coalitions = make_design("kernel").draw(N, 0, 60)
    values = np.random.default_rng(0).normal(size=60)
    sizes = np.arange(1, N)
    kernel = 1 / (sizes * (N - sizes))
    named = estimate(coalitions, values, empty=0, full=1, method="unshrunk", size_distribution="kernel")
    given = estimate(coalitions, values, empty=0, full=1, method="unshrunk", size_distribution=kernel / kernel.sum())
    np.testing.assert_allclose(named.values, given.values, atol=1e-12)
    for wrong in (kernel, [0.5, 0.5], -kernel / kernel.sum()):
        with pytest.raises(UserError, match="expected a design's name or the 5 probabilities"):
            estimate(coalitions, values, empty=0, full=1, size_distribution=wrong)
