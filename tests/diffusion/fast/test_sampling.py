"""The way to images made ready while models are trained: who waits for whom, on the CPU."""

import threading
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from diffcredit.diffusion import Sampling, Training
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.fast import sampling as fast_sampling
from diffcredit.diffusion.fast.fleet import fleet_for, plan_among, train_fleet
from diffcredit.diffusion.fast.functional import functions_of
from diffcredit.diffusion.fast.sampling import FastSampler, prepare_sampler, sampler_for

WANTED = Sampling(images=4, steps=2, batch_size=4)


@pytest.fixture(autouse=True)
def fresh(session, monkeypatch):
    """Nothing made yet, and a CPU that counts as a GPU."""
    monkeypatch.setattr(fast_sampling, "samples_fast", lambda like: True)


@pytest.fixture
def recorded(monkeypatch):
    """The threads in which samplers were made ready."""
    threads = []
    monkeypatch.setattr(FastSampler, "record", lambda self: threads.append(threading.current_thread()))
    return threads


@pytest.fixture
def like():
    return DDPM.create("tiny", 8, 0)


def trained(session, like):
    data = like.encode(np.zeros((4, 8, 8, 3), np.uint8))
    settings = Training(steps=2, batch_size=2, precision="float32")
    fleet = fleet_for(session, like, data, settings, 1)
    model = like.clone()
    fleet.load([model], [plan_among(data, torch.arange(4), settings, 0, like)])
    train_fleet(session, fleet, [model])
    return model


def test_a_training_has_it_made_ready_and_who_samples_waits_for_it(session, like, recorded):
    session.expected_sampling = WANTED
    model = trained(session, like)
    sampler = sampler_for(session, model, WANTED)
    assert len(recorded) == 1
    assert recorded[0] is not threading.current_thread()
    assert not recorded[0].is_alive()
    assert sampler_for(session, model, WANTED) is sampler


def test_nobody_who_was_not_announced(session, like, recorded):
    trained(session, like)
    session.expected_sampling = WANTED
    for weight in like.network.parameters():
        weight.requires_grad_(False)
    prepare_sampler(session, like)  # what will be sampled has other weights than those that are trained
    assert (recorded, session.preparation) == ([], None)


def test_what_goes_wrong_is_left_to_who_samples(session, like, monkeypatch):
    monkeypatch.setattr(FastSampler, "record", Mock(side_effect=RuntimeError("no compiler")))
    session.expected_sampling = WANTED
    prepare_sampler(session, like)
    with pytest.raises(RuntimeError, match="no compiler"):
        sampler_for(session, like, WANTED).record()


def test_its_images_are_the_same(session, like):
    session.expected_sampling = WANTED
    model = trained(session, like)
    expected = FastSampler(like, functions_of(session, like, 1, torch.float32), WANTED).sample(model)
    np.testing.assert_array_equal(sampler_for(session, model, WANTED).sample(model), expected)
