import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffcredit.coalitions import decode, encode, make_design, size_probabilities
from diffcredit.coalitions.members import balanced_sizes, sizes_at
from diffcredit.errors import UserError


def test_a_coalition_as_text_has_one_character_a_contributor():
    assert encode(np.array([False, True, False, True])) == "0101"
    assert encode([1, 0]) == "10"
    assert decode("0101").tolist() == [False, True, False, True]
    assert decode("0101").dtype == np.bool_


@pytest.mark.parametrize("text", ["", "01 1", "012", "0b1"])
def test_other_text_is_refused(text):
    with pytest.raises(UserError, match="0 or 1"):
        decode(text)


@pytest.mark.parametrize("coalition", [[[True]], [2, 0], [0.5]])
def test_other_vectors_are_refused(coalition):
    with pytest.raises(UserError, match="booleans"):
        encode(coalition)


def imbalance(sizes, probabilities):
    """(L,): for every length, how far the number of sizes in any range is from expected, at most over the ranges."""
    cumulative = np.concatenate([[0], np.cumsum(probabilities)])
    lengths = np.arange(1, len(sizes) + 1)[:, None]
    excess = np.cumsum(np.asarray(sizes)[:, None] <= np.arange(len(cumulative)), axis=0) - lengths * cumulative
    # A range from a to b has excess[b] − excess[a − 1].
    return excess.max(axis=1) - excess.min(axis=1)


def bound(length):
    return 1 + np.log2(np.arange(1, length + 1)) / 3 + 1e-9


@pytest.mark.parametrize("n", [2, 3, 20])
@pytest.mark.parametrize("name", ["half", "mix"])
def test_every_prefix_keeps_the_quota_of_every_range_of_sizes(name, n):
    sizes = make_design(name, seed=1).draw(n, 0, 200).sum(axis=1)
    assert (imbalance(sizes, size_probabilities(name, n)) <= bound(200)).all()


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**40),
    weights=st.lists(st.floats(0, 1), min_size=1, max_size=30).filter(lambda weights: sum(weights) > 0.01),
)
def test_any_distribution_is_balanced(seed, weights):
    p = np.array(weights) / sum(weights)
    sizes = balanced_sizes("any", seed, len(p) + 1, p, 3000)
    deviation = imbalance(sizes, p)
    assert (deviation <= bound(3000)).all()
    # After 2^k points the unit interval holds one in each of 2^k equal parts.
    assert (deviation[2 ** np.arange(11) - 1] <= 1 + 1e-9).all()
    assert p[np.array(sizes) - 1].min() > 0


def test_quantiles_close_to_one_never_give_an_impossible_size():
    p = np.array([0.0, 0.1, 0.2, 0.7 - 1e-12, 0.0])
    assert sizes_at([0.0, 0.05, 0.1, 0.29, 0.31, 1 - 2**-53], p) == [2, 2, 3, 3, 4, 4]
