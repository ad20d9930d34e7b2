import hashlib
from collections import Counter
from itertools import combinations, permutations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from diffcredit.coalitions import DESIGNS, make_design, size_probabilities
from diffcredit.errors import UserError

NAMES = [name.replace("alpha", "0.5") for name in DESIGNS]
FINITE = {"exhaustive": lambda n: 2**n - 2, "leave-one-out": lambda n: n, "add-one-in": lambda n: n}
ENDLESS = [name for name in NAMES if name not in FINITE]
PAIRED = ["kernel-paired", "leverage"]


def most(name, n, count):
    """``count`` rows, or as many as the design has."""
    return min(FINITE[name](n), count) if name in FINITE else count


def all_rows(name, n):
    return make_design(name).draw(n, 0, FINITE[name](n)) if name in FINITE else []


def keys(rows):
    return [row.tobytes() for row in rows]


def all_of_size(n, size):
    return np.array([np.isin(np.arange(n), members) for members in combinations(range(n), size)])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=4, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**40), n=st.integers(2, 9))
def test_any_cut_of_the_sequence_gives_the_same_rows(name, data, seed, n):
    # Of two and three contributors, what is excluded may leave nothing.
    members = st.lists(st.booleans(), min_size=n, max_size=n)
    exclude = data.draw(st.lists(members, max_size=1 if n > 3 else 0))
    taken = sum(any(np.array_equal(row, out) for out in exclude) for row in all_rows(name, n))
    count = most(name, n, 60 + taken) - taken
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    whole = make_design(name, seed).draw(n, 0, count, exclude)
    assert whole.shape == (count, n)
    assert whole.dtype == np.bool_
    np.testing.assert_array_equal(whole[start:stop], make_design(name, seed).draw(n, start, stop - start, exclude))
    assert make_design(name, seed).draw(n, start, 0, exclude).shape == (0, n)


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_changes_the_sequence_and_the_width_of_integers_does_not(name):
    count = most(name, 9, 50)
    rows = make_design(name, seed=0).draw(9, 0, count)
    assert (rows != make_design(name, seed=1).draw(9, 0, count)).any()
    numpys = make_design(name, seed=np.int64(0)).draw(np.int64(9), np.int32(0), np.int64(count))
    np.testing.assert_array_equal(rows, numpys)


@pytest.mark.parametrize("name", NAMES)
def test_each_row_is_a_random_coalition_of_its_size_and_of_the_stated_sizes(name):
    n, seeds = 5, 200
    rows = np.array([make_design(name, seed).draw(n, 1, 1)[0] for seed in range(seeds)])
    sizes = rows.sum(axis=1)
    # Row 1 of a permutation is its second prefix; all others have one distribution in all rows.
    expected = [0, 1, 0, 0] if name == "permutation" else size_probabilities(name, n)
    assert_fits(np.bincount(sizes, minlength=n)[1:], expected)
    for size in set(sizes.tolist()):
        seen = Counter(keys(rows[sizes == size]))
        everything = keys(all_of_size(n, size))
        assert_fits([seen[key] for key in everything], np.full(len(everything), 1 / len(everything)))


def assert_fits(seen, probabilities):
    seen, probabilities = np.array(seen), np.array(probabilities)
    assert not seen[probabilities == 0].any()
    seen, probabilities = seen[probabilities > 0], probabilities[probabilities > 0]
    if len(seen) > 1:
        assert chisquare(seen, seen.sum() * probabilities).pvalue > 1e-4


def normalised(n, weight):
    weights = np.array([weight(s) for s in range(1, n)])
    return weights / weights.sum()


SIZES = {
    "add-one-in": lambda n: np.eye(n - 1)[0],
    "exhaustive": lambda n: normalised(n, lambda s: comb(n, s)),
    "half": lambda n: normalised(n, lambda s: comb(n, s)),
    "kernel": lambda n: normalised(n, lambda s: (n - 1) / (s * (n - s))),
    "kernel-paired": lambda n: normalised(n, lambda s: (n - 1) / (s * (n - s))),
    "leave-one-out": lambda n: np.eye(n - 1)[-1],
    "leverage": lambda n: np.full(n - 1, 1 / (n - 1)),
    "mix": lambda n: (SIZES["half"](n) + normalised(n, lambda s: (s * (n - s)) ** -0.5)) / 2,
    "permutation": lambda n: np.full(n - 1, 1 / (n - 1)),
    "subset(0.5)": lambda n: np.eye(n - 1)[{2: 1, 3: 2, 8: 4}[n] - 1],
    "uniform": lambda n: np.full(n - 1, 1 / (n - 1)),
}


@pytest.mark.parametrize("name", NAMES)
def test_size_probabilities(name):
    for n in (2, 3, 8):
        np.testing.assert_allclose(size_probabilities(name, n), SIZES[name](n), rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "exhaustive"])
def test_many_contributors_are_fine(name):
    n = 1100  # C(n, n/2) exceeds a float
    rows = make_design(name).draw(n, 5, 12)
    assert rows.shape == (12, n)
    assert len(set(keys(rows))) == 12
    assert size_probabilities(name, n).sum() == pytest.approx(1)
    if name == "half":
        np.testing.assert_allclose(size_probabilities(name, n), binom.pmf(np.arange(1, n), n, 0.5), rtol=1e-9)


@pytest.mark.parametrize("n", [5, 6])
@pytest.mark.parametrize("name", ["half", "leverage", "mix", "subset(0.5)", "uniform"])
def test_no_coalition_comes_again_while_another_of_its_size_is_left(name, n):
    rows = make_design(name, seed=2).draw(n, 0, 240)
    sizes = rows.sum(axis=1)
    for size in np.flatnonzero(size_probabilities(name, n)) + 1:
        drawn, everything = keys(rows[sizes == size]), set(keys(all_of_size(n, size)))
        assert len(drawn) >= len(everything)
        for start in range(0, len(drawn) - len(everything) + 1, len(everything)):
            assert set(drawn[start : start + len(everything)]) == everything


@pytest.mark.parametrize("name", NAMES)
def test_excluded_coalitions_never_come(name):
    n = 6
    triples = all_of_size(n, 3)
    # In the order of combinations the first half are those with contributor 0, complements of the second half.
    excluded = np.concatenate([triples[: 9 if name in PAIRED else 19], all_of_size(n, 1)[:2]])
    count = FINITE[name](n) - sum(key in keys(excluded) for key in keys(all_rows(name, n))) if name in FINITE else 60
    for exclude in (excluded, [row.tolist() for row in excluded], iter(excluded)):
        rows = make_design(name, seed=4).draw(n, 0, count, exclude)
        assert not set(keys(rows)) & set(keys(excluded))
    if name in PAIRED:
        assert {row.tobytes() for row in rows if row.sum() == 3} == set(keys(triples[9:11]))


@pytest.mark.parametrize("name", ["subset(0.3)", *(name for name in ENDLESS if not name.startswith("subset"))])
def test_excluding_every_coalition_of_a_size_is_refused(name):
    size = "[12] of 3" if name in PAIRED else "1"  # of a pair, either may be excluded
    with pytest.raises(UserError, match=f"leaves no coalition of size {size}"):
        make_design(name).draw(3, 0, 50, np.eye(3, dtype=bool))


@pytest.mark.parametrize("name", ["half", "mix", "subset(0.5)", "uniform"])
def test_excluding_a_coalition_leaves_earlier_rows_as_they_were(name):
    n = 14
    rows = make_design(name).draw(n, 0, 60)
    row = int(np.argmin(abs(rows.sum(axis=1) - n // 2)))
    changed = make_design(name).draw(n, 0, 60, rows[[row]])
    assert changed[row].sum() == rows[row].sum()
    assert (changed[row] != rows[row]).any()
    np.testing.assert_array_equal(changed[:row], rows[:row])
    if name == "subset(0.5)":  # the others' later rows are spread evenly beside it
        np.testing.assert_array_equal(np.delete(changed, row, axis=0), np.delete(rows, row, axis=0))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ((1, 0, 1), "contributors: 1; a coalition game needs at least 2"),
        ((3, -1, 1), "negative"),
        ((4, 0, 1, [[True, False]]), r"shape \(2,\); expected \(4,\)"),
        ((5.0, 0, 2), "contributors: 5.0; expected an integer"),
        ((5, 0.5, 2), "start: 0.5; expected an integer"),
        ((5, 0, "2"), "count: '2'; expected an integer"),
    ],
)
def test_refused_requests(name, request_, message):
    with pytest.raises(UserError, match=message):
        make_design(name).draw(*request_)
    with pytest.raises(UserError, match="at least 2"):
        size_probabilities(name, 1)


@pytest.mark.parametrize(
    "name", ["kernal", "subset", "subset(0.5", "subset 0.5", "(0.5)", "uniform(0.5)", None, ["uniform"], b"uniform"]
)
def test_other_names_are_refused_with_the_list(name):
    listed = r"unknown; choose one of add-one-in, exhaustive, .*subset\(alpha\), uniform \(alpha between 0 and 1\)"
    with pytest.raises(UserError, match=listed):
        make_design(name)


@pytest.mark.parametrize("seed", ["7", None, 1.5])
def test_seeds_of_another_kind_are_refused(seed):
    with pytest.raises(UserError, match=r"seed: .*; expected an integer"):
        make_design("uniform", seed)


@pytest.mark.parametrize("name", [*ENDLESS, "exhaustive"])
def test_the_rows_are_the_same_on_every_machine_and_for_ever(name):
    # A ledger written today must be extended by the same sequence tomorrow.
    sha = hashlib.sha256()
    for n, start, count in ((2, 0, 2), (3, 1, 3), (8, 30, 60), (13, 0, 100)):
        one, some = np.arange(n) == 0, np.arange(n) % 3 == 1
        for exclude in ([], [one, some][: n - 2]):
            sha.update(np.packbits(make_design(name, 12345).draw(n, start, count, exclude)).tobytes())
    assert sha.hexdigest() == DIGESTS[name]


DIGESTS = {
    "exhaustive": "6ba80e305e8f6aedabdafff55fa4f551498392b553e30cff565e0159c8fb20d3",
    "half": "be1d4c4614e3f3e5a4b57734b29dccdc5f6374c06854e01ff3dc12a1fa48e066",
    "kernel": "b2440be706bef2ec3e17d35c599254fcbc8e11e544665316939ad851c334e39e",
    "kernel-paired": "b25beeb030fab13287b4385c047611b37779a875aa3e1002fae5be75337d9853",
    "leverage": "8471a10aaad84602c938285ca07d4b3679dd313b85c7e4e971404a5a4f087023",
    "mix": "c016c408d16b09fd3eb08f79d169353240230c3166fca564ad6dff28e7a6d70d",
    "permutation": "dd171b383204500f3619b538e8be59c0061a14990d7da92fb3c03bed11f672e5",
    "subset(0.5)": "29b29e77cc16c79c399d756f9b5362346f5f80e1ce4a0ad50240d6e1392d6530",
    "uniform": "c44d37de82870e206886ead419979da10010db658783edfbdd70bd546aec94c9",
}


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("exhaustive", lambda n: range(1, n)), ("leave-one-out", lambda n: [n - 1]), ("add-one-in", lambda n: [1])],
)
def test_a_finite_design_has_each_coalition_once_and_an_end(name, sizes):
    for n in (2, 3, 6):
        everything = np.concatenate([all_of_size(n, size) for size in sizes(n)])
        rows = make_design(name, seed=1).draw(n, 0, len(everything))
        assert sorted(keys(rows)) == sorted(keys(everything))
    length = len(everything)
    for start, count in ((0, length + 1), (length - 2, 3), (length, 1)):
        with pytest.raises(
            UserError, match=f"coalitions {start} to {length + 1}: the {name} design of 6 .* has {length}$"
        ):
            make_design(name).draw(6, start, count)
    kept = make_design(name, 1).draw(6, 0, length - 2, rows[[1, 4]])
    np.testing.assert_array_equal(kept, np.delete(rows, [1, 4], axis=0))
    with pytest.raises(UserError, match=f"has {length - 2}"):
        make_design(name, 1).draw(6, 0, length - 1, rows[[1, 4]])
    if name == "exhaustive":
        with pytest.raises(UserError, match="17 contributors; at most 16"):
            make_design(name).draw(17, 0, 1)


@pytest.mark.parametrize(("name", "step"), [("kernel", 1), ("kernel-paired", 2)])
def test_draws_from_the_kernel_are_independent_and_repeat(name, step):
    n, m = 9, 2000
    expected = SIZES["kernel"](n)
    rows = make_design(name, seed=1).draw(n, 0, step * m)[::step]
    sizes = rows.sum(axis=1)
    assert chisquare(np.bincount(sizes, minlength=n)[1:n], m * expected).pvalue > 1e-4
    following = np.bincount((sizes[:-1] - 1) * (n - 1) + sizes[1:] - 1, minlength=(n - 1) ** 2)
    assert chisquare(following, (m - 1) * np.outer(expected, expected).ravel()).pvalue > 1e-4
    assert len(set(keys(rows))) < m


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("name", PAIRED)
def test_rows_2j_and_2j_plus_1_are_complements(name, n):
    rows = make_design(name, seed=1).draw(n, 0, 120)
    np.testing.assert_array_equal(rows[1::2], ~rows[::2])


def test_leverage_sizes_are_the_leverage_scores():
    n = 7
    rows = np.concatenate([all_of_size(n, size) for size in range(1, n)])
    sizes = rows.sum(axis=1)
    ways = np.array([comb(n, size) for size in sizes])
    # KernelSHAP: least squares of √w F on √w x with the credits' sum fixed, that is on √w (x − s/n).
    a = np.sqrt((n - 1) / (ways * sizes * (n - sizes)))[:, None] * (rows - sizes[:, None] / n)
    scores = np.diag(a @ np.linalg.pinv(a))
    np.testing.assert_allclose(scores * ways, scores[0] * ways[0])
    expected = np.bincount(sizes, scores)[1:]
    np.testing.assert_allclose(size_probabilities("leverage", n), expected / expected.sum())


@pytest.mark.parametrize("n", [6, 7, 40])
def test_leverage_balances_the_sizes_at_every_even_length(n):
    pairs = 300
    sizes = make_design("leverage", seed=3).draw(n, 0, 2 * pairs).sum(axis=1)
    counts = np.cumsum(sizes[:, None] == np.arange(1, n), axis=0)[1::2]
    lengths = np.arange(1, pairs + 1)[:, None]
    # Each pair holds the two sizes of one of ⌊n/2⌋ kinds; n/2 comes twice in its pairs.
    multiplicity = np.where(2 * np.arange(1, n) == n, 2, 1)
    bound = multiplicity * (1 + np.log2(lengths) / 3)
    assert (abs(counts - 2 * lengths / (n - 1)) <= bound + 1e-9).all()
    # either of a pair may come first
    assert abs((sizes[::2] > n / 2).mean() + (sizes[::2] == n / 2).mean() / 2 - 0.5) < 4.5 * 0.5 / np.sqrt(pairs)


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


@pytest.mark.parametrize("excluded", [[], [[True, False, False, False], [False, True, True, False]]])
def test_every_permutation_without_an_excluded_prefix_is_as_probable(excluded):
    left = [o for o in permutations(range(4)) if not excluded or (o[0] != 0 and set(o[:2]) != {1, 2})]
    seen = Counter(map(tuple, orders(make_design("permutation").draw(4, 0, 3 * 1200, excluded)).tolist()))
    assert set(seen) == set(left)
    assert chisquare([seen[order] for order in left]).pvalue > 1e-4


def test_a_permutation_with_an_excluded_prefix_is_redrawn_whole_and_no_other():
    n = 12
    rows = make_design("permutation").draw(n, 0, 20 * (n - 1))
    changed = make_design("permutation").draw(n, 0, 20 * (n - 1), rows[[7 * (n - 1) + 5]])
    same = (orders(changed) == orders(rows)).all(axis=1)
    np.testing.assert_array_equal(same, np.arange(20) != 7)


def test_exclusions_that_leave_no_permutation_are_refused():
    # {2} and {0, 1} are left, one of each size, but neither lies within the other.
    excluded = [[True, False, False], [False, True, False], [True, False, True], [False, True, True]]
    with pytest.raises(UserError, match="exclude fewer"):
        make_design("permutation").draw(3, 0, 2, excluded)


@pytest.mark.parametrize(
    ("alpha", "n", "size"),
    [("0.5", 2, 1), (".75", 20, 15), ("0.26", 20, 5), ("0.01", 20, 1), ("0.99", 20, 19), ("1e-9", 3, 1)],
)
def test_all_coalitions_of_a_subset_design_have_the_rounded_size(alpha, n, size):
    assert set(make_design(f"subset({alpha})", seed=1).draw(n, 0, 30).sum(axis=1).tolist()) == {size}
    assert make_design("subset(0.5)", 3) == make_design("subset(.50)", 3)


@pytest.mark.parametrize("alpha", ["0", "1", "-0.5", "nan", "", "alpha", "0.5, 3"])
def test_alpha_that_is_no_number_between_0_and_1_is_refused(alpha):
    with pytest.raises(UserError) as error:
        make_design(f"subset({alpha})")
    assert str(error.value) == f"design 'subset({alpha})': alpha must be a number between 0 and 1, such as 0.5"


def test_uniform_keeps_the_quota_of_every_size_at_every_prefix():
    n = 12
    sizes = make_design("uniform", seed=5).draw(n, 0, 10 * (n - 1)).sum(axis=1)
    for m in range(1, len(sizes) + 1):
        counts = np.bincount(sizes[:m], minlength=n)[1:n]
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("m", [10, 60])
def test_uniform_spreads_a_prefix_shorter_than_a_block_over_the_sizes(m):
    n = 258
    for seed in range(2):
        t = np.sort(make_design("uniform", seed).draw(n, 0, m).sum(axis=1)) / n
        # Kolmogorov's distance to the uniform; that of independent sizes shrinks as 1/√m only.
        grid = np.arange(m)
        assert max(abs(t - grid / m).max(), abs(t - (grid + 1) / m).max()) < 3 / m
