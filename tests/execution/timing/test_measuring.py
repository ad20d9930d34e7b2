"""Estimates of measuring, by a clock that only properties and extractors move; known laws of growth."""

import dataclasses
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from diffcredit.diffusion.ddpm import DDPM
from diffcredit.execution.timing import measuring as measuring_time
from diffcredit.execution.timing.measuring import (
    DISTINCT,
    ENOUGH,
    StandInExtractors,
    extrapolate,
    random_images,
    time_measuring,
)
from diffcredit.features import Features
from diffcredit.features.extractors import Extractors
from diffcredit.properties import PROPERTIES
from diffcredit.properties.base import needs_features
from diffcredit.testing.conformance import random_context
from diffcredit.util.plugins import build

IMAGES = 640
COLOURS = {"name": "colours", "bins": 2}  # 8 dimensions


class Clock:
    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(measuring_time, "time", clock)
    return clock


class Slow:
    """A property of images that takes so many seconds an image, and as many for its standard error."""

    def __init__(self, clock: Clock, seconds: float, name: str = "slow") -> None:
        self.clock, self.seconds, self.name, self.most = clock, seconds, name, 0

    def measure(self, images):
        assert images.shape[1:] == (16, 16, 3)
        self.most = max(self.most, len(images))
        self.clock.now += self.seconds * len(images)
        return 0.0

    def standard_error(self, images):
        return self.measure(images)


class OfFeatures(Slow):
    features: ClassVar = COLOURS

    def fit(self, context):
        seen = context.extractors.kept(self.features, context.contributions.images, "the training images")
        return {"training": seen.vectors}

    def restore(self, state):
        self.state = state

    def measure_features(self, features):
        assert features.vectors.shape[1] == 8
        assert len(self.state["training"]) == 24
        self.clock.now += self.seconds * len(features)
        return 0.0

    standard_error = measure_features


class OfModel:
    """It takes so many seconds for each of the held-out images, and ``always`` so many."""

    name = "of the model"

    def __init__(self, clock: Clock, seconds: float, always: float = 0.0) -> None:
        self.clock, self.seconds, self.always, self.most = clock, seconds, always, 0

    def fit(self, context):
        return {"heldout": context.contributions.heldout}

    def restore(self, state):
        self.heldout = len(state["heldout"])
        self.most = max(self.most, self.heldout)

    def measure_model(self, model):
        assert model == "a model"
        self.clock.now += self.always + self.seconds * self.heldout
        return 0.0


def timed(*properties, context=None, states=None, images=IMAGES):
    return time_measuring(properties, states or {}, "a model", images, context or random_context())


def test_a_property_counts_with_its_standard_error_and_one_that_takes_long_is_not_measured_in_full(clock):
    time = timed(Slow(clock, 1e-3), Slow(clock, 2e-4, "other"))
    assert time.seconds == time.properties == pytest.approx(2 * IMAGES * 1.2e-3)
    assert time.left_out == {}
    clock.now, slow = 0.0, Slow(clock, 0.5)
    assert timed(slow).seconds == pytest.approx(2 * IMAGES * 0.5)
    assert slow.most <= 8
    assert clock.now < 20


def test_features_are_extracted_once_and_for_nothing_else(clock, monkeypatch):
    seen, extract = [], Extractors.extract

    def counted(self, option, images, on_batch=None):
        seen.append(len(images))
        clock.now += 1e-3 * len(images)
        return extract(self, option, images, on_batch)

    monkeypatch.setattr(Extractors, "extract", counted)
    fitted, state = OfFeatures(clock, 3e-4, "other"), {"training": np.zeros((24, 8))}
    fitted.fit = lambda context: pytest.fail("it is fitted already")
    time = timed(OfFeatures(clock, 1e-4), fitted, states={"other": state})
    assert time.features == pytest.approx(1e-3 * IMAGES)
    assert time.properties == pytest.approx(2 * 4e-4 * IMAGES)
    assert time.left_out == {}
    assert seen[-1] == IMAGES
    assert 24 not in seen, "fitting sees random features"


@pytest.mark.parametrize("heldout", [1, 2000])
def test_a_property_of_the_model_grows_with_the_held_out_images(clock, heldout):
    context = random_context()
    images = np.zeros((heldout, 16, 16, 3), np.uint8)
    given = dataclasses.replace(context, contributions=dataclasses.replace(context.contributions, heldout=images))
    prop = OfModel(clock, 0.01)
    assert timed(prop, context=given).seconds == pytest.approx(0.01 * heldout)
    assert prop.most == min(heldout, 512), "as many as take five seconds"
    constant = OfModel(clock, 0.0, always=7.0)
    assert timed(constant, context=given).seconds == pytest.approx(7.0)


def test_a_property_that_fails_is_left_out_with_the_reason(clock):
    class NoFit(OfFeatures):
        def fit(self, context):
            raise ValueError("no faces\nin noise")

    class NoValue(Slow):
        def measure(self, images):
            raise KeyError

    class Nan(Slow):
        def measure(self, images):
            return float("nan")

    time = timed(
        NoFit(clock, 1.0, "fit"), NoValue(clock, 1.0, "value"), Nan(clock, 1.0, "nan"), Slow(clock, 1e-3, "sound")
    )
    assert time.properties == pytest.approx(2 * IMAGES * 1e-3)
    assert time.left_out == {
        "fit": "no faces in noise",
        "value": "KeyError",
        "nan": "diffcredit.errors.DiffcreditError: property 'nan' returned nan; a finite number is expected",
    }


@pytest.mark.parametrize("name", PROPERTIES)
def test_all_of_ours_can_be_measured_on_stand_ins(name, tmp_path):
    fake = {"name": "properties.fake_features:FakeFeatures", "width": 768 if name == "aesthetic" else 16}
    options = {"class_share": {"classes": [0]}, "fid": {"features": COLOURS}}.get(name, {})
    prop = build(name, options, PROPERTIES, where=name, beside=Path())
    if needs_features(prop) and "features" not in options:
        prop = dataclasses.replace(prop, features=fake)
    prompts = tuple(f"picture {index % 7}" for index in range(IMAGES))
    context = dataclasses.replace(random_context(8), extractors=Extractors(folder=tmp_path), prompts=prompts)
    time = time_measuring([prop], {}, DDPM.create("tiny", 8, 0), IMAGES, context)
    assert time.left_out == {}
    assert time.properties > 0
    assert not list(tmp_path.iterdir()), "nothing is kept"


def test_stand_ins_look_like_what_they_stand_for():
    images = random_images(DISTINCT + 5, 4)
    assert images.shape == (DISTINCT + 5, 4, 4, 3)
    assert images.dtype == np.uint8
    assert np.array_equal(images[:5], images[-5:])
    real = Extractors()
    extractors = StandInExtractors(real)
    option = {"name": "properties.fake_features:FakeFeatures", "kinds": 9}
    found, other = (extractors.kept(option, images, "them") for _ in range(2))
    assert isinstance(found, Features)
    assert {name: array.shape for name, array in found.arrays().items()} == {
        "vectors": (len(images), 16),
        "logits": (len(images), 9),
    }
    assert not np.array_equal(found.vectors, other.vectors)
    assert extractors.get(option) is real.get(option)


class Work:
    def __init__(self, law, least: int = 0) -> None:
        self.law, self.least, self.sizes = law, least, []

    def __call__(self, size: int) -> float:
        if size < self.least:
            raise ValueError(f"{size} are too few")
        self.sizes.append(size)
        return self.law(size)


@pytest.mark.parametrize(
    "law",
    [
        lambda n: 1e-3 * n,
        lambda n: 1e-6 * n**2,
        lambda n: 1e-9 * n**3,
        lambda n: 3.0,
        lambda n: 1.5 + 1e-3 * n,
        lambda n: 40.0 * n,
        lambda n: 0.0,
    ],
)
@pytest.mark.parametrize("size", [1, 4, 1000, 100_000])
def test_known_laws(law, size):
    work = Work(law)
    assert extrapolate(work, size) == pytest.approx(law(size), rel=1e-6)
    long = [each for each in work.sizes if each < size and law(each) > ENOUGH]
    assert not long or max(work.sizes) == long[0], "no more is done than takes long enough"


def test_too_few_are_passed_over():
    work = Work(lambda n: 1e-3 * n, least=500)
    assert extrapolate(work, 1000) == pytest.approx(1)
    assert min(work.sizes) == 512
    work = Work(lambda n: 1e-1 * n, least=500)
    assert extrapolate(work, 4096) == pytest.approx(409.6)
    assert work.sizes == [512]  # of 256, which it cannot do, nothing is known
    with pytest.raises(ValueError, match="10 are too few"):  # what cannot be done with all is told
        extrapolate(Work(lambda n: 0.0, least=11), 10)
    assert extrapolate(Work(lambda n: 0.5), 0) == 0.5
