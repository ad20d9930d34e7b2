import numpy as np
import pytest

from diffcredit.coalitions import make_design, size_probabilities
from diffcredit.errors import UserError

from .examples import PAIRED, all_of_size, keys


@pytest.mark.parametrize("n", [2, 3, 7, 8])
@pytest.mark.parametrize("name", PAIRED)
def test_rows_2j_and_2j_plus_1_are_complements(name, n):
    rows = make_design(name, seed=1).draw(n, 0, 120)
    np.testing.assert_array_equal(rows[1::2], ~rows[::2])
    np.testing.assert_array_equal(make_design(name, seed=1).draw(n, 3, 8), rows[3:11])


@pytest.mark.parametrize("name", PAIRED)
def test_the_complement_of_an_excluded_coalition_never_comes_either(name):
    excluded = ~all_of_size(5, 1)[:3]
    rows = make_design(name).draw(5, 0, 200, excluded)
    assert {row.tobytes() for row in rows if row.sum() == 1} == set(keys(all_of_size(5, 1)[3:]))
    np.testing.assert_array_equal(rows[1::2], ~rows[::2])


@pytest.mark.parametrize("name", PAIRED)
def test_excluding_one_of_every_pair_is_refused(name):
    with pytest.raises(UserError, match=r"leaves no coalition of size [12] of 3"):
        make_design(name).draw(3, 0, 50, np.eye(3, dtype=bool))


def test_leverage_sizes_are_the_leverage_scores():
    n = 7
    rows = np.concatenate([all_of_size(n, size) for size in range(1, n)])
    sizes = rows.sum(axis=1)
    ways = np.array([len(all_of_size(n, size)) for size in sizes])
    # KernelSHAP: least squares of √w F on √w x with the credits' sum fixed, that is on √w (x − s/n).
    a = np.sqrt((n - 1) / (ways * sizes * (n - sizes)))[:, None] * (rows - sizes[:, None] / n)
    scores = np.diag(a @ np.linalg.pinv(a))
    np.testing.assert_allclose(scores * ways, scores[0] * ways[0])
    expected = np.bincount(sizes, scores)[1:]
    np.testing.assert_allclose(size_probabilities("leverage", n), expected / expected.sum())


@pytest.mark.parametrize("n", [6, 7, 40])
def test_leverage_balances_the_sizes_at_every_even_length(n):
    pairs = 400
    sizes = make_design("leverage", seed=3).draw(n, 0, 2 * pairs).sum(axis=1)
    counts = np.cumsum(sizes[:, None] == np.arange(1, n), axis=0)[1::2]
    lengths = np.arange(1, pairs + 1)[:, None]
    # Each pair holds the two sizes of one of ⌊n/2⌋ kinds; n/2 comes twice in its pairs.
    multiplicity = np.where(2 * np.arange(1, n) == n, 2, 1)
    bound = multiplicity * (1 + np.log2(lengths) / 3)
    assert (abs(counts - 2 * lengths / (n - 1)) <= bound + 1e-9).all()


def test_leverage_draws_all_pairs_of_a_size_before_one_again():
    n = 6
    firsts = make_design("leverage", seed=8).draw(n, 0, 600)[::2]
    for smaller, number in ((1, 6), (2, 15), (3, 10)):
        kind = firsts[np.minimum(firsts.sum(axis=1), n - firsts.sum(axis=1)) == smaller]
        pairs = [frozenset((row.tobytes(), (~row).tobytes())) for row in kind]
        assert len(pairs) > 3 * number
        for start in range(0, len(pairs) - number + 1, number):
            assert len(set(pairs[start : start + number])) == number


def test_either_of_a_leverage_pair_may_come_first():
    sizes = make_design("leverage").draw(9, 0, 2000)[::2].sum(axis=1)
    assert abs((sizes > 4.5).mean() - 0.5) < 4.5 * 0.5 / np.sqrt(1000)
