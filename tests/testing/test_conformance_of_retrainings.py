"""Our retrainings pass, and each fault is caught."""

from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
import torch

from diffcredit.retraining.fine_tune import FineTune
from diffcredit.retraining.from_scratch import FromScratch
from diffcredit.retraining.gradient_ascent import GradientAscent
from diffcredit.retraining.influence import Influence
from diffcredit.retraining.lora import LoRA
from diffcredit.retraining.pruning import Sparsity
from diffcredit.retraining.soup import Soup
from diffcredit.retraining.sparsified import Sparsified
from diffcredit.testing import ConformanceError, check_retraining

CALLS = count()


@pytest.mark.parametrize(
    "retraining",
    [
        FineTune(steps=2),
        FromScratch(steps=2),
        Sparsified(steps=2, recover_steps=2, parameters=0.5),
        LoRA(steps=2),
        GradientAscent(),
        Influence(time_steps=2),
        Soup(steps=2, sparse=Sparsity(recover_steps=2)),
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


class SpoilsBase(Sound):
    def prepare(self, ground):
        super().prepare(ground)
        next(ground.base.network.parameters()).data.mul_(2)


class TrainsTheBaseItself(Sound):
    def models_for(self, coalitions, seeds):
        self.start.clone = lambda: self.start
        yield from super().models_for(coalitions, seeds)


class SpoilsImages(Sound):
    def prepare(self, ground):
        ground.contributions.images[0] = 0
        super().prepare(ground)


class WeightsOfNone(Sound):
    def prepare(self, ground):
        super().prepare(ground)
        self.weights = None


class WeightsUnknown(FromScratch):
    @property
    def weights(self):
        raise NotImplementedError("weights")


class FreshPreparation(Sound):
    def prepare(self, ground):
        start = ground.base.clone()
        next(start.network.parameters()).data.mul_(1 + next(CALLS))
        self.start_from(start, ground)


class WithoutTheEmptyCoalition(Sound):
    def models_for(self, coalitions, seeds):
        rows = coalitions.any(axis=1)
        return super().models_for(coalitions[rows], [s for s, row in zip(seeds, rows, strict=True) if row])


class EmptyCoalitionRaises(Sound):
    def models_for(self, coalitions, seeds):
        for coalition, seed in zip(coalitions, seeds, strict=True):
            assert coalition.any(), "nothing to train on"
            yield from super().models_for(coalition[None], [seed])


class NobodyAnewEveryTime(Sound):
    def models_for(self, coalitions, seeds):
        for coalition, seed in zip(coalitions, seeds, strict=True):
            if coalition.any():
                yield from super().models_for(coalition[None], [seed])
            else:
                yield self.start.untrained(seed)


class OneTooMany(Sound):
    def models_for(self, coalitions, seeds):
        yield from super().models_for(coalitions, seeds)
        yield self.start


class Forgetful(Sound):
    """Ignores the coalition."""

    def models_for(self, coalitions, seeds):
        return super().models_for(coalitions | coalitions.any(axis=1, keepdims=True), seeds)


class IgnoresSeeds(Sound):
    def models_for(self, coalitions, seeds):
        return super().models_for(coalitions, [next(CALLS) for _ in seeds])


class FirstSeedForAll(Sound):
    def models_for(self, coalitions, seeds):
        return super().models_for(coalitions, [seeds[0]] * len(seeds))


class Continuing(Sound):
    """Each coalition goes on from the one before."""

    def models_for(self, coalitions, seeds):
        start = self.start
        for coalition, seed in zip(coalitions, seeds, strict=True):
            (model,) = super().models_for(coalition[None], [seed])
            self.start = model
            yield model
        self.start = start


class NotFinite(Sound):
    def models_for(self, coalitions, seeds):
        for model in super().models_for(coalitions, seeds):
            with torch.no_grad():
                next(model.network.parameters()).ravel()[0] = torch.nan
            yield model


class NotAModel(Sound):
    def models_for(self, coalitions, seeds):
        return iter([{} for _ in seeds])


class Unrehearsed(Sound):
    def rehearse(self, untrained, training, contributions):
        return untrained


class RehearsedWithNumbers(Sound):
    def rehearse(self, untrained, training, contributions):
        from diffcredit.retraining.base import Rehearsal

        return Rehearsal(untrained, None, self.steps)


class CannotPrepare(Sound):
    def prepare(self, ground):
        raise FileNotFoundError("adapter.safetensors")


@dataclass
class PathField(Sound):
    adapter: Path = Path("adapter")


@pytest.mark.parametrize(
    ("retraining", "sentence"),
    [
        (SpoilsBase(), "prepare changes the base model|prepared again from the same folder"),
        (TrainsTheBaseItself(), "models_for changes the base model"),
        (SpoilsImages(), "prepare changes the base model or the contributions' images"),
        (WeightsOfNone(), "`weights` is NoneType"),
        (WeightsUnknown(), "`weights` raises NotImplementedError"),
        (FreshPreparation(), "when prepared again from the same folder"),
        (WithoutTheEmptyCoalition(), "models_for gives 3 models for 4 coalitions"),
        (EmptyCoalitionRaises(), "the model of nobody raises AssertionError: nothing to train on"),
        (NobodyAnewEveryTime(), "the model of nobody depends on the seed"),
        (OneTooMany(), "more than 4 models"),
        (Forgetful(), "different coalitions get the same model"),
        (IgnoresSeeds(), "the model of the first alone differs from worker to worker"),
        (FirstSeedForAll(), "depends on which coalitions come before it"),
        (Continuing(), "depends on which coalitions come before it"),
        (NotFinite(), "the model of the first alone has weights that are not finite"),
        (NotAModel(), "the model of the first alone: `network` raises AttributeError"),
        (Unrehearsed(), "returns DDPM; a Rehearsal is expected"),
        (RehearsedWithNumbers(), "`coalition` and `preparation` must be Training settings"),
        (CannotPrepare(), r"prepare\(context\) raises FileNotFoundError: adapter.safetensors"),
        (PathField(), "as JSON.* raises TypeError"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_faults_are_caught(retraining, sentence):
    with pytest.raises(ConformanceError, match=sentence):
        check_retraining(retraining)
