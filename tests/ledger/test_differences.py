from hypothesis import given
from hypothesis import strategies as st

from diffcredit.ledger import differences
from diffcredit.util.artifacts import fingerprint

LEAVES = st.sampled_from([None, True, 0, 1, 1.0, -0.5, "", "1", "a"])
SETTINGS = st.dictionaries(
    st.sampled_from("ab"),
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=2,
)


def test_names_each_leaf_with_both_values():
    old = {"retraining": {"steps": 100, "rank": 4}, "data": {"path": "a"}, "layers": [1, 2, 3], "same": [1]}
    new = {"retraining": {"steps": 200}, "data": {"path": "b", "size": 32}, "layers": [1, 5, 3], "same": [1]}
    assert differences(old, new) == [
        'data.path "a" → "b"',
        "data.size (absent) → 32",
        "layers[1] 2 → 5",
        "retraining.rank 4 → (absent)",
        "retraining.steps 100 → 200",
    ]


def test_tells_apart_what_python_calls_equal():
    assert differences({"a": 1, "b": True}, {"a": 1.0, "b": 1}) == ["a 1 → 1.0", "b true → 1"]


def test_lists_of_different_lengths_are_shown_whole_and_long_ones_cut():
    assert differences({"a": [1]}, {"a": [1, 2]}) == ["a [1] → [1,2]"]
    (line,) = differences({"a": "x" * 500}, {"a": "y"})
    assert line.startswith('a "xxx')
    assert line.endswith('… → "y"')
    assert len(line) < 100


@given(SETTINGS, SETTINGS)
def test_are_empty_exactly_where_fingerprints_are_equal(old, new):
    assert (differences(old, new) == []) == (fingerprint(old) == fingerprint(new))
    assert differences(old, old) == []
