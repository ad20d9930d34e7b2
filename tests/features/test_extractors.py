import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffcredit.errors import UserError
from diffcredit.features import EXTRACTORS, Features
from diffcredit.features.extractors import Extractors, label_of, make_extractor

from . import tiny_vision_models as tiny

PLUG_IN = '''
from dataclasses import dataclass

import numpy as np

from diffcredit.features import Extractor, Features

LOADED, SEEN = [], []


@dataclass
class Brightness:
    """The mean of each channel; two classes."""

    scale: float = 1.0
    batch_size: int = 3
    answer: str = ""
    dimensions = 3
    classes = 2

    def load(self, device):
        LOADED.append((self.scale, device))

    def identity(self):
        return {"weights": "", "resize": "none", "scale": self.scale}

    def extract(self, images):
        SEEN.append(len(images))
        vectors = images.mean(axis=(1, 2)).astype(np.float32) * np.float32(self.scale)
        return ANSWERS[self.answer](vectors)


ANSWERS = {
    "": lambda v: Features(v, v[:, :2]),
    "array": lambda v: v,
    "a row less": lambda v: Features(v[1:], v[1:, :2]),
    "infinite": lambda v: Features(v / np.float32(0) * 0, v[:, :2]),
    "narrow": lambda v: Features(v[:, :2], v[:, :2]),
    "float64": lambda v: Features(v.astype(float), v[:, :2]),
    "a list": lambda v: Features(v.tolist(), v[:, :2]),
    "no logits": lambda v: Features(v),
    "classes": lambda v: Features(v, v),
}


class Unfinished:
    batch_size = 1


class Inheriting(Extractor):
    batch_size, dimensions = 1, 2

    def identity(self):
        return {}
'''


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plug-in's module; its extractor counts what it loads and sees."""
    (tmp_path / "brightness_plug_in.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "brightness_plug_in", raising=False)
    return importlib.import_module("brightness_plug_in")


BRIGHTNESS = "brightness_plug_in:Brightness"


def test_equal_options_share_one_extractor(plug_in):
    extractors = Extractors("meta")
    same = [
        BRIGHTNESS,
        {"name": BRIGHTNESS},
        {"name": BRIGHTNESS, "scale": 2.0, "batch_size": 3},
        {"batch_size": 3, "scale": 2.0, "name": BRIGHTNESS},
    ]
    assert extractors.get(same[0]) is extractors.get(same[1])
    assert extractors.get(same[2]) is extractors.get(same[3])
    assert plug_in.LOADED == [(1.0, "meta"), (2.0, "meta")]


@pytest.mark.parametrize("m", [1, 3, 7])
def test_batches_are_joined_in_order(plug_in, m):
    images = tiny.some_images(m)
    told: list[tuple[int, int]] = []
    found = Extractors().extract(BRIGHTNESS, images, lambda done, total: told.append((done, total)))
    np.testing.assert_allclose(found.vectors, images.mean(axis=(1, 2)), rtol=1e-6)
    np.testing.assert_array_equal(found.logits, found.vectors[:, :2])
    assert max(plug_in.SEEN) <= 3
    assert told == [(min(done, m), m) for done in range(3, m + 3, 3)]


def test_what_was_kept_is_not_extracted_again(plug_in, tmp_path):
    images = tiny.some_images(4)
    told: list[tuple[str, int, int]] = []

    def fresh() -> Extractors:
        return Extractors(folder=tmp_path / "kept", progress=lambda *step: told.append(step))

    first = fresh().kept(BRIGHTNESS, images, "the training images")
    assert told == [(f"features of the training images ({BRIGHTNESS})", done, 4) for done in (3, 4)]
    seen = len(plug_in.SEEN)
    again = fresh().kept(BRIGHTNESS, images, "the training images")
    assert len(plug_in.SEEN) == seen
    assert again.arrays().keys() == first.arrays().keys() == {"vectors", "logits"}
    for name, array in first.arrays().items():
        np.testing.assert_array_equal(again.arrays()[name], array)
        assert again.arrays()[name].dtype == np.float32


IMAGES = np.zeros((2, 4, 4, 3), np.uint8)


@pytest.mark.parametrize(
    ("images", "told"),
    [
        (IMAGES.astype(np.float32), "float32 of shape (2, 4, 4, 3); uint8 of shape (m, height, width, 3)"),
        (IMAGES[..., 0], "uint8 of shape (2, 4, 4); uint8 of shape (m, height, width, 3)"),
        (IMAGES[0], "uint8 of shape (4, 4, 3); uint8"),
        (np.concatenate([IMAGES, IMAGES[..., :1]], axis=-1), "uint8 of shape (2, 4, 4, 4); uint8"),
        (IMAGES[:0], "of shape (0, 4, 4, 3); at least one image with at least one pixel"),
        (IMAGES[:, :0], "of shape (2, 0, 4, 3); at least one image"),
        (IMAGES.tolist(), "list; uint8"),
    ],
)
def test_what_is_no_stack_of_images_is_refused(images, told):
    with pytest.raises(UserError) as error:
        Extractors().extract("pixels", images)
    assert str(error.value).startswith(f"images: {told}")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("array", "Brightness extracts ndarray; Features are expected"),
        ("a row less", "vectors of shape (2, 3) for 3 images"),
        ("infinite", "vectors are not finite"),
        ("narrow", "vectors of shape (3, 2) for 3 images"),
        ("float64", "vectors of type float64"),
        ("a list", "vectors of type list"),
        ("no logits", "logits are missing"),
        ("classes", "logits of shape (3, 3) for 3 images"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_what_a_plug_in_must_not_answer(plug_in, answer, told):
    with pytest.raises(UserError) as error:
        Extractors().extract({"name": BRIGHTNESS, "answer": answer}, tiny.some_images(3))
    assert str(error.value).startswith(f"features: {BRIGHTNESS}")
    assert told in str(error.value)


def test_a_plug_in_that_is_not_finished_is_refused(plug_in):
    with pytest.raises(UserError, match=rf"^features: {BRIGHTNESS} has the batch_size 0; at least 1"):
        Extractors().extract({"name": BRIGHTNESS, "batch_size": 0}, tiny.some_images(3))
    for name, missing in (("Unfinished", "dimensions"), ("Inheriting", "extract")):
        with pytest.raises(UserError, match=f"^features: 'brightness_plug_in:{name}' has no {missing}; an Extractor"):
            make_extractor(f"brightness_plug_in:{name}")


def test_the_code_of_a_plug_in_is_part_of_its_identity(plug_in):
    identity = Extractors().identity(BRIGHTNESS)
    assert identity["name"] == BRIGHTNESS
    assert len(identity["code"]) == 64
    assert "code" not in Extractors().identity("pixels")


def test_an_unknown_extractor_is_refused_with_those_accepted():
    with pytest.raises(UserError) as error:
        make_extractor("inception")
    assert str(error.value) == (
        f"features: 'inception' is unknown; accepted: {', '.join(EXTRACTORS)}, or a plug-in 'package.module:Class'"
    )


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"name": "pixels", "side": 3}, "features.side: unknown; pixels accepts size"),
        ({"size": 3}, "features: {'size': 3} is not accepted; an extractor's name, or a mapping with its name"),
        ({"name": "layout", "grid": 2}, "features.grid: unknown; layout accepts no options"),
        ({"name": "pixels", "size": float("nan")}, "features: {'name': 'pixels', 'size': nan} is not accepted"),
        ({"name": "pixels", "size": {1, 2}}, "features: {'name': 'pixels', 'size': {1, 2}} is not accepted"),
        (3, "features: 3 is not accepted"),
        ("no.such.module:Class", "features: 'no.such.module:Class' cannot be loaded"),
    ],
)
def test_options_that_are_not_accepted(option, told):
    with pytest.raises(UserError) as error:
        Extractors().get(option)
    assert str(error.value).startswith(told)


def test_labels():
    assert label_of({"name": "clip"}) == label_of("clip") == "CLIP"
    assert label_of("pixels") == "pixels"
    assert label_of("package.module:Warmth") == "Warmth"  # a plug-in's is its class


def test_probabilities_are_the_softmax():
    odds = np.array([[1.0, 3.0], [1.0, 1.0]])
    features = Features(np.zeros((2, 1), np.float32), np.log(odds).astype(np.float32) + 1000)
    np.testing.assert_allclose(features.probabilities(), [[0.25, 0.75], [0.5, 0.5]], atol=1e-4)
    with pytest.raises(UserError, match="no classifier"):
        Features(np.zeros((2, 1), np.float32)).probabilities()
