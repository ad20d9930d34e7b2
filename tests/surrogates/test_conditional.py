import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from diffcredit.contributions import Contributions
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.pipeline import pipeline
from diffcredit.diffusion.settings import Sampling
from diffcredit.diffusion.text_to_image import TextToImageLoRA
from diffcredit.errors import UserError
from diffcredit.surrogates.pools import Conditional, captions_of
from diffusion import tiny_pipelines

from .made_up import contributions, material, other_sampling

LEVELS = {"night": 10, "dusk": 60, "day": 120, "noon": 200}
CAPTIONS = ("night", "dusk", "night", "day", "noon", "noon", "dusk", "dusk", "dusk", "day")


@dataclass
class Followed:
    """A model whose image of seed s is grey of its prompt's brightness + s."""

    prompts: tuple[str, ...] = ("night",)
    prompt: str | None = None
    fingerprint: str = "weights"
    device: ClassVar[torch.device] = torch.device("cpu")
    sampled = 0

    def sample(self, seeds, steps, batch_size, scheduler, guidance):
        Followed.sampled += 1
        levels = [LEVELS[self.prompts[seed % len(self.prompts)]] + seed for seed in seeds]
        return np.stack([np.full((8, 8, 3), level, dtype=np.uint8) for level in levels])


def given():
    return dataclasses.replace(contributions(), captions=CAPTIONS)


def prepared(folder, model=None, **changes):
    surrogate = Conditional()
    one = dataclasses.replace(material(folder, base=model or Followed()), contributions=given())
    surrogate.prepare(other_sampling(one, **changes))
    return surrogate


def brightness(images):
    return images[:, 0, 0, 0].astype(int)


def test_a_members_images_follow_its_own_captions(tmp_path):
    surrogate = prepared(tmp_path)
    for index in range(4):
        levels = brightness(surrogate.images(np.arange(4) == index)) - np.arange(20)
        own = [caption for caption, owner in zip(CAPTIONS, given().owner, strict=True) if owner == index]
        expected = {LEVELS[caption]: own.count(caption) for caption in own}
        found = dict(zip(*np.unique(levels, return_counts=True), strict=True))
        assert set(found) == set(expected)
        for level, times in expected.items():  # seed s follows caption s mod k
            assert abs(found[level] - 20 * times / len(own)) < times


def test_images_behind_the_captions_change_nothing(tmp_path):
    """Whoever gives noise under the same captions has the same pool, and so the same credit."""
    surrogate, noisy = prepared(tmp_path / "given"), Conditional()
    noise = np.random.default_rng(0).integers(0, 256, given().images.shape, dtype=np.uint8)
    other = dataclasses.replace(given(), images=noise)
    noisy.prepare(dataclasses.replace(material(tmp_path / "noise", base=Followed()), contributions=other))
    np.testing.assert_array_equal(noisy.library, surrogate.library)


def test_captions_do_not_depend_on_the_order_of_the_images():
    one = given()
    order = np.random.default_rng(0).permutation(10)
    mixed = dataclasses.replace(
        one,
        images=one.images[order],
        owner=one.owner[order],
        names=tuple(one.names[row] for row in order),
        captions=tuple(CAPTIONS[row] for row in order),
    )
    assert captions_of(Followed(), mixed) == captions_of(Followed(), one)
    assert [sorted(texts) for texts in captions_of(Followed(), one)] == [
        ["dusk", "night", "night"],
        ["day"],
        ["noon", "noon"],
        ["day", "dusk", "dusk", "dusk"],
    ]


def test_images_are_sampled_once_and_taken_up_again(tmp_path, monkeypatch):
    monkeypatch.setattr(Followed, "sampled", 0)
    first = prepared(tmp_path)
    assert Followed.sampled == 4
    np.testing.assert_array_equal(prepared(tmp_path).library, first.library)
    assert Followed.sampled == 4
    prepared(tmp_path, seed=5)
    prepared(tmp_path, Followed(fingerprint="others"))
    assert Followed.sampled == 12


def test_stated_prompts_leave_the_pools_to_the_captions(tmp_path, monkeypatch):
    first = prepared(tmp_path)
    monkeypatch.setattr(Followed, "sampled", 0)
    stated = prepared(tmp_path, prompts=("noon", "day"))
    assert Followed.sampled == 0
    np.testing.assert_array_equal(stated.library, first.library)


def test_refusals():
    for problem, model, captions in (
        ("the model follows no text", Followed(prompts=()), CAPTIONS),
        ("one prompt for all images", Followed(prompt="a painting"), CAPTIONS),
        ("trained with the images' own captions", Followed(), None),
    ):
        with pytest.raises(UserError, match=problem):
            captions_of(model, dataclasses.replace(contributions(), captions=captions))
    alone = dataclasses.replace(given(), contributors=("a", "b", "c", "d", "e"))
    with pytest.raises(UserError, match="'e' gave no image"):
        captions_of(Followed(), alone)


def test_a_text_to_image_model_makes_its_own_images_of_other_prompts(tmp_path):
    base = pipeline(str(tiny_pipelines.stable_diffusion(tmp_path / "sd")))
    model = TextToImageLoRA.create(base, 2, ("a cat", "two dogs"), None, 16, seed=0)
    images = tiny_pipelines.pictures(2)
    texts = ("two dogs", "a bee in the sun")
    some = Contributions(images, np.arange(2), ("a", "b"), ("0", "1"), images[:0], captions=texts)
    sampling = Sampling(images=3, steps=2)
    surrogate = Conditional()
    one = dataclasses.replace(material(tmp_path / "kept", base=model), contributions=some, sampling=sampling)
    surrogate.prepare(one)
    for index, caption in enumerate(texts):
        trained_with_it = TextToImageLoRA.create(base, 2, (caption,), None, 16, seed=0)
        np.testing.assert_array_equal(surrogate.library[3 * index : 3 * index + 3], generate(trained_with_it, sampling))
    assert model.prompts == ("a cat", "two dogs")
    assert not np.array_equal(surrogate.library[:3], surrogate.library[3:])
