"""Every property of the registry follows the protocol that users' own must follow."""

import dataclasses
from importlib import import_module

import pytest

from diffcredit.properties import PROPERTIES
from diffcredit.properties.measuring import needs_features
from diffcredit.testing import check_property
from diffcredit.testing.properties import random_context
from diffcredit.util.plugins import build

from .fake_features import FAKE, SIDE

NEEDED = {
    "class_share": {"classes": [0, "red fox"]},
    "fid": {"features": {"name": "colours", "bins": 2}},  # 8 dimensions, fewer than the context's training images
    "cluster_entropy": {"clusters": 5},
}
EASY = {"precision", "recall", "density", "coverage", "kid", "nearest_distance", "memorised_share"}


@pytest.mark.parametrize("name", PROPERTIES)
def test_follows_the_protocol(name, tmp_path):
    options = NEEDED.get(name, {})
    prop = build(name, options, PROPERTIES, where=name, beside=tmp_path)
    if needs_features(prop) and "features" not in options:
        fake = {"name": FAKE, "width": 768 if name == "aesthetic" else 16}
        prop = dataclasses.replace(prop, features="layout" if name in EASY else fake)
    context = random_context(SIDE)
    if name == "clip_similarity":
        prompts = tuple(f"picture {index % 7}" for index in range(len(context.generated)))
        check_property(prop, context=dataclasses.replace(context, prompts=prompts))
        prop = dataclasses.replace(prop, prompt="a picture")
    check_property(prop, context=context)


def test_all_tell_how_sure_they_are():
    lacking = {name for name, reference in PROPERTIES.items() if not hasattr(_class(reference), "standard_error")}
    assert lacking == {"heldout_loss"}  # it measures no generated images


def _class(reference):
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
