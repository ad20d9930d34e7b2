"""Which prompt each image follows, and what of a sampling is its identity."""

import dataclasses

import pytest

from diffcredit.diffusion.settings import Sampling


def test_the_image_of_seed_s_follows_prompt_s_mod_k():
    sampling = Sampling(images=5, seed=4)
    assert sampling.prompts_of_images(["a", "b", "c"]) == ("b", "c", "a", "b", "c")
    assert sampling.prompts_of_images([]) is None
    stated = dataclasses.replace(sampling, prompts=("x", "y"))
    assert stated.prompts_of_images(["a", "b", "c"]) == ("x", "y", "x", "y", "x")
    assert stated.prompts_of_images([]) is None


def test_stated_prompts_alone_change_the_identity():
    sampling = Sampling(images=5, guidance=2.0)
    everything = dataclasses.asdict(sampling)
    assert everything.pop("prompts") is None
    assert sampling.identity == everything
    assert dataclasses.replace(sampling, prompts=("x", "y")).identity == everything | {"prompts": ["x", "y"]}


@pytest.mark.parametrize("prompts", [(), ("a", "a"), ("",), (3,), "abc"])
def test_prompts_are_different_texts(prompts):
    with pytest.raises(ValueError, match="accepted"):
        Sampling(prompts=prompts)
