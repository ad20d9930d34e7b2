"""Sound properties pass the conformance check, and each fault is caught. Ours are in tests/properties."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from diffcredit.errors import UserError
from diffcredit.properties import Property
from diffcredit.testing import ConformanceError, check_property


class Sound:
    """A property that conforms, for faults to be built on."""

    name = "mean"

    def measure(self, images):
        return float(images.mean())


class Inheriting(Sound, Property):
    pass


@dataclass(frozen=True)
class Frozen(Sound):
    """A study file can name it all the same."""


class Fitted(Sound):
    """Measures the distance to the generated images' mean."""

    scale = 1.0

    def fit(self, context):
        return {"mean": np.array(context.generated.mean())}

    def restore(self, state):
        self.mean = float(state["mean"])

    def measure(self, images):
        return (float(images.mean()) - self.mean) * self.scale


class WithError(Sound):
    """Has a standard error, but not for one image."""

    def standard_error(self, images):
        means = images.mean(axis=(1, 2, 3))
        return float(means.std(ddof=1) / len(means) ** 0.5) if len(means) > 1 else float("nan")


class OfModel:
    name = "first weight"

    def measure_model(self, model):
        return float(next(model.network.parameters()).detach().double().sum())


@pytest.mark.parametrize("kind", [Sound, Inheriting, Frozen, Fitted, WithError, OfModel])
def test_sound_properties_conform_and_stay_as_they_were(kind):
    prop = kind()
    check_property(prop)
    assert not vars(prop)


@dataclass
class PathField(Sound):
    where: Path = Path("weights")


class ReadOnlyName(Sound):
    @property
    def name(self):
        return "fixed"


class Refusing(Sound):
    def check(self, contributions, images):
        if images < 10_000:
            raise UserError("sampling.images: at least 10000 are accepted")


class Retouching(Sound):
    def measure(self, images):
        images[0, 0, 0, 0] ^= 1  # every second time it is as it was
        return 1.0


class FitsBetterThanItRestores(Fitted):
    def fit(self, context):
        self.scale = 2.0
        return super().fit(context)


class FitSpoilsContext(Fitted):
    def fit(self, context):
        context.generated[0] = 0
        return super().fit(context)


class TrainsTheModel(OfModel):
    def measure_model(self, model):
        next(model.network.parameters()).data.ravel()[0] = 0.0
        return 1.0


def like(base, **members):
    """An object like one of ``base`` but for some members."""
    return type("Faulty", (base,), members)()


def measuring(function):
    return like(Sound, measure=lambda self, images: function(images))


def erring(function):
    return like(WithError, standard_error=lambda self, images: function(images))


def fitting(state):
    return like(Fitted, fit=lambda self, context: state)


@pytest.mark.parametrize(
    ("prop", "sentence"),
    [
        (like(Sound, name=" "), "`name` is ' '"),
        (ReadOnlyName(), "setting `name`.* raises AttributeError"),
        (Refusing(), r"check\(contributions, 64\) raises UserError: sampling.images"),
        (like(object, name="unmeasured"), "'unmeasured' has no method to measure with"),
        (like(Sound, measure_model=lambda self, model: 0.0), "has measure and measure_model; one of"),
        (like(Sound, higher_is_better="yes"), "higher_is_better is 'yes'"),
        (like(Sound, differences=("duller", "{} brighter")), "differences is .'duller', '{} brighter'.; two sentences"),
        (like(Sound, range=(1.0, 0.0)), r"range is \(1.0, 0.0\); a pair"),
        (like(Sound, unit=None), "unit is None; a text"),
        (PathField(), "as JSON.* raises TypeError"),
        (
            measuring(lambda images: float(images.var() / images.mean()) if images.any() else float("nan")),
            r"returned nan; a finite number is expected \(black images\)",
        ),
        (
            measuring(lambda images: float(np.corrcoef(images.reshape(len(images), -1))[0, 1])),
            "measuring 1 generated image raises IndexError",
        ),
        (measuring(lambda images: images.mean(axis=(1, 2, 3))), "returned ndarray"),
        (measuring(lambda images: float(np.random.default_rng().random())), "measured again; it must follow from"),
        (Retouching(), "changes the images it measures"),
        (measuring(lambda images: {}["weights"]), "measuring all generated images raises KeyError"),
        (like(Sound, fit=lambda self, context: {}), r"one of fit\(context\) and restore\(state\)"),
        (FitsBetterThanItRestores(), "by the one that was fitted"),
        (fitting({"mean": np.array(["0.5"], dtype=object)}), r"saving what fit\(context\) returned raises"),
        (fitting(np.zeros(3)), r"fit\(context\) returns ndarray; a mapping"),
        (fitting({"median": np.zeros(1)}), r"restore\(state\) raises KeyError: 'mean'"),
        (FitSpoilsContext(), r"fit\(context\) changes the images"),
        (TrainsTheModel(), "changes the model it measures"),
        (like(OfModel, measure_model=lambda self, model: float("inf")), "returned inf; a finite number is expected"),
        (like(Sound, standard_error=0.1), "measuring a standard error of all generated images raises TypeError"),
        (
            erring(lambda images: float(np.float64(0.0) / images.any())),
            r"returned a standard error: nan; a finite number is expected \(black images\)",
        ),
        (erring(lambda images: 10.0 - images.mean()), "a standard error, is -1.*; it is never negative"),
        (
            erring(lambda images: float(np.random.default_rng().random())),
            "a standard error, is .* measured again; it must follow from the input",
        ),
        # how images vary matters to a model's property too; it is measured on images all the same
        (like(OfModel, standard_error=lambda self, images: -1.0), "a standard error, is -1.0; it is never negative"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the broken arithmetic
def test_faults_are_caught(prop, sentence):
    with pytest.raises(ConformanceError, match=sentence):
        check_property(prop)
