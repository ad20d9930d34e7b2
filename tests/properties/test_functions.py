from typing import Annotated

import numpy as np
import pytest
from annotated_types import Ge

from diffcredit.errors import UserError
from diffcredit.properties.adapting import property_of
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
