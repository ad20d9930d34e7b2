"""Recording a GPU's work, with a GPU that is made up, which has CUDA's rule that no recording is thrown away while
another is made."""

import gc
from contextlib import contextmanager, nullcontext
from threading import Lock
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from diffcredit.diffusion import Training
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.fast import fleet as fast_training
from diffcredit.diffusion.fast.cuda_graph import WARM_UP, Replayed


class Card:
    """What is being recorded, and what went wrong."""

    recording, spoiled, made = False, False, 0


class Graph:
    def __init__(self):
        Card.made += 1

    def __del__(self):
        Card.spoiled = Card.spoiled or Card.recording


@contextmanager
def recording(graph, stream, capture_error_mode):
    Card.recording = True
    gc.set_threshold(1, 1, 1)  # the collector's turn comes now
    try:
        yield
    finally:
        Card.recording = False
    if Card.spoiled:
        raise RuntimeError("operation failed due to a previous error during capture")


STREAM = SimpleNamespace(synchronize=lambda: None)


@pytest.fixture
def card(monkeypatch):
    Card.recording, Card.spoiled, Card.made = False, False, 0
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", recording)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    threshold = gc.get_threshold()
    gc.set_threshold(10**9)  # not before
    yield Card
    gc.set_threshold(*threshold)


class Owner:
    """Holds what was recorded of its own work, as a fleet does: a cycle."""

    def __init__(self):
        self.times = 0
        self.step = Replayed(self.work, STREAM, Lock())

    def work(self):
        self.times += 1
        [[] for _ in range(1000)]


def test_a_recording_that_nobody_holds_does_not_spoil_the_next(card):
    earlier: list[object] = [Graph()]
    earlier.append(earlier)
    del earlier
    owner = Owner()
    assert owner.step.record()
    assert not card.spoiled
    assert owner.times == WARM_UP + 1
    assert not owner.step.record()  # once is enough


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was(card, enabled):
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(ZeroDivisionError):
            Replayed(lambda: 1 / (0 if card.recording else 1), STREAM, Lock()).record()
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_a_fleet_that_gives_way_is_gone_before_the_next_is_made(session, monkeypatch):
    """Of a fleet that holds itself, as one with a recording does."""
    there = []

    class Fleet:
        def __init__(self, *_, **__):
            there.append(sum(isinstance(each, Fleet) for each in gc.get_objects()))
            self.step = self.load

        def load(self):
            pass

    monkeypatch.setattr(fast_training, "Fleet", Fleet)
    like = DDPM.create("tiny", 8, 0)
    data = like.encode(np.zeros((4, 8, 8, 3), np.uint8))
    for steps in (1, 2, 3):
        fast_training.fleet_for(session, like, data, Training(steps=steps, batch_size=2, precision="float32"), 1)
    assert there == [1, 1, 1]
