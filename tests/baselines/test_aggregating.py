from dataclasses import replace

import numpy as np
import pytest

from diffcredit.baselines import aggregate
from diffcredit.errors import UserError

from .made_up import contributions, permuted


@pytest.mark.parametrize(("how", "expected"), [("sum", [-1, 9, 5]), ("mean", [-0.5, 9, 2.5]), ("max", [3, 9, 5])])
def test_by_hand(how, expected):
    given = contributions()
    few = replace(
        given,
        images=given.images[:5],
        owner=np.array([2, 0, 1, 0, 2]),
        contributors=("a", "b", "c"),
        names=given.names[:5],
    )
    np.testing.assert_allclose(aggregate([5, 3, 9, -4, 0], few, how), expected)


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_the_order_of_the_images_does_not_matter(how):
    given = contributions()
    scores = np.random.default_rng(1).normal(size=20)
    order = np.random.default_rng(2).permutation(20)
    np.testing.assert_allclose(
        aggregate(scores[order], permuted(given, order), how), aggregate(scores, given, how), rtol=1e-12
    )


def test_refusals_say_what_is_accepted():
    given = contributions()
    with pytest.raises(UserError, match=r"'median'; accepted: sum, mean, max"):
        aggregate(np.zeros(20), given, "median")
    with pytest.raises(UserError, match=r"scores: shape \(19,\); one number for each of 20"):
        aggregate(np.zeros(19), given, "sum")
    with pytest.raises(UserError, match=r"that of 07 is not a finite number"):
        aggregate(np.where(np.arange(20) == 7, np.nan, 0.0), given, "sum")
    lacking = replace(given, contributors=("ada", "bo", "cy", "di", "el"))
    with pytest.raises(UserError, match="'el' gave no training image"):
        aggregate(np.zeros(20), lacking, "mean")
