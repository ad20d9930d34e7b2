import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from diffcredit.features.resizing import as_pillow, by_matrices, resized, tensorflow_bilinear
from features.inception_reference import RESIZES, images, summary, uniform

REFERENCE = json.loads(Path(__file__).with_name("inception_reference.json").read_text(encoding="utf-8"))["resized"]


def triangle(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(1 - np.abs(x), 0, None)


def keys_cubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keys (1981) with a = −1/2."""
    x = np.abs(x)
    near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


KERNELS = {"bilinear": triangle, "bicubic": keys_cubic}


def antialiased(image: NDArray[np.uint8], size: int, method: str) -> NDArray[np.float64]:
    """By definition: each output pixel is the mean of the input weighted by the kernel around the pixel's centre,
    as wide as the larger of an input and an output pixel; columns first, rounded to bytes between."""

    def matrix(length: int) -> NDArray[np.float64]:
        scale = length / size
        centres = (np.arange(size) + 0.5) * scale
        weights = KERNELS[method]((np.arange(length) + 0.5 - centres[:, None]) / max(scale, 1))
        return weights / weights.sum(axis=1, keepdims=True)

    def as_bytes(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip(np.floor(x + 0.5), 0, 255)

    across = as_bytes(np.einsum("jw,hwc->hjc", matrix(image.shape[1]), image.astype(float)))
    return as_bytes(np.einsum("ih,hjc->ijc", matrix(image.shape[0]), across))


@pytest.mark.parametrize("method", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    ("height", "width", "size"), [(32, 32, 299), (64, 64, 17), (50, 70, 32), (3, 40, 8), (1, 1, 5)]
)
def test_pillow_s_filters_are_what_they_are_said_to_be(method, height, width, size):
    stack = images("filters", 2, height, width)
    resized = as_pillow(stack, size, method)
    assert resized.shape == (2, size, size, 3)
    assert resized.dtype == np.uint8
    for image, small in zip(stack, resized, strict=True):
        differences = np.abs(antialiased(image, size, method) - small)
        assert differences.max() <= 1  # where a sum lies half-way between two levels
        assert np.mean(differences > 0) < 0.01


def test_images_of_the_size_are_left_alone():
    stack = images("same", 3, 8, 8)
    np.testing.assert_array_equal(as_pillow(stack, 8, "bicubic"), stack)
    pixels = torch.from_numpy(stack).permute(0, 3, 1, 2)
    assert torch.equal(by_matrices(pixels, 8, "bicubic"), pixels.double())


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


def without_antialiasing(x: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """(h, w) → (size, size) by TensorFlow 1's formula, pixel by pixel."""
    height, width = x.shape
    out = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            p, q = i * height / size, j * width / size
            a, b = int(p), int(q)
            c, d = min(a + 1, height - 1), min(b + 1, width - 1)
            top = x[a, b] + (x[a, d] - x[a, b]) * (q - b)
            bottom = x[c, b] + (x[c, d] - x[c, b]) * (q - b)
            out[i, j] = top + (bottom - top) * (p - a)
    return out


@pytest.mark.parametrize("name", RESIZES)
def test_as_torch_fidelity_resizes(name):
    height, width, size = RESIZES[name]
    stack = torch.tensor(images(name, 1, height, width)).permute(0, 3, 1, 2).float()
    ours, reference = summary(tensorflow_bilinear(stack, size).numpy(), 192), REFERENCE[name]
    assert ours["shape"] == reference["shape"]
    for what in ("mean", "std", "entries"):
        np.testing.assert_allclose(ours[what], reference[what], rtol=1e-6, err_msg=what)


@settings(deadline=None, max_examples=50)
@given(height=st.integers(1, 20), width=st.integers(1, 20), size=st.integers(1, 20))
def test_by_tensorflow_s_formula(height, width, size):
    x = uniform("formula", (1, 2, height, width)).astype(float)
    resized = tensorflow_bilinear(torch.tensor(x), size)
    assert resized.dtype == torch.float64
    for channel in range(2):
        np.testing.assert_allclose(resized[0, channel], without_antialiasing(x[0, channel], size), atol=1e-5)
