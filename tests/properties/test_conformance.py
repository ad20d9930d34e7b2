"""Every property of the registry follows the contract that users' own must follow."""

import dataclasses
from importlib import import_module

import pytest

from diffcredit.properties import PROPERTIES, Property
from diffcredit.properties.base import needs_features
from diffcredit.testing import check_property
from diffcredit.testing.conformance import random_context
from diffcredit.util.plugins import build

from .fake_features import FAKE, SIDE

NEEDED = {
    "class_share": {"classes": [0, "red fox"]},
    "fid": {"features": {"name": "colours", "bins": 2}},  # 8 dimensions, fewer than the context's training images
    "cluster_entropy": {"clusters": 5},
    "heldout_loss": {"time_steps": 2},
}
EASY = {"precision", "recall", "density", "coverage", "kid", "nearest_distance", "memorised_share"}


@pytest.mark.parametrize("name", PROPERTIES)
def test_follows_the_contract(name, tmp_path):
    options = NEEDED.get(name, {})
    prop = build(name, options, PROPERTIES, where=name, beside=tmp_path)
    assert isinstance(prop, Property)
    assert prop.name == name
    assert all((prop.title, prop.unit, prop.explanation, prop.bias))
    if needs_features(prop) and "features" not in options:
        fake = {"name": FAKE, "width": 768 if name == "aesthetic" else 16}
        prop = dataclasses.replace(prop, features="layout" if name in EASY else fake)
    context = random_context(SIDE)
    if name == "clip_similarity":
        prompts = tuple(f"picture {index % 7}" for index in range(len(context.generated)))
        check_property(prop, context=dataclasses.replace(context, prompts=prompts))
        prop = dataclasses.replace(prop, prompt="a picture")
    check_property(prop, context=context)
    assert set(vars(prop)) == {field.name for field in dataclasses.fields(prop)}, "the check leaves it as it was"


def test_all_estimate_their_standard_errors():
    without = {name for name, place in PROPERTIES.items() if _class(place).standard_error is Property.standard_error}
    assert without == {"heldout_loss"}  # it measures no generated images


def _class(reference):
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
