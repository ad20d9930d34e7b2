import json

import pytest
import torch

from diffcredit.diffusion.checkpoints import flatten, unflatten

SHARED = torch.linspace(-1, 1, 5)
ODD = {
    "state": {
        0: {"step": 3, "codes": torch.tensor([7, 255], dtype=torch.uint8), "map": SHARED, "quant": {"map": SHARED}},
        1: {"moment": torch.tensor(2.5), "empty": torch.zeros(0), "none": None, "half": torch.ones(2).bfloat16()},
        "1": {"flag": True},
    },
    "groups": [{"lr": 1e-3, "betas": (0.9, 0.999), "params": [0, 1]}, ()],
}


def test_an_odd_state_comes_back_as_it_was():
    structure, tensors = flatten(ODD)
    back = unflatten(json.loads(json.dumps(structure)), tensors)
    assert back["groups"] == ODD["groups"]
    assert isinstance(back["groups"][0]["betas"], tuple)
    assert list(back["state"]) == [0, 1, "1"]
    first, second = back["state"][0], back["state"][1]
    assert first["step"] == 3
    assert isinstance(first["step"], int)
    assert second["none"] is None
    assert back["state"]["1"]["flag"] is True
    for one, other in [
        (first["codes"], ODD["state"][0]["codes"]),
        (first["quant"]["map"], SHARED),
        (second["moment"], torch.tensor(2.5)),
        (second["half"], torch.ones(2).bfloat16()),
    ]:
        assert one.dtype == other.dtype
        assert one.equal(other)
    assert second["empty"].shape == (0,)


def test_a_tensor_that_is_there_twice_is_stored_once():
    _, tensors = flatten(ODD)
    assert sum(tensor.equal(SHARED) for tensor in tensors.values()) == 1
    assert len(tensors) == 5
    # the start of another tensor is another tensor
    assert len(flatten([SHARED, SHARED[:2]])[1]) == 2


def test_what_cannot_be_stored_is_named():
    with pytest.raises(TypeError, match="state/a/1: a set"):
        flatten({"a": [1, {2}]})
    with pytest.raises(ValueError, match="'pickle' is no kind of node"):
        unflatten({"pickle": "x"}, {})
