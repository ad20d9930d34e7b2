from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated

import numpy as np
import pytest
from annotated_types import Ge

from diffcredit.errors import UserError
from diffcredit.properties import Property, as_property, named_property
from diffcredit.properties.adapting import property_of
from diffcredit.properties.base import (
    has_standard_error,
    has_value_of_each,
    needs_features,
    needs_fitting,
    needs_model,
)
from diffcredit.testing import ConformanceError, check_property
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


def test_options_come_after_the_images_and_are_checked(beside):
    assert built("users_functions:dark_share", {"below": 5}, beside).measure(IMAGES) == 0.0
    with pytest.raises(UserError, match=r"properties\.0\.below: 0 is not accepted; .*greater than or equal to 1"):
        built("users_functions:dark_share", {"below": 0}, beside)
    with pytest.raises(UserError, match=r"properties\.0\.above: unknown; users_functions:dark_share accepts below"):
        built("users_functions:dark_share", {"above": 0}, beside)


def test_its_file_is_part_of_what_it_is(beside):
    prop = built("users_functions:dark_share", {"below": 5}, beside)
    settings = settings_of(prop, {"below": 5})
    assert settings["below"] == 5
    assert len(settings["code"]) == 64


def test_a_function_of_nothing_is_refused(beside):
    with pytest.raises(UserError, match=r"properties\.0: 'users_functions:nothing': it takes no images"):
        built("users_functions:nothing", {}, beside)


def brightness(images, scale: Annotated[float, Ge(0)] = 1.0):
    return scale * float(images.mean())


def forgetful(images):
    images.mean()


def test_conformance_takes_functions():
    check_property(brightness)
    with pytest.raises(
        ConformanceError, match=r"returned NoneType None; a float is expected \(is a return missing\?\)"
    ):
        check_property(forgetful)


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


def test_a_study_files_label_is_the_name_of_the_object_itself():
    users = Users()
    assert named_property(users, "users:Users", "warm").name == users.name == "warm"
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
