import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from diffcredit.features.extractors import Extractors
from diffcredit.properties.measuring import Observation, measure_all

IMAGES = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)


def measure(properties, images, model):
    return measure_all(properties, Observation(Extractors(), images, model))


@dataclass
class Returns:
    value: Any
    name: str = "returns"

    def measure(self, images):
        images[:] = 0  # a copy, so that other properties are not concerned
        return self.value


class Raises:
    name = "raises"

    def measure(self, images):
        raise ZeroDivisionError("the user's own mistake")


class OfTheModel:
    name = "of_the_model"

    def measure_model(self, model):
        return model + 1


class Mean:
    name = "mean"

    def measure(self, images):
        return float(images.mean())


@pytest.mark.parametrize("value", [0.5, 3, np.float32(0.25), np.float64(1e300), np.int64(7), Fraction(1, 4)], ids=repr)
def test_numbers_are_kept(value):
    (measurement,) = measure([Returns(value)], IMAGES, None)
    assert (measurement.property, measurement.value, measurement.error) == ("returns", float(value), None)
    assert type(measurement.value) is float


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "returned nan; a finite number"),
        (np.float32("-inf"), "finite number"),
        (torch.tensor(0.5), r"returned Tensor tensor\(0.5"),
        (np.array(0.5), "returned ndarray"),
        (True, "returned bool True"),
        ("0.5", "returned str '0.5'"),
        (None, "returned NoneType None"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_no_number_is_an_error_that_says_what_came(value, message):
    bad, good = measure([Returns(value), Mean()], IMAGES, None)
    assert bad.value is None
    assert bad.property == "returns"
    assert re.search(message, bad.error)
    assert "property 'returns'" in bad.error
    assert good.value == IMAGES.mean()


def test_one_that_raises_leaves_the_others():
    results = measure([Mean(), Raises(), OfTheModel()], IMAGES, 41)
    assert [result.property for result in results] == ["mean", "raises", "of_the_model"]
    assert [result.value for result in results] == [IMAGES.mean(), None, 42]
    assert "ZeroDivisionError: the user's own mistake" in results[1].error
    assert "in measure" in results[1].error


@dataclass
class WithError:
    error: Any
    name: str = "with_error"

    def measure(self, images):
        return 1.0

    def standard_error(self, images):
        images[:] = 0
        if isinstance(self.error, Exception):
            raise self.error
        return self.error


def test_standard_errors_are_kept_where_there_are_any():
    before = IMAGES.copy()
    told, zero, mute, of_the_model = measure(
        [WithError(np.float32(0.25)), WithError(0), Mean(), OfTheModel()], IMAGES, 1
    )
    assert (told.value, told.standard_error, told.error) == (1.0, 0.25, None)
    assert type(told.standard_error) is float
    assert zero.standard_error == 0
    assert mute.standard_error is None
    assert of_the_model.standard_error is None
    (alone,) = measure([WithError(0.5)], IMAGES[:1], None)  # one image says nothing about others
    assert (alone.value, alone.standard_error) == (1.0, None)
    np.testing.assert_array_equal(IMAGES, before)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (-0.1, "property 'with_error' returned a standard error of -0.1; it is never negative"),
        (math.nan, "property 'with_error' returned a standard error: nan; a finite number"),
        (None, "property 'with_error' returned a standard error: NoneType None"),
        (ValueError("no spread"), "ValueError: no spread"),
    ],
)
def test_a_standard_error_that_fails_fails_the_measurement(error, message):
    bad, good = measure([WithError(error), Mean()], IMAGES, None)
    assert (bad.value, bad.standard_error) == (None, None)
    assert message in bad.error
    assert good.value == IMAGES.mean()


class Interrupted(Mean):
    def measure(self, images):
        raise KeyboardInterrupt


def test_an_interruption_is_no_failed_measurement():
    with pytest.raises(KeyboardInterrupt):
        measure([Interrupted()], IMAGES, None)
