"""The generated images beside the training images."""

import numpy as np
import pytest

from diffcredit.baselines.base import Evidence
from diffcredit.baselines.queries import comparable_queries, query_captions, query_sampling
from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import UserError

from .made_up import contributions, generated


class WithPrompts:
    prompts = ("a", "b", "c")


def test_of_a_text_model_the_prompts_follow_the_seeds():
    seen = Evidence(contributions(), generated(4), sampling=Sampling(images=5, seed=7))
    assert query_captions(seen, WithPrompts(), "trak") == ("b", "c", "a", "b")  # of the seeds 7, 8, 9, 10
    assert query_captions(seen, object(), "trak") is None
    assert query_captions(Evidence(contributions(), generated(4)), object(), "trak") is None


@pytest.mark.parametrize("sampling", [None, Sampling(images=3)])
def test_how_all_of_them_were_sampled_has_to_be_known(sampling):
    seen = Evidence(contributions(), generated(4), sampling=sampling)
    for ask in (lambda: query_captions(seen, WithPrompts(), "trak"), lambda: query_sampling(seen, "trak")):
        with pytest.raises(UserError, match=r"^trak: needs to know how the 4 generated images were sampled$"):
            ask()


def test_only_images_of_one_shape_can_be_compared():
    images = generated(4)
    np.testing.assert_array_equal(comparable_queries(Evidence(contributions(), images), "trak"), images)
    with pytest.raises(UserError, match=r"^trak: .*\(4, 4, 3\); the training images' shape \(8, 8, 3\) is accepted"):
        comparable_queries(Evidence(contributions(), generated(4, size=4)), "trak")
    with pytest.raises(UserError, match=r"^trak: needs generated images"):
        comparable_queries(Evidence(contributions(), images[:0]), "trak")
