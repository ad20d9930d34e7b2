"""Help, shares and the test of equal contributors, against what each promises."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest
from scipy.stats import t as student

from diffcredit.coalitions import make_design
from diffcredit.credit import Credits, estimate, matters, seed_yardstick, stated_yardstick
from diffcredit.credit.equality import equality_p
from diffcredit.credit.table import read_table
from diffcredit.testing import games

N = 6


def credits_of(seed: int, empty, full, higher_is_better=True, **options) -> Credits:
    coalitions = make_design("uniform", seed).draw(N, 0, 40)
    values = games.noisy(games.learning(N, seed), 0.05, seed)(coalitions)
    found = estimate(coalitions, values, empty=empty, full=full, **options)
    return Credits(**vars_of(found) | {"higher_is_better": higher_is_better})


def vars_of(credits):
    return {name: getattr(credits, name) for name in credits.__dataclass_fields__}


@given(st.integers(0, 30), st.floats(-5, 5), st.floats(-5, 5), st.booleans(), st.booleans())
def test_shares_agree_with_help(seed, empty, full, higher, noisy):
    credits = credits_of(seed, [empty, empty + 0.3] if noisy else empty, [full, full - 0.2], higher)
    sign = 1 if higher else -1
    assert credits.help() * sign - credits.values + credits.values.mean() == pytest.approx(0, abs=1e-12)
    total, noise = sign * (credits.full - credits.empty), credits.diagnostics["sigma"] ** 2
    ends = [credits.table.full, *([credits.table.empty] if noisy else [])]
    variance = sum((noise + ((end - end.mean()) ** 2).sum()) / len(end) ** 2 for end in ends)
    sure = total > student.ppf(0.975, credits.degrees) * variance**0.5
    assert credits.shared == credits.surely_help() == sure
    if sure:
        np.testing.assert_allclose(credits.shares, sign * credits.values / total)
        assert (np.argsort(credits.shares) == np.argsort(credits.help())).all()
        assert credits.shares.sum() == pytest.approx(1)
    assert np.isfinite([credits.shares, *credits.share_intervals()]).all() == sure


@given(st.integers(0, 30), st.floats(-1e3, 1e3))
def test_help_is_the_same_under_every_reference(seed, empty):
    one, other = credits_of(seed, 0.0, [1.0, 1.2]), credits_of(seed, [empty, empty + 1], [1.0, 1.2])
    for a, b in zip((one.help(), *one.help_intervals()), (other.help(), *other.help_intervals()), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    assert (one.distinguishable == other.distinguishable).all()


def test_the_yardstick_is_the_spread_between_seeds():
    credits = credits_of(0, 0.0, [1.0, 1.1, 1.5])
    squares = (1 - 1.2) ** 2 + (1.1 - 1.2) ** 2 + (1.5 - 1.2) ** 2
    noise = credits.diagnostics["sigma"] ** 2
    assert seed_yardstick(credits).value == pytest.approx(((noise + squares) / 3) ** 0.5)
    without = Credits(**vars_of(credits) | {"diagnostics": {}})  # as of a method that estimates no noise
    assert seed_yardstick(without).value == pytest.approx((squares / 2) ** 0.5)
    limit = float(np.sort(np.abs(credits.help()))[2])
    assert matters(credits, stated_yardstick(limit)).sum() == N - 3


def table_of(values, coalitions, n):
    return read_table(coalitions, values, 0.0, [1.0], "uniform" if n > 4 else "exhaustive")


def test_the_p_value_is_that_of_all_signs():
    coalitions = make_design("exhaustive").draw(4, 0, 14)
    values = np.random.default_rng(1).normal(size=14) + coalitions[:, 0]
    table = table_of(values, coalitions, 4)
    s, x, y = table.sizes, table.coalitions, table.values
    basis = np.stack([np.ones(14), s / 4.0], axis=1)  # three sizes: a constant and a slope
    hat = basis @ np.linalg.solve(basis.T @ basis, basis.T)
    rest = np.eye(14) - hat
    membership = rest @ (x - s[:, None] / 4)
    adjusted = rest @ y / np.sqrt(np.diag(rest))
    observed = ((membership.T @ y) ** 2).sum()
    codes = x @ [1, 2, 4, 8]
    pair = np.minimum(codes, 15 - codes).tolist()
    order = sorted(set(pair))
    drawn = [
        ((membership.T @ (adjusted * [signs[order.index(p)] for p in pair])) ** 2).sum()
        for signs in product([-1, 1], repeat=len(order))
    ]
    assert equality_p(table) == pytest.approx(np.mean(np.array(drawn) >= observed - 1e-9), abs=0.04)


@pytest.mark.parametrize(("n", "m", "design"), [(8, 40, "uniform"), (30, 25, "uniform"), (8, 40, "paired")])
def test_p_values_are_uniform_where_contributors_are_equal(n, m, design):
    found = []
    for seed in range(200):
        generator = np.random.default_rng(seed)
        coalitions = make_design("uniform", seed).draw(n, 0, m // 2 if design == "paired" else m)
        coalitions = np.concatenate([coalitions, ~coalitions]) if design == "paired" else coalitions
        sizes = coalitions.sum(axis=1)
        values = np.log(sizes) + sizes / n * generator.normal(size=len(sizes))
        found.append(equality_p(table_of(values, coalitions, n)))
    assert kstest(found, "uniform").pvalue > 0.001
    assert np.mean(np.array(found) < 0.05) < 0.1
