from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import chisquare

from diffcredit.coalitions import make_design
from diffcredit.errors import UserError


def orders(rows):
    """(permutations, n): the contributors in the order in which they join, from the prefixes."""
    n = rows.shape[1]
    prefixes = rows.reshape(-1, n - 1, n).astype(int)
    steps = np.diff(prefixes, axis=1, prepend=0, append=1)
    assert (steps.min(axis=2) == 0).all()
    assert (steps.sum(axis=2) == 1).all()
    return steps.argmax(axis=2)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_rows_are_the_prefixes_of_permutations_by_size(n):
    rows = make_design("permutation", seed=1).draw(n, 0, 30 * (n - 1))
    np.testing.assert_array_equal(rows.sum(axis=1), np.tile(np.arange(1, n), 30))
    np.testing.assert_array_equal(np.sort(orders(rows), axis=1), np.tile(np.arange(n), (30, 1)))


def test_every_permutation_is_as_probable():
    seen = Counter(map(tuple, orders(make_design("permutation").draw(4, 0, 3 * 2400)).tolist()))
    assert chisquare([seen[order] for order in permutations(range(4))]).pvalue > 1e-4


def test_a_permutation_with_an_excluded_prefix_is_redrawn_whole_and_no_other():
    n = 12
    rows = make_design("permutation").draw(n, 0, 20 * (n - 1))
    changed = make_design("permutation").draw(n, 0, 20 * (n - 1), rows[[7 * (n - 1) + 5]])
    same = (orders(changed) == orders(rows)).all(axis=1)
    np.testing.assert_array_equal(same, np.arange(20) != 7)


def test_redrawn_permutations_are_as_probable_as_each_other():
    excluded = [[True, False, False, False], [False, True, True, False]]
    left = [order for order in permutations(range(4)) if order[0] != 0 and set(order[:2]) != {1, 2}]
    seen = Counter(map(tuple, orders(make_design("permutation").draw(4, 0, 3 * 1400, excluded)).tolist()))
    assert set(seen) == set(left)
    assert chisquare([seen[order] for order in left]).pvalue > 1e-4


def test_exclusions_that_leave_no_permutation_are_refused():
    # {2} and {0, 1} are left, one of each size, but neither lies within the other.
    excluded = [[True, False, False], [False, True, False], [True, False, True], [False, True, True]]
    with pytest.raises(UserError, match="exclude fewer"):
        make_design("permutation").draw(3, 0, 2, excluded)
