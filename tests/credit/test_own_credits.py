"""A game's own credits against the definition of the Shapley value, and against a sum of members."""

from itertools import permutations

import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.credit import surrogate_credits

WORTH = np.array([3.0, -1.0, 0.5, 2.0, 0.0])


def curved(members):
    """No sum over members; nobody is worth nothing."""
    return float(np.square(WORTH[list(members)]).sum() ** 0.5 + len(members) ** 2)


def test_all_coalitions_give_the_shapley_value():
    coalitions = make_design("exhaustive", 0).draw(5, 0, 30)
    values = np.array([curved(np.flatnonzero(row)) for row in coalitions])
    found = surrogate_credits(coalitions, values, curved(range(5)), "exhaustive")
    orders, expected = list(permutations(range(5))), np.zeros(5)
    for order in orders:
        for place, joins in enumerate(order):
            expected[joins] += (curved(order[: place + 1]) - curved(order[:place])) / len(orders)
    np.testing.assert_allclose(found.values, expected, rtol=1e-12)
    np.testing.assert_array_equal(found.standard_error, 0)


def test_of_some_coalitions_a_sum_of_members_is_found_unshrunk():
    coalitions = make_design("uniform", 0).draw(5, 0, 20)
    noise = np.random.default_rng(0).normal(size=20)
    clean = surrogate_credits(coalitions, coalitions @ WORTH, WORTH.sum(), "uniform")
    np.testing.assert_allclose(clean.values, WORTH, atol=1e-9)
    noisy = surrogate_credits(coalitions, coalitions @ WORTH + 50 * noise, WORTH.sum(), "uniform")
    twice = surrogate_credits(coalitions, coalitions @ WORTH + 100 * noise, WORTH.sum(), "uniform")
    # linear in the values: what shrinks is not
    np.testing.assert_allclose(twice.values - clean.values, 2 * (noisy.values - clean.values), rtol=1e-9)
    assert noisy.values.sum() == pytest.approx(WORTH.sum())
    assert (noisy.standard_error > 0).all()
