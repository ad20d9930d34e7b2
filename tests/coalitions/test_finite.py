import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.errors import UserError

from .examples import FINITE, all_of_size, keys


@pytest.mark.parametrize("n", [2, 3, 6])
@pytest.mark.parametrize(
    ("name", "sizes"),
    [("exhaustive", lambda n: range(1, n)), ("leave-one-out", lambda n: [n - 1]), ("add-one-in", lambda n: [1])],
)
def test_each_coalition_comes_once(name, sizes, n):
    everything = np.concatenate([all_of_size(n, size) for size in sizes(n)])
    rows = make_design(name, seed=1).draw(n, 0, len(everything))
    assert sorted(keys(rows)) == sorted(keys(everything))


@pytest.mark.parametrize("name", FINITE)
def test_the_end_is_an_error(name):
    length = FINITE[name](6)
    assert make_design(name).draw(6, length, 0).shape == (0, 6)
    for start, count in ((0, length + 1), (length - 2, 3), (length, 1)):
        with pytest.raises(
            UserError, match=f"coalitions {start} to {length + 1}: the {name} design of 6 .* has {length}$"
        ):
            make_design(name).draw(6, start, count)


@pytest.mark.parametrize("name", FINITE)
def test_exclusion_shortens_and_keeps_the_order(name):
    rows = make_design(name, 5).draw(6, 0, FINITE[name](6))
    kept = make_design(name, 5).draw(6, 0, len(rows) - 2, rows[[1, 4]])
    np.testing.assert_array_equal(kept, np.delete(rows, [1, 4], axis=0))
    with pytest.raises(UserError, match=f"has {len(rows) - 2}"):
        make_design(name, 5).draw(6, 0, len(rows) - 1, rows[[1, 4]])
    with pytest.raises(UserError, match="has 0"):
        make_design(name, 5).draw(6, 0, 1, rows)


def test_exhaustive_is_for_few_contributors():
    with pytest.raises(UserError, match="at most 16"):
        make_design("exhaustive").draw(17, 0, 1)
