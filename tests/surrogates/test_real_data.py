import numpy as np
import pytest

from diffcredit.contributions import Contributions
from diffcredit.errors import DiffcreditError, UserError
from diffcredit.properties.heldout_loss import HeldoutLoss
from diffcredit.surrogates import RealData

# one brightness a contributor, so that every coalition's mean brightness is known by hand
BRIGHTNESS, COUNTS = [10, 50, 200, 90], [3, 1, 2, 4]


@pytest.fixture
def contributions():
    owner = np.repeat(np.arange(4), COUNTS)
    levels = np.array(BRIGHTNESS, dtype=np.uint8)[owner]
    return Contributions(
        images=np.broadcast_to(levels[:, None, None, None], (10, 4, 4, 3)).copy(),
        owner=owner,
        contributors=("a", "b", "c", "d"),
        names=tuple(map(str, range(10))),
        heldout=np.zeros((0, 4, 4, 3), dtype=np.uint8),
    )


class Brightness:
    name = "brightness"

    def measure(self, images):
        return float(images.mean())


def by_hand(members):
    return sum(BRIGHTNESS[i] * COUNTS[i] for i in members) / sum(COUNTS[i] for i in members)


def test_the_property_of_the_members_images(contributions):
    coalitions = np.array([[1, 0, 0, 0], [1, 0, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1]], dtype=bool)
    expected = [by_hand([0]), by_hand([0, 2]), by_hand([1, 2, 3]), by_hand([0, 1, 2, 3])]
    np.testing.assert_allclose(RealData(Brightness(), contributions)(coalitions), expected)


def test_the_empty_coalition_is_refused(contributions):
    with pytest.raises(UserError, match=r"'brightness'.*empty coalition has no images"):
        RealData(Brightness(), contributions)(np.zeros((1, 4), dtype=bool))


def test_a_property_of_the_model_is_refused(contributions):
    with pytest.raises(UserError, match=r"'heldout_loss' measures the model"):
        RealData(HeldoutLoss(), contributions)


def test_a_value_that_is_no_number_is_refused(contributions):
    class Undefined:
        name = "undefined"

        def measure(self, images):
            return float("nan")

    with pytest.raises(DiffcreditError, match=r"'undefined' returned nan"):
        RealData(Undefined(), contributions)(np.ones((1, 4), dtype=bool))
