import json
from pathlib import Path

import numpy as np
import pytest
import torch

from diffcredit.features.resizing import as_pillow, by_matrices, resized, tensorflow_bilinear
from features.inception_reference import RESIZES, images, summary

REFERENCE = json.loads(Path(__file__).with_name("inception_reference.json").read_text(encoding="utf-8"))["resized"]


@pytest.mark.parametrize("method", ["bilinear", "bicubic"])
@pytest.mark.parametrize("length", [1, 5, 32, 100, 299])
@pytest.mark.parametrize("size", [1, 33, 224])
def test_matrices_give_pillow_s_very_numbers(method, length, size):
    stack = images("matrices", 2, length, length)
    stack[1] = np.where(stack[1] > 127, 255, 0)  # as hard as it gets: sums beyond both ends
    found = by_matrices(torch.from_numpy(stack).permute(0, 3, 1, 2), size, method)
    np.testing.assert_array_equal(found.permute(0, 2, 3, 1).numpy(), as_pillow(stack, size, method))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(32, 32), (40, 32)])
def test_a_gpu_gives_pillow_s_very_numbers(shape):
    stack = images("gpu", 3, *shape)
    found = resized(stack, 224, "bicubic", "cuda").permute(0, 2, 3, 1).cpu().numpy()
    np.testing.assert_array_equal(found, as_pillow(stack, 224, "bicubic"))


@pytest.mark.parametrize("name", RESIZES)
def test_as_torch_fidelity_resizes(name):
    height, width, size = RESIZES[name]
    stack = torch.tensor(images(name, 1, height, width)).permute(0, 3, 1, 2).float()
    ours, reference = summary(tensorflow_bilinear(stack, size).numpy(), 192), REFERENCE[name]
    assert ours["shape"] == reference["shape"]
    for what in ("mean", "std", "entries"):
        np.testing.assert_allclose(ours[what], reference[what], rtol=1e-6, err_msg=what)
