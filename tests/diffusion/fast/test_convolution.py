"""The kernels against torch's convolution, run by Triton's interpreter where there is no GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="needs Triton")

COMPARISON = """
import torch
from torch.nn import functional as F
from diffcredit.diffusion.fast.convolution import convolved

torch.manual_seed(0)
# models, images, pixels a side, channels in and out, taps a side, stride, padding
for models, images, size, into, out, side, stride, padding in [
    (2, 3, 6, 32, 16, 3, 1, 1),
    (2, 2, 5, 3, 32, 3, 1, 1),
    (2, 2, 8, 64, 48, 3, 2, 1),
    (3, 2, 9, 24, 20, 3, 2, 0),
    (1, 2, 4, 32, 3, 3, 1, 1),
    (2, 2, 4, 96, 130, 3, 1, 1),
    (2, 2, 4, 40, 24, 1, 1, 0),
]:
    x = torch.randn(models, images, size, size, into, requires_grad=True)
    # of the flat weights of each model, as a fleet has them
    numbers = out * side * side * into
    flat = torch.randn(models, numbers + 17, requires_grad=True)
    weight, bias = flat[:, :numbers].view(models, out, side, side, into), torch.randn(models, out, requires_grad=True)
    y = convolved(x, weight, bias, stride, padding)
    expected = torch.stack(
        [
            F.conv2d(x[k].permute(0, 3, 1, 2), weight[k].permute(0, 3, 1, 2), bias[k], stride, padding)
            for k in range(models)
        ]
    ).permute(0, 1, 3, 4, 2)
    slope = torch.randn_like(expected)
    found = [y, *torch.autograd.grad(y, [x, flat, bias], slope)]
    theirs = [expected, *torch.autograd.grad(expected, [x, flat, bias], slope)]
    for one, other in zip(found, theirs):
        assert one.shape == other.shape
        assert (one - other).norm() < 1e-5 * other.norm(), (models, images, size, into, out, side, stride, padding)
print("equal")
"""


def test_convolutions_and_their_gradients_are_torchs():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPARISON], env=environment, cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert done.stdout == "equal\n", done.stderr
