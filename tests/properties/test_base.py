from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated

import numpy as np
import pytest
from annotated_types import Ge

from diffcredit.errors import UserError
from diffcredit.properties import Property, as_property, named_property
from diffcredit.properties.base import (
    has_standard_error,
    has_value_of_each,
    needs_features,
    needs_fitting,
    needs_model,
    property_of,
)
from diffcredit.util.plugins import build, settings_of

IMAGES = np.full((2, 4, 4, 3), 7, dtype=np.uint8)
MODULE = '''
from typing import Annotated
from annotated_types import Ge

def dark_share(images, below: Annotated[int, Ge(1)] = 10):
    """How much of the images is dark.

    More words.
    """
    return float((images < below).mean())

dark_share.higher_is_better = False

def nothing():
    return 1.0
'''


@pytest.fixture
def beside(tmp_path):
    (tmp_path / "users_functions.py").write_text(MODULE)
    return tmp_path


def built(reference, options, beside):
    return build(reference, options, {}, where="properties.0", beside=beside, of_function=property_of)


def test_a_function_is_a_property_with_its_own_words(beside):
    prop = built("users_functions:dark_share", {}, beside)
    assert (prop.name, prop.title) == ("dark_share", "Dark share")
    assert prop.explanation == "How much of the images is dark."
    assert prop.higher_is_better is False
    assert prop.measure(IMAGES) == 1.0
    with_option = built("users_functions:dark_share", {"below": 5}, beside)
    assert with_option.measure(IMAGES) == 0.0
    settings = settings_of(with_option, {"below": 5})
    assert settings.keys() == {"below", "code"}  # its file is part of what it is


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dark_share", {"below": 0}, r"\.below: 0 is not accepted; .*greater than or equal to 1"),
        ("dark_share", {"above": 0}, r"\.above: unknown; users_functions:dark_share accepts below"),
        ("nothing", {}, ": 'users_functions:nothing': it takes no images"),
    ],
)
def test_options_of_a_function_are_checked(beside, name, options, message):
    with pytest.raises(UserError, match=rf"properties\.0{message}"):
        built(f"users_functions:{name}", options, beside)


def brightness(images, scale: Annotated[float, Ge(0)] = 1.0):
    return scale * float(images.mean())


@dataclass(frozen=True)
class Users:
    """A user's own class, with a title that changes as it is fitted."""

    scale: float = 2.0

    def fit(self, context):
        return {}

    def restore(self, state):
        object.__setattr__(self, "title", "Fitted")

    def measure(self, images):
        return self.scale * float(images.mean())


def test_a_users_object_gets_the_defaults_and_keeps_its_identity():
    users = Users()
    prop = named_property(users, "users:Users")
    assert isinstance(prop, Property)
    assert as_property(prop) is prop
    assert (prop.name, prop.title, prop.unit, prop.higher_is_better, prop.least(9)) == ("Users", "", "", True, 1)
    assert prop.measure(IMAGES) == 14.0
    prop.check(None, 3)
    prop.restore(prop.fit(None))
    assert prop.title == "Fitted"
    assert needs_fitting(prop)
    assert not any(has(prop) for has in (needs_model, needs_features, has_standard_error, has_value_of_each))
    assert settings_of(prop, {}) == settings_of(users, {})
    assert settings_of(prop, {}).keys() == {"scale", "code"}
    assert named_property(users, "users:Users", "warm").name == users.name == "warm"  # a study file's `as`
    assert named_property(users, "users:Users").name == "warm"


class Inheriting(Property):
    name = "inheriting"

    def measure_model(self, model):
        return 0.0


def test_subclasses_and_functions_are_properties():
    prop = Inheriting()
    assert as_property(prop) is prop
    assert needs_model(prop)
    assert not needs_fitting(prop)
    brightness.of_each = lambda images: images.mean(axis=(1, 2, 3))
    assert has_value_of_each(as_property(brightness))
    assert not has_standard_error(as_property(brightness))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({}, r"'x' has none of measure\(images\), measure_features\(features\), measure_model\(model\)"),
        ({"measure_features": len}, "'x' has measure_features but no features"),
        ({"measure": len, "fit": len}, r"'x' has fit\(context\) but no restore\(state\)"),
    ],
)
def test_an_object_without_what_a_property_needs_is_refused(members, message):
    with pytest.raises(UserError, match=message):
        named_property(SimpleNamespace(**members), "x")
