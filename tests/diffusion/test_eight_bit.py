"""Linear layers in 8 bits against the arithmetic of LLM.int8, written out here."""

import copy

import pytest
import torch
from torch import nn
from torch.func import grad, vmap

from diffcredit.diffusion.eight_bit import Linear8bit, eight_bit_bytes, in_8_bits

pytest.importorskip("bitsandbytes")


@pytest.fixture
def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(32, 24).to(torch.bfloat16).requires_grad_(False)


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Rows in steps of max|row| / 127."""
    step = x.abs().amax(dim=-1, keepdim=True) / 127
    return (x / step).round() * step


def test_a_product_is_that_of_rows_in_127_steps(layer):
    x = torch.randn(4, 5, 32).to(torch.bfloat16)
    expected = rounded(x.float()) @ rounded(layer.weight.float()).T + layer.bias.float()
    found = in_8_bits(nn.Sequential(copy.deepcopy(layer)))(x)
    assert (found.dtype, found.shape) == (torch.bfloat16, (4, 5, 24))
    torch.testing.assert_close(found.float(), expected, rtol=0.01, atol=0.01)


def test_large_inputs_are_not_rounded(layer):
    """One column of 100 would leave the others a step of 100/127."""
    x = torch.randn(6, 32).to(torch.bfloat16)
    x[2, 5] = 100.0
    found = in_8_bits(nn.Sequential(copy.deepcopy(layer)))(x)
    assert (found - layer(x)).abs().max() < 0.15


def test_gradients_by_the_inputs_are_those_of_the_rounded_weight_alone_or_many_at_once(layer):
    network = in_8_bits(nn.Sequential(copy.deepcopy(layer)))
    x, direction = torch.randn(4, 5, 32).to(torch.bfloat16), torch.randn(5, 24).to(torch.bfloat16)

    def projected(one: torch.Tensor) -> torch.Tensor:
        return (network(one[None])[0] * direction).sum().float()

    expected = direction.float() @ rounded(layer.weight.float())
    for found in (vmap(grad(projected))(x), torch.stack([grad(projected)(one) for one in x])):
        torch.testing.assert_close(found.float(), expected.expand(4, 5, 32), rtol=0.02, atol=0.02)


def test_its_bytes_are_known_beforehand_and_copies_share_them(layer):
    other = nn.Linear(8, 4, bias=False).to(torch.bfloat16)
    for each in (layer, other):
        before = eight_bit_bytes(each)
        eight = in_8_bits(nn.Sequential(copy.deepcopy(each)))[0]
        assert isinstance(eight, Linear8bit)
        assert (
            before
            == sum(weight.nbytes for weight in eight.parameters())
            == sum(weight.nbytes for weight in eight.state_dict().values())
        )
    assert not any(weight.requires_grad for weight in eight.parameters())


def test_nothing_but_linear_layers_is_changed():
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.LayerNorm(4), nn.Embedding(3, 4), nn.Linear(4, 4))
    kinds = [type(each) for each in in_8_bits(network)]
    assert kinds == [nn.Conv2d, nn.LayerNorm, nn.Embedding, Linear8bit]
