from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chisquare

from diffcredit.coalitions import DESIGNS, make_design, size_probabilities
from diffcredit.errors import UserError


def keys(rows):
    return [row.tobytes() for row in rows]


@pytest.mark.parametrize("name", list(DESIGNS))
@pytest.mark.parametrize("exclude", [(), [[True, False, True, False, False, False, False]]])
def test_any_cut_of_the_sequence_gives_the_same_rows(name, exclude):
    whole = make_design(name, seed=3).draw(7, 0, 100, exclude)
    assert whole.shape == (100, 7)
    assert whole.dtype == np.bool_
    np.testing.assert_array_equal(whole[:40], make_design(name, seed=3).draw(7, 0, 40, exclude))
    np.testing.assert_array_equal(whole[40:], make_design(name, seed=3).draw(7, 40, 60, exclude))


@pytest.mark.parametrize("name", list(DESIGNS))
def test_seed_and_contributors_change_the_sequence(name):
    rows = make_design(name, seed=0).draw(9, 0, 50)
    assert (rows != make_design(name, seed=1).draw(9, 0, 50)).any()
    np.testing.assert_array_equal(rows, make_design(name, seed=int(np.int64(0))).draw(9, 0, 50))
    np.testing.assert_array_equal(rows, make_design(name, seed=np.int64(0)).draw(9, 0, 50))


@pytest.mark.parametrize("name", list(DESIGNS))
def test_never_the_empty_or_the_full_coalition(name):
    sizes = make_design(name).draw(8, 0, 250).sum(axis=1)
    assert sizes.min() >= 1
    assert sizes.max() <= 7


def test_uniform_keeps_the_quota_of_every_size_at_every_prefix():
    n = 12
    sizes = make_design("uniform", seed=5).draw(n, 0, 10 * (n - 1)).sum(axis=1)
    for m in range(1, len(sizes) + 1):
        counts = np.bincount(sizes[:m], minlength=n)[1:n]
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("m", [10, 30, 60])
def test_uniform_spreads_a_prefix_shorter_than_a_block_over_the_sizes(m):
    n = 258
    for seed in range(5):
        t = np.sort(make_design("uniform", seed).draw(n, 0, m).sum(axis=1)) / n
        # Kolmogorov's distance to the uniform; that of independent sizes shrinks as 1/√m only.
        grid = np.arange(m)
        assert max(abs(t - grid / m).max(), abs(t - (grid + 1) / m).max()) < 3 / m


def test_uniform_makes_each_rows_size_uniform_over_seeds():
    sizes = np.array([make_design("uniform", seed).draw(6, 0, 3).sum(axis=1) for seed in range(1000)])
    for row in sizes.T:
        assert chisquare(np.bincount(row, minlength=6)[1:6]).pvalue > 1e-4


def test_uniform_repeats_no_coalition_while_another_of_its_size_is_left():
    n = 5
    rows = make_design("uniform", seed=2).draw(n, 0, 400)
    sizes = rows.sum(axis=1)
    for size in range(1, n):
        drawn = keys(rows[sizes == size])
        available = len(list(combinations(range(n), size)))
        assert len(drawn) == 100
        for start in range(0, 100 - available + 1, available):
            assert len(set(drawn[start : start + available])) == available


def test_uniform_members_are_uniform_over_contributors_and_pairs():
    n, m = 10, 4500
    rows = make_design("uniform", seed=1).draw(n, 0, m)
    # Coalitions of middle sizes, few of which repeat: each pair is together in s(s−1)/(n(n−1)) of them.
    middle = rows[rows.sum(axis=1) == 5].astype(int)[:200]
    together = middle.T @ middle
    expected = len(middle) * 5 * 4 / (n * (n - 1))
    deviation = np.sqrt(expected * (1 - expected / len(middle)))
    assert (abs(together[~np.eye(n, dtype=bool)] - expected) < 4.5 * deviation).all()
    assert (abs(rows.mean(axis=0) - 0.5) < 4.5 * 0.5 / np.sqrt(m)).all()


@pytest.mark.parametrize("name", list(DESIGNS))
def test_excluded_coalitions_never_come(name):
    n = 6
    excluded = np.array([np.isin(np.arange(n), c) for c in [*list(combinations(range(n), 3))[:19], (0,), (1,)]])
    for exclude in (excluded, list(excluded), [row.tolist() for row in excluded], iter(excluded)):
        rows = make_design(name, seed=4).draw(n, 0, 41, exclude)
        assert not set(keys(rows)) & set(keys(excluded))


def test_excluding_a_coalition_leaves_the_rows_before_it_as_they_were():
    n = 20
    rows = make_design("uniform").draw(n, 0, 100)
    changed = make_design("uniform").draw(n, 0, 100, rows[[30]])
    np.testing.assert_array_equal(changed[:30], rows[:30])
    assert changed[30].sum() == rows[30].sum()
    np.testing.assert_array_equal(changed[31:], rows[31:])


@pytest.mark.parametrize("name", ["uniform", "kernel"])
def test_excluding_every_coalition_of_a_size_is_refused(name):
    with pytest.raises(UserError, match="every coalition of size 1"):
        make_design(name).draw(3, 0, 50, np.eye(3, dtype=bool))


def test_kernel_draws_sizes_from_the_shapley_kernel_independently():
    n, m = 9, 4000
    expected = np.array([1 / (k * (n - k)) for k in range(1, n)])
    expected /= expected.sum()
    np.testing.assert_allclose(size_probabilities("kernel", n), expected)
    rows = make_design("kernel", seed=1).draw(n, 0, m)
    sizes = rows.sum(axis=1)
    assert chisquare(np.bincount(sizes, minlength=n)[1:n], m * expected).pvalue > 1e-4
    pairs = np.bincount((sizes[:-1] - 1) * (n - 1) + sizes[1:] - 1, minlength=(n - 1) ** 2)
    assert chisquare(pairs, (m - 1) * np.outer(expected, expected).ravel()).pvalue > 1e-4
    members = rows[sizes == 1].sum(axis=0)
    assert chisquare(members).pvalue > 1e-4
    assert len(set(keys(rows))) < m


def test_exhaustive_draws_every_coalition_once():
    rows = make_design("exhaustive", seed=1).draw(6, 0, 62)
    assert len(set(keys(rows))) == 62
    np.testing.assert_allclose(size_probabilities("exhaustive", 6), np.bincount(rows.sum(axis=1))[1:] / 62)
    with pytest.raises(UserError, match="has 62"):
        make_design("exhaustive").draw(6, 60, 3)
    with pytest.raises(UserError, match="at most 16"):
        make_design("exhaustive").draw(17, 0, 1)


@pytest.mark.parametrize(("name", "n"), [("uniform", 2), ("kernel", 2), ("exhaustive", 2), ("uniform", 2000)])
def test_size_probabilities_sum_to_one(name, n):
    probabilities = size_probabilities(name, n)
    assert probabilities.shape == (n - 1,)
    assert probabilities.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", ["uniform", "kernel"])
def test_many_contributors_are_fine(name):
    rows = make_design(name).draw(2000, 5, 20)
    assert rows.shape == (20, 2000)
    assert len(set(keys(rows))) == 20


@pytest.mark.parametrize("name", list(DESIGNS))
def test_two_contributors_alternate(name):
    count = 2 if name == "exhaustive" else 40
    rows = make_design(name).draw(2, 0, count)
    assert set(keys(rows)) == set(keys(np.eye(2, dtype=bool)))


def test_a_zero_count_is_an_empty_table():
    assert make_design("uniform").draw(4, 3, 0).shape == (0, 4)


def test_refusals_name_what_is_accepted():
    with pytest.raises(UserError, match="unknown; choose one of exhaustive, kernel, uniform"):
        make_design("kernal")
    with pytest.raises(UserError, match="at least 2"):
        make_design("uniform").draw(1, 0, 1)
    with pytest.raises(UserError, match="at least 2"):
        size_probabilities("kernel", 1)
    with pytest.raises(UserError, match="negative"):
        make_design("kernel").draw(3, -1, 1)
    with pytest.raises(UserError, match=r"expected \(4,\)"):
        make_design("uniform").draw(4, 0, 1, [[True, False]])


def test_the_first_rows_are_the_same_on_every_machine():
    # A ledger written today must be extended by the same sequence tomorrow.
    assert fixed("uniform") == FIXED["uniform"]
    assert fixed("kernel") == FIXED["kernel"]


def fixed(name):
    return ["".join("01"[int(x)] for x in row) for row in make_design(name, seed=0).draw(8, 0, 4)]


FIXED = {
    "uniform": ["11101111", "01110010", "00000110", "11001111"],
    "kernel": ["11011011", "00000001", "10101010", "11011110"],
}
