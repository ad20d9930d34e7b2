"""What every design does."""

import hashlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from diffcredit.coalitions import make_design, size_probabilities
from diffcredit.errors import UserError

from .examples import ENDLESS, FINITE, NAMES, PAIRED, WITHOUT_DUPLICATES, all_of_size, keys, most


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10, deadline=None)
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


def all_rows(name, n):
    return make_design(name).draw(n, 0, FINITE[name](n)) if name in FINITE else []


@pytest.mark.parametrize("name", NAMES)
def test_seed_and_contributors_change_the_sequence(name):
    count = most(name, 9, 50)
    rows = make_design(name, seed=0).draw(9, 0, count)
    assert (rows != make_design(name, seed=1).draw(9, 0, count)).any()
    numpys = make_design(name, seed=np.int64(0)).draw(np.int64(9), np.int32(0), np.int64(count))
    np.testing.assert_array_equal(rows, numpys)


@pytest.mark.parametrize("name", NAMES)
def test_each_row_is_a_random_coalition_of_its_size_and_of_the_stated_sizes(name):
    n, seeds = 5, 400
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


def by_size(n, weight):
    """(n−1,): the sum of weight(s) over all coalitions of each size, one by one, normalised."""
    total = np.array([sum(weight(int(row.sum())) for row in all_of_size(n, size)) for size in range(1, n)])
    return total / total.sum()


def arcsine(n):
    weights = np.array([(s * (n - s)) ** -0.5 for s in range(1, n)])
    return weights / weights.sum()


SIZES = {
    "add-one-in": lambda n: np.eye(n - 1)[0],
    "exhaustive": lambda n: by_size(n, lambda s: 1),
    "half": lambda n: by_size(n, lambda s: 1),
    "kernel": lambda n: by_size(n, lambda s: (n - 1) / (len(all_of_size(n, s)) * s * (n - s))),
    "kernel-paired": lambda n: by_size(n, lambda s: (n - 1) / (len(all_of_size(n, s)) * s * (n - s))),
    "leave-one-out": lambda n: np.eye(n - 1)[-1],
    "leverage": lambda n: by_size(n, lambda s: 1 / len(all_of_size(n, s))),
    "mix": lambda n: (by_size(n, lambda s: 1) + arcsine(n)) / 2,
    "permutation": lambda n: np.full(n - 1, 1 / (n - 1)),
    "subset(0.5)": lambda n: np.eye(n - 1)[{2: 1, 3: 2, 8: 4}[n] - 1],
    "uniform": lambda n: np.full(n - 1, 1 / (n - 1)),
}


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("name", NAMES)
def test_size_probabilities_are_the_sums_over_coalitions(name, n):
    np.testing.assert_allclose(size_probabilities(name, n), SIZES[name](n), rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "exhaustive"])
def test_many_contributors_are_fine(name):
    rows = make_design(name).draw(2000, 5, 20)
    assert rows.shape == (20, 2000)
    assert len(set(keys(rows))) == 20
    assert size_probabilities(name, 2000).sum() == pytest.approx(1)


@pytest.mark.parametrize("name", NAMES)
def test_two_contributors_have_two_coalitions(name):
    rows = make_design(name).draw(2, 0, most(name, 2, 40))
    assert set(keys(rows)) == set(keys(np.eye(2, dtype=bool)))


@pytest.mark.parametrize("n", [5, 6])
@pytest.mark.parametrize("name", WITHOUT_DUPLICATES)
def test_no_coalition_comes_again_while_another_of_its_size_is_left(name, n):
    rows = make_design(name, seed=2).draw(n, 0, 400)
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
    for exclude in (excluded, list(excluded), [row.tolist() for row in excluded], iter(excluded)):
        rows = make_design(name, seed=4).draw(n, 0, count, exclude)
        assert not set(keys(rows)) & set(keys(excluded))
    if name in PAIRED:
        assert {row.tobytes() for row in rows if row.sum() == 3} == set(keys(triples[9:11]))


@pytest.mark.parametrize("name", ["half", "kernel", "mix", "permutation", "subset(0.3)", "uniform"])
def test_excluding_every_coalition_of_a_size_is_refused(name):
    with pytest.raises(UserError, match="leaves no coalition of size 1"):
        make_design(name).draw(3, 0, 50, np.eye(3, dtype=bool))


@pytest.mark.parametrize("name", ["half", "mix", "subset(0.5)", "uniform"])
def test_excluding_a_coalition_leaves_earlier_rows_as_they_were(name):
    n = 20
    rows = make_design(name).draw(n, 0, 100)
    row = int(np.argmin(abs(rows.sum(axis=1) - n // 2)))
    changed = make_design(name).draw(n, 0, 100, rows[[row]])
    assert changed[row].sum() == rows[row].sum()
    assert (changed[row] != rows[row]).any()
    np.testing.assert_array_equal(changed[:row], rows[:row])
    if name == "subset(0.5)":  # the others' later rows are spread evenly beside it
        np.testing.assert_array_equal(np.delete(changed, row, axis=0), np.delete(rows, row, axis=0))


def test_a_zero_count_is_an_empty_table():
    for name in NAMES:
        assert make_design(name).draw(4, 3, 0).shape == (0, 4)


def test_refusals_name_what_is_accepted():
    with pytest.raises(
        UserError,
        match=r"'kernal': unknown; choose one of add-one-in, exhaustive, half, kernel, kernel-paired, leave-one-out, "
        r"leverage, mix, permutation, subset\(alpha\), uniform \(alpha between 0 and 1\)",
    ):
        make_design("kernal")
    for name in NAMES:
        with pytest.raises(UserError, match="at least 2"):
            make_design(name).draw(1, 0, 1)
        with pytest.raises(UserError, match="at least 2"):
            size_probabilities(name, 1)
        with pytest.raises(UserError, match="negative"):
            make_design(name).draw(3, -1, 1)
        with pytest.raises(UserError, match=r"expected \(4,\)"):
            make_design(name).draw(4, 0, 1, [[True, False]])


@pytest.mark.parametrize("name", [*ENDLESS, "exhaustive"])
def test_the_rows_are_the_same_on_every_machine_and_for_ever(name):
    # A ledger written today must be extended by the same sequence tomorrow.
    sha = hashlib.sha256()
    for seed in (0, 1, 12345):
        for n, start, count in ((2, 0, 2), (3, 1, 3), (5, 0, 20), (8, 30, 60), (13, 0, 150)):
            one, some = np.arange(n) == 0, np.arange(n) % 3 == 1
            for exclude in ([], [one, some][: n - 2]):
                sha.update(np.packbits(make_design(name, seed).draw(n, start, count, exclude)).tobytes())
    assert sha.hexdigest() == DIGESTS[name]


DIGESTS = {
    "exhaustive": "f00b887cf3c287680c91939f4c64412785d7d37eb42df8ffe3ee2c481b2049a4",
    "half": "335b3978410a689e6a2e07ae63564385e8657154f30b3c0749994563c8d1d749",
    "kernel": "217e95f834e9d7acaeae8c3b8a09a0944abf373078d675117ec33ca3bb942a93",
    "kernel-paired": "316e0d858f06f44e389fb1904d4196a52c772aa1bc02903a07be17757a1b03a7",
    "leverage": "ca0659539e0b7d6096dd4f73bc9369705a6645c225a898a4bccc5b3133511180",
    "mix": "89a58036618b8943c171c30e2962faae93667763411d2d46758545f160c501d4",
    "permutation": "f4bc66fd1dd74687a0c64d000e502c14cd6cd06c7dae07befdf2f7c5c6d016d3",
    "subset(0.5)": "fa6ff361223c2ce653c0ce974a4ffcdd14b734b27b6933f555d550a86f3db0fe",
    "uniform": "316612277fab7fed4d5f0411e2d1c5e8aeb89d845840327138a64ce7ce1c224f",
}


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("uniform", ["11101111", "01110010", "00000110", "01111101"]),
        ("kernel", ["11011011", "00000001", "10101010", "11011110"]),
        ("leave-one-out", ["11011111", "11111011", "01111111", "10111111"]),
        ("add-one-in", ["00001000", "01000000", "00010000", "00000001"]),
    ],
)
def test_the_first_rows_can_be_read(name, rows):
    assert ["".join("01"[int(x)] for x in row) for row in make_design(name, seed=0).draw(8, 0, 4)] == rows


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ((5.0, 0, 2), "contributors: 5.0; expected an integer"),
        (("5", 0, 2), "contributors: '5'; expected an integer"),
        ((5, 0.5, 2), "start: 0.5; expected an integer"),
        ((5, 0, 2.5), "count: 2.5; expected an integer"),
    ],
)
def test_requests_in_fractions_are_refused(name, request_, message):
    with pytest.raises(UserError, match=message):
        make_design(name).draw(*request_)


def test_seeds_and_names_of_another_kind_are_refused():
    for seed in ("a", "7", None, 1.5):
        with pytest.raises(UserError, match=r"seed: .*; expected an integer"):
            make_design("uniform", seed)
    for name in (None, 5, ["uniform"], b"uniform"):
        with pytest.raises(UserError, match="unknown; choose one of"):
            make_design(name)
