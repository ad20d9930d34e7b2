"""Our properties pass, and each fault is caught."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from diffcredit.errors import UserError
from diffcredit.properties.cluster_entropy import ClusterEntropy
from diffcredit.properties.colourfulness import Colourfulness
from diffcredit.properties.heldout_loss import HeldoutLoss
from diffcredit.testing import ConformanceError, check_property
from diffcredit.testing.properties import random_context


@pytest.mark.parametrize(
    "prop",
    [Colourfulness(), Colourfulness(percentile=90), ClusterEntropy(), ClusterEntropy(clusters=3), HeldoutLoss()],
    ids=repr,
)
def test_our_properties_conform(prop):
    check_property(prop)
    check_property(prop, context=random_context(resolution=8))
    assert not set(vars(prop)) & {"centres", "images"}, "the check must leave the property as it was"


class Sound:
    """A property that conforms, for faults to be built on."""

    name = "mean"

    def measure(self, images):
        return float(images.mean())


def test_the_sound_property_conforms():
    check_property(Sound())


class Nameless(Sound):
    name = " "


class NumberedName(Sound):
    name = 3


class ReadOnlyName(Sound):
    @property
    def name(self):
        return "fixed"


@dataclass(frozen=True)
class Frozen(Sound):
    """Conforms: a study file can name it all the same."""


def test_a_frozen_property_conforms():
    check_property(Frozen())


class Refusing(Sound):
    def check(self, contributions, images):
        if images < 10_000:
            raise UserError("sampling.images: at least 10000 are accepted")


class Unmeasured:
    name = "unmeasured"


class TwoWays(Sound):
    def measure_model(self, model):
        return 0.0


class MeasureIsANumber:
    name = "number"
    measure = 3.0


class Undirected(Sound):
    higher_is_better = "yes"


class UnitOfNone(Sound):
    unit = None


@dataclass
class PathField(Sound):
    where: Path = Path("weights")


class NotANumber(Sound):
    def measure(self, images):
        return float(np.log(images.mean() - images.mean()))


class NanWhenBlack(Sound):
    def measure(self, images):
        return float(images.var() / images.mean()) if images.any() else float("nan")


class OneImageTooFew(Sound):
    def measure(self, images):
        return float(np.corrcoef(images.reshape(len(images), -1))[0, 1])


class AnArray(Sound):
    def measure(self, images):
        return images.mean(axis=(1, 2, 3))


class Text(Sound):
    def measure(self, images):
        return "high"


class Random(Sound):
    def measure(self, images):
        return float(images.mean() + np.random.default_rng().random())


class Accumulating(Sound):
    seen = 0

    def measure(self, images):
        self.seen += len(images)
        return float(images.sum() / self.seen)


class Retouching(Sound):
    def measure(self, images):
        images[0, 0, 0, 0] ^= 1  # every second time it is as it was
        return 1.0


class Raising(Sound):
    def measure(self, images):
        raise KeyError("weights")


class FitsOnly(Sound):
    def fit(self, context):
        return {}


class Fitted(Sound):
    """Measures the distance to the generated images' mean, and conforms."""

    def fit(self, context):
        return {"mean": np.array(context.generated.mean())}

    def restore(self, state):
        self.mean = float(state["mean"])

    def measure(self, images):
        return float(images.mean()) - self.mean


def test_a_fitted_property_conforms():
    check_property(Fitted())


class KeepsToItself(Fitted):
    """What it learns stays in the one that was fitted; a worker never sees it."""

    def fit(self, context):
        self.scale = float(context.generated.std())
        return super().fit(context)

    def measure(self, images):
        return super().measure(images) / self.scale


class FitsBetterThanItRestores(Fitted):
    scale = 1.0

    def fit(self, context):
        self.scale = 2.0
        return super().fit(context)

    def measure(self, images):
        return super().measure(images) * self.scale


class StateOfTexts(Fitted):
    def fit(self, context):
        return {"mean": np.array(["0.5"], dtype=object)}


class StateIsAnArray(Fitted):
    def fit(self, context):
        return np.zeros(3)


class StateNumbered(Fitted):
    def fit(self, context):
        return {0: np.zeros(3)}


class BrokenRestore(Fitted):
    def restore(self, state):
        self.mean = float(state["median"])


class FitSpoilsContext(Fitted):
    def fit(self, context):
        context.generated[0] = 0
        return super().fit(context)


class WithError(Sound):
    """Tells its standard error, and conforms; of one image it cannot."""

    def standard_error(self, images):
        means = images.mean(axis=(1, 2, 3))
        return float(means.std(ddof=1) / len(means) ** 0.5) if len(means) > 1 else float("nan")


def test_a_property_with_a_standard_error_conforms():
    check_property(WithError())


class ErrorIsANumber(Sound):
    standard_error = 0.1


class ErrorNotFinite(WithError):
    def standard_error(self, images):
        return super().standard_error(images) / images.any()


class ErrorNegative(WithError):
    def standard_error(self, images):
        return 10.0 - images.mean()


class ErrorRandom(WithError):
    def standard_error(self, images):
        return float(np.random.default_rng().random())


class ErrorOfTheFitted(WithError):
    scale = 1.0

    def fit(self, context):
        self.scale = 2.0
        return {}

    def restore(self, state):
        pass

    def standard_error(self, images):
        return super().standard_error(images) + self.scale


class ErrorRetouching(WithError):
    def standard_error(self, images):
        images[0, 0, 0, 0] ^= 1
        return 1.0


class ErrorAnArray(WithError):
    def standard_error(self, images):
        return images.std(axis=(1, 2, 3))


class OfModel:
    """Measures the model, and conforms."""

    name = "first weight"

    def measure_model(self, model):
        return float(next(model.network.parameters()).detach().double().sum())


def test_a_property_of_the_model_conforms():
    check_property(OfModel())


class TrainsTheModel(OfModel):
    def measure_model(self, model):
        parameter = next(model.network.parameters())
        parameter.data.ravel()[0] = 0.0
        return 1.0


class ErrorOfModelNegative(OfModel):
    """How images vary tells something of a model's property too; it is measured on images all the same."""

    def standard_error(self, images):
        return -1.0


class InfiniteOfModel(OfModel):
    def measure_model(self, model):
        return float("inf")


@pytest.mark.parametrize(
    ("prop", "sentence"),
    [
        (Nameless(), "`name` is ' '"),
        (NumberedName(), "`name` is 3"),
        (ReadOnlyName(), "setting `name`.* raises AttributeError"),
        (Refusing(), r"check\(contributions, 64\) raises UserError: sampling.images"),
        (Unmeasured(), "'unmeasured' has no method to measure with"),
        (MeasureIsANumber(), "'number' has no method to measure with"),
        (TwoWays(), "has measure and measure_model; one of"),
        (Undirected(), "higher_is_better is 'yes'"),
        (UnitOfNone(), "unit is None; a text"),
        (PathField(), "as JSON.* raises TypeError"),
        (NotANumber(), r"returned -inf; a finite number is expected \(all generated images\)"),
        (NanWhenBlack(), r"returned nan; a finite number is expected \(black images\)"),
        (OneImageTooFew(), "measuring 1 generated image raises IndexError"),
        (AnArray(), "returned ndarray"),
        (Text(), "returned str 'high'"),
        (Random(), "measured again; it must follow from the input"),
        (Accumulating(), "measured again; it must follow from the input"),
        (Retouching(), "changes the images it measures"),
        (Raising(), "measuring all generated images raises KeyError"),
        (FitsOnly(), r"one of fit\(context\) and restore\(state\)"),
        (KeepsToItself(), "measuring all generated images raises AttributeError.*'scale'"),
        (FitsBetterThanItRestores(), "by the one that was fitted"),
        (StateOfTexts(), r"saving what fit\(context\) returned raises"),
        (StateIsAnArray(), r"fit\(context\) returns ndarray; a mapping"),
        (StateNumbered(), r"fit\(context\) returns dict; a mapping from names"),
        (BrokenRestore(), r"restore\(state\) raises KeyError: 'median'"),
        (FitSpoilsContext(), r"fit\(context\) changes the images"),
        (TrainsTheModel(), "changes the model it measures"),
        (ErrorIsANumber(), "measuring a standard error of all generated images raises TypeError"),
        (ErrorNotFinite(), r"returned a standard error: nan; a finite number is expected \(black images\)"),
        (ErrorNegative(), "a standard error, is -1.*; it is never negative"),
        (ErrorRandom(), "a standard error, is .* measured again; it must follow from the input"),
        (ErrorOfTheFitted(), "a standard error, is .* by the one that was fitted"),
        (ErrorRetouching(), r"standard_error\(images\) changes the images"),
        (ErrorAnArray(), "returned a standard error: ndarray"),
        (ErrorOfModelNegative(), "a standard error, is -1.0; it is never negative"),
        (InfiniteOfModel(), "returned inf; a finite number is expected"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the broken arithmetic
def test_faults_are_caught(prop, sentence):
    with pytest.raises(ConformanceError, match=sentence):
        check_property(prop)
