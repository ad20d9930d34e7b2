import numpy as np
import pytest

from diffcredit.coalitions import decode, encode
from diffcredit.errors import UserError


def test_one_character_a_contributor():
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
