"""States that a checkpoint holds as named tensors and JSON."""

import json

import pytest
import torch

from diffcredit.diffusion.checkpoints import flatten, unflatten

SHARED = torch.linspace(-1, 1, 5)


def test_an_odd_state_comes_back_as_it_was():
    half = torch.ones(2).bfloat16()
    plain = {"state": {0: {"step": 3}, "0": {"flag": True, "none": None}}, "groups": [{"betas": (0.9, 0.999)}, ()]}
    structure, tensors = flatten({"plain": plain, "tensors": [SHARED, {"again": SHARED}, torch.zeros(0), half]})
    assert len(tensors) == 3, "a tensor that is there twice is stored once"
    back = unflatten(json.loads(json.dumps(structure)), tensors)
    assert back["plain"] == plain
    assert isinstance(back["plain"]["groups"][0]["betas"], tuple)
    shared, again, empty, rounded = back["tensors"]
    assert shared.equal(SHARED)
    assert again["again"].equal(SHARED)
    assert empty.shape == (0,)
    assert rounded.dtype == torch.bfloat16
    # the start of another tensor is another tensor
    assert len(flatten([SHARED, SHARED[:2]])[1]) == 2


def test_what_cannot_be_stored_is_named():
    with pytest.raises(TypeError, match="state/a/1: a set"):
        flatten({"a": [1, {2}]})
    with pytest.raises(ValueError, match="'pickle' is no kind of node"):
        unflatten({"pickle": "x"}, {})
