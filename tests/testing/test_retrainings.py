"""Our retrainings pass, and each fault is caught."""

from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

from diffcredit.diffusion.networks import PRESETS
from diffcredit.diffusion.training import train
from diffcredit.retraining.base import Rehearsal
from diffcredit.retraining.fine_tune import FineTune, FromScratch
from diffcredit.retraining.lora import LoRA
from diffcredit.retraining.pruning import Sparsity
from diffcredit.retraining.soup import Soup
from diffcredit.retraining.sparsified import Sparsified
from diffcredit.retraining.unlearning import GradientAscent, Influence
from diffcredit.testing import ConformanceError, check_retraining

CALLS = count()


@pytest.fixture(autouse=True)
def smaller(monkeypatch):
    """The network of the checks with two levels instead of three."""
    blocks = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2}
    monkeypatch.setitem(PRESETS, "tiny", PRESETS["tiny"] | blocks | {"block_out_channels": (8, 16)})


@pytest.mark.parametrize(
    "retraining",
    [
        FineTune(steps=1),
        FromScratch(steps=1),
        Sparsified(steps=1, recover_steps=1, parameters=0.5),
        LoRA(steps=2),
        GradientAscent(),
        Influence(time_steps=2),
        Soup(steps=1, sparse=Sparsity(recover_steps=1)),
    ],
    ids=lambda retraining: type(retraining).__name__,
)
def test_our_retrainings_conform(retraining):
    before = dict(vars(retraining))
    check_retraining(retraining)
    assert vars(retraining) == before, "the check must leave the retraining as it was"


@dataclass
class Sound(FineTune):
    """One step of fine-tuning, for faults to be built on."""

    steps: int = 1


@dataclass
class PathField(Sound):
    adapter: Path = Path("adapter")


def trains_the_base_itself(self, coalitions, seeds):
    self.start.clone = lambda: self.start
    yield from Sound.models_for(self, coalitions, seeds)


def spoils_images(self, context):
    context.contributions.images[0] = 0
    Sound.prepare(self, context)


def weights_of_none(self, context):
    Sound.prepare(self, context)
    self.weights = None


def prepares_afresh(self, context):
    start = context.base.clone()
    next(start.network.parameters()).data.mul_(1 + next(CALLS))
    self.start_from(start, context)


def cannot_prepare(self, context):
    raise FileNotFoundError("adapter.safetensors")


def leaves_out_nobody(self, coalitions, seeds):
    rows = coalitions.any(axis=1)
    return Sound.models_for(self, coalitions[rows], [s for s, row in zip(seeds, rows, strict=True) if row])


def refuses_nobody(self, coalitions, seeds):
    for coalition, seed in zip(coalitions, seeds, strict=True):
        assert coalition.any(), "nothing to train on"
        yield from Sound.models_for(self, coalition[None], [seed])


def makes_nobody_anew(self, coalitions, seeds):
    for coalition, seed in zip(coalitions, seeds, strict=True):
        if coalition.any():
            yield from Sound.models_for(self, coalition[None], [seed])
        else:
            yield self.start.untrained(seed)


def forgets_the_houses_own_model(self, coalitions, seeds):
    for coalition, seed in zip(coalitions, seeds, strict=True):
        made = Sound.models_for(self, coalition[None], [seed])
        yield next(made) if coalition.any() else self.context.untrained(self.start)


def takes_the_house_for_the_last_contributor(self, coalitions, seeds):
    owner = self.context.contributions.owner
    for coalition, seed in zip(coalitions, seeds, strict=True):
        if coalition.any():
            model, rows = self.begin(seed), np.flatnonzero(coalition[owner])
            train(model, self._data.select(torch.from_numpy(rows)), self.settings, seed=seed)
            yield model
        else:
            yield from Sound.models_for(self, coalition[None], [seed])


def gives_one_too_many(self, coalitions, seeds):
    yield from Sound.models_for(self, coalitions, seeds)
    yield self.start


def ignores_coalitions(self, coalitions, seeds):
    return Sound.models_for(self, coalitions | coalitions.any(axis=1, keepdims=True), seeds)


def ignores_seeds(self, coalitions, seeds):
    return Sound.models_for(self, coalitions, [next(CALLS) for _ in seeds])


def goes_on_from_the_coalition_before(self, coalitions, seeds):
    start = self.start
    for coalition, seed in zip(coalitions, seeds, strict=True):
        (model,) = Sound.models_for(self, coalition[None], [seed])
        self.start = model
        yield model
    self.start = start


def is_not_finite(self, coalitions, seeds):
    for model in Sound.models_for(self, coalitions, seeds):
        with torch.no_grad():
            next(model.network.parameters()).ravel()[0] = torch.nan
        yield model


def rehearses_with_numbers(self, untrained, training, contributions):
    return Rehearsal(untrained, None, self.steps)


@pytest.mark.parametrize(
    ("method", "fault", "sentence"),
    [
        ("rehearse", lambda self, start, *others: start, "returns DDPM; a Rehearsal is expected"),
        ("rehearse", rehearses_with_numbers, "`coalition` and `preparation` must be Training settings"),
        ("prepare", cannot_prepare, r"prepare\(context\) raises FileNotFoundError: adapter.safetensors"),
        ("prepare", spoils_images, "prepare changes the base model or the contributions' images"),
        ("prepare", weights_of_none, "`weights` is NoneType"),
        ("prepare", prepares_afresh, "when prepared again from the same folder"),
        ("models_for", trains_the_base_itself, "models_for changes the base model"),
        ("models_for", leaves_out_nobody, "models_for gives 3 models for 4 coalitions"),
        ("models_for", refuses_nobody, "the model of nobody raises AssertionError: nothing to train on"),
        ("models_for", makes_nobody_anew, "the model of nobody depends on the seed"),
        ("models_for", forgets_the_houses_own_model, "the model of nobody is the same with house images and without"),
        ("models_for", takes_the_house_for_the_last_contributor, "the first alone is the same with house images and"),
        ("models_for", gives_one_too_many, "more than 4 models"),
        ("models_for", ignores_coalitions, "different coalitions get the same model"),
        ("models_for", ignores_seeds, "the model of the first alone differs from worker to worker"),
        ("models_for", goes_on_from_the_coalition_before, "depends on which coalitions come before it"),
        ("models_for", lambda self, coalitions, seeds: iter([{}] * 4), "`network` raises AttributeError"),
        ("models_for", is_not_finite, "the model of the first alone has weights that are not finite"),
    ],
)
def test_faults_are_caught(method, fault, sentence):
    with pytest.raises(ConformanceError, match=sentence):
        check_retraining(type("Faulty", (Sound,), {method: fault})())


def test_fields_that_json_cannot_hold_are_caught():
    with pytest.raises(ConformanceError, match=r"as JSON.* raises TypeError"):
        check_retraining(PathField())
