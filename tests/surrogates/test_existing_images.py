import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffcredit.contributions import Contributions
from diffcredit.surrogates.existing_images import Reweighting, resampled

from .made_up import material


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=60))
def test_every_image_comes_as_often_as_its_weight_says(weights):
    weights = np.array(weights)
    times = np.bincount(resampled(np.log(weights)), minlength=len(weights))
    wanted = len(weights) * weights / weights.sum()
    assert times.sum() == len(weights)
    assert (np.abs(times - wanted) < 1 + 1e-9).all()


def test_weights_that_vanish_still_differ():
    assert set(resampled(np.array([-3000.0, -2000.0, -2000.0]))) == {1, 2}


def red_and_blue(count, seed):
    """Images (2 count, 8, 8, 3): reddish ones, then bluish ones."""
    images = np.random.default_rng(seed).integers(0, 80, (2 * count, 8, 8, 3)).astype(np.uint8)
    images[:count, :, :, 0] += 150
    images[count:, :, :, 2] += 150
    return images


@pytest.fixture
def contributions():
    images = red_and_blue(30, seed=0)
    names = tuple(map(str, range(60)))
    return Contributions(images, np.repeat([0, 1], 30), ("blue", "red")[::-1], names, images[:0])


def test_a_coalitions_images_are_those_that_look_like_its_members(contributions, tmp_path, monkeypatch):
    generated = red_and_blue(10, seed=1)
    one = dataclasses.replace(material(tmp_path, generated=generated), contributions=contributions)
    surrogate = Reweighting()
    surrogate.prepare(one)
    red = surrogate.images(np.array([True, False]))
    assert red.shape == generated.shape
    assert (red[..., 0].mean(axis=(1, 2)) > red[..., 2].mean(axis=(1, 2))).mean() > 0.9
    np.testing.assert_array_equal(surrogate.images(np.array([True, True])), generated)  # all alike: each once
    monkeypatch.setattr("diffcredit.surrogates.existing_images.log_probabilities", None)  # kept: not fitted again
    again = Reweighting()
    again.prepare(one)
    np.testing.assert_array_equal(again.images(np.array([True, False])), red)
