"""What a network's own code puts together is known to its layers, until something is changed in place."""

import pytest
import torch
from torch.nn import functional as F

from diffcredit.diffusion.fast.fusion import FusionMode, parts_of, with_addition

X, Y = torch.arange(8.0).reshape(1, 2, 2, 2), torch.ones(1, 3, 2, 2)


def layer(x: torch.Tensor, asked: list[torch.Tensor]) -> torch.Tensor:
    def add(more: torch.Tensor) -> torch.Tensor:
        asked.append(more)
        return 2 * x + more

    return with_addition(2 * x, add)


def test_images_put_together_are_known_by_their_parts():
    with FusionMode():
        both = torch.cat([X, Y], dim=1)
        found = parts_of(both)
        assert found is not None
        assert found[0] is X
        assert found[1] is Y
        assert parts_of(torch.cat(tensors=(X, Y), dim=1)) is not None
        assert parts_of(torch.cat([X, X])) is None
        assert parts_of(torch.cat([X, Y.double()], dim=1)) is None
        assert parts_of(torch.cat([X, X, Y], 1)) is None
        assert parts_of(X) is None
    assert parts_of(both) is None


@pytest.mark.parametrize("swapped", [False, True])
def test_a_layer_makes_the_sum_with_its_result(swapped):
    asked: list[torch.Tensor] = []
    with FusionMode():
        y = layer(X, asked)
        found = X + y if swapped else y + X
    assert torch.equal(found, 3 * X)
    assert [each is X for each in asked] == [True]


def test_of_two_layers_the_later_one():
    first, second = [], []
    with FusionMode():
        one = layer(X, first)
        other = layer(one, second)
        found = one + other
    assert torch.equal(found, 6 * X)
    assert not first
    assert second[0] is one


def test_also_of_a_result_that_is_moved():
    asked: list[torch.Tensor] = []
    with FusionMode():
        y = layer(X, asked).transpose(2, 3).reshape(1, 2, 4)
        found = y + torch.ones(1, 2, 4)
    assert torch.equal(found, 2 * X.transpose(2, 3).reshape(1, 2, 4) + 1)
    assert asked[0].shape == X.shape


@pytest.mark.parametrize(
    "change",
    [
        lambda y: y.add_(1),
        lambda y: y.__setitem__(0, y[0] + 1),
        lambda y: F.relu(y.add_(1), True),
        lambda y: F.silu(y, inplace=True),
    ],
)
def test_nothing_is_known_once_something_was_changed_in_place(change):
    asked: list[torch.Tensor] = []
    with FusionMode():
        both = torch.cat([X, Y], dim=1)
        y = layer(X, asked)
        change(y)
        expected = torch.add(torch.zeros_like(y), 0).copy_(y) + X
        found = y + X
        assert parts_of(both) is None
    assert torch.equal(found, expected)
    assert not asked


def test_other_sums_are_as_ever():
    asked: list[torch.Tensor] = []
    with FusionMode():
        y = layer(X, asked)
        assert torch.equal(y + 1, 2 * X + 1)
        assert (y + X.double()).dtype == torch.double
        assert torch.equal(torch.add(y, X, alpha=2), 4 * X)
        assert torch.equal(y + torch.ones(2, 1, 2, 2), 2 * X + torch.ones(2, 1, 2, 2))
    assert not asked
