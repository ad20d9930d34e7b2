import hashlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from diffcredit.util.seeds import derive_seed

PARTS = st.lists(st.integers() | st.text(), max_size=4)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((7, "0110", 2), b"int:7\x1fstr:0110\x1fint:2"),
        (("Größe",), b"str:Gr\xc3\xb6\xc3\x9fe"),
        ((-1,), b"int:-1"),
        ((), b""),
    ],
)
def test_is_the_first_63_bits_of_sha256(parts, text):
    bits = bin(int(hashlib.sha256(text).hexdigest(), 16))[2:].zfill(256)
    assert derive_seed(*parts) == int(bits[:63], 2)


def test_the_width_of_a_number_does_not_matter():
    assert derive_seed(7, "a") == derive_seed(np.int64(7), np.str_("a")) == derive_seed(np.uint8(7), "a")


@settings(deadline=None)
@given(PARTS, PARTS)
@example(["a", "b"], ["a\x1fstr:b"])
@example(["a\x1e", "b"], ["a\x1e.str:b"])
@example(["a", "b"], ["a\x1e.str:b"])
@example(["a\x1e"], ["a\x1e\x1e"])
@example(["a\x1f"], ["a\x1e."])
@example(["ab", "c"], ["a", "bc"])
@example([1, 23], [12, 3])
@example([1], ["1"])
@example([], [""])
@example([""], ["", ""])
def test_other_parts_give_another_seed(one, other):
    assert (derive_seed(*one) == derive_seed(*other)) == (one == other)
    assert 0 <= derive_seed(*one) < 2**63
