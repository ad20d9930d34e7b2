"""Conformance checks for properties and retrainings, to be run by the author of one::

def test_warmth():
    check_property(Warmth())
"""

import copy
import dataclasses
import inspect
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import HOUSE, Contributions
from diffcredit.errors import DiffcreditError
from diffcredit.features import Features
from diffcredit.properties import Context, Images, Property, as_property
from diffcredit.properties.base import has_standard_error, needs_features, needs_fitting, needs_model, property_of
from diffcredit.properties.measuring import checked, copied
from diffcredit.testing.designs import ConformanceError, attempt, require
from diffcredit.util.artifacts import canonical_json, fingerprint_arrays, read_arrays, write_arrays
from diffcredit.util.plugins import overridden, settings_of
from diffcredit.util.progress import silent

if TYPE_CHECKING:
    from diffcredit.diffusion.model import DiffusionModel
    from diffcredit.retraining.base import Retraining, RetrainingContext

Weights = NDArray[np.float32]

COALITIONS = {"the first alone": (1, 0, 0), "two": (1, 0, 1), "nobody": (0, 0, 0), "everybody": (1, 1, 1)}
SEEDS = dict(zip(COALITIONS, (11, 12, 13, 14), strict=True))
OTHER_ORDER = ("everybody", "nobody", "the first alone")


def check_property(prop: Any, *, context: Context | None = None) -> None:
    """Raise a ConformanceError unless ``prop`` follows the contract of :class:`diffcredit.properties.Property`.

    ``prop`` may be a plain function of images. ``context`` is what it is fitted to and measured on; None: random images
    of 16 × 16 pixels. ``prop`` itself is left as it is.
    """
    if inspect.isfunction(prop):
        prop = attempt(f"{prop.__name__}", property_of(prop))
    renamed = copy.deepcopy(prop)
    attempt("setting `name`, as a study file's `as` does,", lambda: object.__setattr__(renamed, "name", "another"))
    prop = as_property(prop)
    context = context or random_context()
    _check_words(prop)
    m = len(context.generated)
    attempt(f"property {prop.name!r}: check(contributions, {m})", lambda: prop.check(context.contributions, m))
    copies = _check_fitting(prop, context)
    sets: dict[str, Any] = _image_sets(context)
    if needs_model(prop):
        _check_values(copies, _models(context), "measure_model")
    elif needs_features(prop):
        sets = _feature_sets(prop, sets, context)
        _check_values(copies, sets, "measure_features")
    else:
        _check_values(copies, sets, "measure")
    if has_standard_error(prop):
        several = {label: observed for label, observed in sets.items() if len(observed) > 1}
        _check_values(copies, several, "standard_error")


def random_context(resolution: int = 16) -> Context:
    """Return 64 generated images, 24 training images of three contributors and 8 held-out ones, all noise."""
    generator = np.random.Generator(np.random.PCG64(0))
    pixels = generator.integers(0, 256, (96, resolution, resolution, 3), dtype=np.uint8)
    contributions = Contributions(
        images=pixels[:24],
        owner=np.repeat(np.arange(3), 8),
        contributors=("a", "b", "c"),
        names=tuple(f"{index:02d}" for index in range(24)),
        heldout=pixels[24:32],
    )
    return Context(pixels[32:], contributions)


def _check_words(prop: Property) -> None:
    name = prop.name
    require(isinstance(name, str) and bool(name.strip()), f"`name` is {name!r}; a text is expected")
    every = {
        "measure": overridden(prop.measure, Property.measure),
        "measure_features": needs_features(prop),
        "measure_model": needs_model(prop),
    }
    methods = [method for method, there in every.items() if there]
    require(
        len(methods) == 1,
        f"property {name!r} has {' and '.join(methods) or 'no method to measure with'}; one of measure(images), "
        "measure_features(features) and measure_model(model) is expected",
    )
    if methods == ["measure_features"]:
        option = getattr(prop, "features", None)
        require(
            isinstance(option, str | dict),
            f"property {name!r}: features is {option!r}; an extractor's name, or a mapping with it, is expected",
        )
    better, bounds = prop.higher_is_better, prop.range
    require(isinstance(better, bool), f"property {name!r}: higher_is_better is {better!r}; True or False is expected")
    require(
        isinstance(bounds, tuple) and len(bounds) == 2 and bounds[0] < bounds[1],
        f"property {name!r}: range is {bounds!r}; a pair of a lower and a higher number is expected",
    )
    for word in ("title", "unit", "explanation", "bias"):
        text = getattr(prop, word)
        require(isinstance(text, str), f"property {name!r}: {word} is {text!r}; a text is expected")
    said = prop.differences
    require(
        isinstance(said, tuple)
        and len(said) == 2
        and all(isinstance(each, str) and "{}" in (each or "{}") for each in said),
        f"property {name!r}: differences is {said!r}; two sentences, of a lower and of a higher value, with {{}} "
        "for the amount, are expected",
    )
    attempt(
        f"property {name!r}: writing its fields as JSON, which fingerprints them,",
        lambda: canonical_json(settings_of(prop, {})),
    )


def _check_fitting(prop: Property, context: Context) -> list[Property]:
    """Return copies of ``prop`` that must measure alike: two restored from a file, as in workers, and one fitted."""
    fits, restores = needs_fitting(prop), overridden(prop.restore, Property.restore)
    require(fits == restores, f"property {prop.name!r} has one of fit(context) and restore(state); both or none")
    copies = [copy.deepcopy(prop) for _ in range(3)]
    if not fits:
        return copies
    what = f"property {prop.name!r}: "
    fitted = copies[2]
    before = _identity(context)
    state = attempt(f"{what}fit(context)", lambda: fitted.fit(context))
    require(_identity(context) == before, f"{what}fit(context) changes the images of its context")
    require(
        isinstance(state, Mapping) and all(isinstance(key, str) for key in state),
        f"{what}fit(context) returns {type(state).__name__}; a mapping from names to arrays is expected",
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.safetensors"
        arrays = {key: np.asarray(array) for key, array in state.items()}
        attempt(f"{what}saving what fit(context) returned", lambda: write_arrays(file, arrays))
        for one in copies:
            attempt(f"{what}restore(state)", lambda one=one: one.restore(read_arrays(file)))
    return copies


def _image_sets(context: Context) -> dict[str, Images]:
    shape = context.generated.shape[1:]
    return {
        "all generated images": context.generated,
        "7 generated images": context.generated[:7],
        "1 generated image": context.generated[:1],
        "the training images": context.contributions.images,
        "black images": np.zeros((5, *shape), dtype=np.uint8),
        "white images": np.full((5, *shape), 255, dtype=np.uint8),
    }


def _feature_sets(prop: Property, sets: Mapping[str, Images], context: Context) -> dict[str, Features]:
    """Extract the features of all sets with as many images as the property needs."""
    what = f"property {prop.name!r}: features {prop.features!r}"
    extractor = attempt(what, lambda: context.extractors.get(prop.features))
    least = prop.least(extractor.dimensions)
    require(
        len(context.generated) >= least,
        f"property {prop.name!r} needs {least} images, and the context has {len(context.generated)}; give "
        "check_property a context with more, or features of fewer dimensions",
    )
    enough = {label: images for label, images in sets.items() if len(images) >= least}
    if prop.ordered:  # image j belongs to seed j, and these alone are of the study's seeds
        enough = {label: images for label, images in enough.items() if images is context.generated}
    return {
        label: attempt(what, lambda images=images: context.extractors.extract(prop.features, images))
        for label, images in enough.items()
    }


def _models(context: Context) -> dict[str, Any]:
    from diffcredit.diffusion.ddpm import DDPM

    resolution = context.generated.shape[1]
    return {f"an untrained model (seed {seed})": DDPM.create("tiny", resolution, seed) for seed in range(2)}


def _check_values(copies: list[Property], inputs: Mapping[str, Any], method: str) -> None:
    """Require finite numbers of every input, a standard error's not negative, the same again and from every copy."""
    called = ", a standard error," if method == "standard_error" else ""
    first = {label: _value(copies[0], method, label, inputs[label]) for label in inputs}
    for label, value in first.items():
        wrong = called and value < 0
        require(not wrong, f"property {copies[0].name!r} of {label}{called} is {value!r}; it is never negative")
    occasions = ("measured again", "in another worker", "by the one that was fitted")
    for one, when in zip(copies, occasions, strict=True):
        for label, value in first.items():
            other = _value(one, method, label, inputs[label])
            require(
                other == value,
                f"property {one.name!r} of {label}{called} is {value!r} at first and {other!r} {when}; it must follow "
                "from the input and what fit(context) returned alone",
            )


def _value(one: Property, method: str, label: str, given: Any) -> float:
    """Measure what is ``given``, which must stay as it is."""
    kind = "images" if isinstance(given, np.ndarray) else "features" if isinstance(given, Features) else "model"
    observed = given if kind == "model" else copied(given)
    before = _identity(observed)
    what = "a standard error" if method == "standard_error" else ""
    doing = f"measuring {what} of {label}" if what else f"measuring {label}"
    value = attempt(f"property {one.name!r}: {doing}", lambda: getattr(one, method)(observed))
    require(
        _identity(observed) == before,
        f"property {one.name!r}: {method}({kind}) changes the {kind} it measures ({label})",
    )
    try:
        return checked(one.name, value, what, None if what else one.range)
    except DiffcreditError as error:
        raise ConformanceError(f"{error} ({label})") from None


def _identity(observed: Any) -> str:
    """Return a hash of images, features, a model or a context's images."""
    if isinstance(observed, np.ndarray):
        return fingerprint_arrays({"images": observed})
    if isinstance(observed, Context):
        kinds = {"generated": observed.generated, "images": observed.contributions.images}
        return fingerprint_arrays(kinds | {"heldout": observed.contributions.heldout})
    return fingerprint_arrays(observed.arrays()) if isinstance(observed, Features) else observed.fingerprint


def check_retraining(retraining: "Retraining") -> None:
    """Raise a ConformanceError unless ``retraining`` does what :class:`diffcredit.retraining.base.Retraining` says.

    It runs on a tiny DDPM of 16 × 16 pixels; give it few steps. ``retraining`` itself is not changed.
    """
    if dataclasses.is_dataclass(retraining) and not isinstance(retraining, type):
        settings = dataclasses.asdict(retraining)
        attempt("writing its fields as JSON, which fingerprints them,", lambda: canonical_json(settings))
    with tempfile.TemporaryDirectory() as folder:
        context = _context(Path(folder))
        _check_rehearsal(retraining, context)
        before = _given(context)
        # two of them, as in two workers: the second finds what the first cached in the folder
        one, two = (_prepared(retraining, context) for _ in range(2))
        require(
            one.weights == two.weights,
            f"`weights` is {one.weights!r} at first and {two.weights!r} when prepared again from the same folder",
        )
        require(_given(context) == before, "prepare changes the base model or the contributions' images")
        models = _weights(one, SEEDS, COALITIONS, sample=True)
        require(_given(context) == before, "models_for changes the base model or the contributions' images")
        _check_models(models, two)
        _check_house(retraining, context, models)


def _context(folder: Path) -> "RetrainingContext":
    from diffcredit.diffusion.ddpm import DDPM
    from diffcredit.diffusion.settings import Training
    from diffcredit.diffusion.training import train
    from diffcredit.retraining.base import RetrainingContext

    contributions = random_context().contributions
    base, training = DDPM.create("tiny", 16, seed=1), Training(steps=2, batch_size=4, learning_rate=1e-3)
    train(base, base.encode(contributions.images), training, seed=2)
    return RetrainingContext(base, contributions, training, seed=3, folder=folder, load=DDPM.load, progress=silent)


def _given(context: "RetrainingContext") -> tuple[str, str]:
    return context.base.fingerprint, fingerprint_arrays({"images": context.contributions.images})


def _check_rehearsal(retraining: Any, context: "RetrainingContext") -> None:
    from diffcredit.diffusion.settings import Training
    from diffcredit.retraining.base import Rehearsal

    what, start = "rehearse(start, training, contributions)", context.base.untrained(0)
    own = copy.deepcopy(retraining)
    rehearsal = attempt(what, lambda: own.rehearse(start, context.training, context.contributions))
    require(isinstance(rehearsal, Rehearsal), f"{what} returns {type(rehearsal).__name__}; a Rehearsal is expected")
    require(
        isinstance(rehearsal.coalition, Training | None) and isinstance(rehearsal.preparation, Training | None),
        f"{what}: `coalition` and `preparation` must be Training settings or None",
    )


def _prepared(retraining: Any, context: "RetrainingContext") -> Any:
    prepared = copy.deepcopy(retraining)
    attempt("prepare(context)", lambda: prepared.prepare(context))
    weights = attempt("`weights`", lambda: prepared.weights)
    require(
        isinstance(weights, str), f"`weights` is {type(weights).__name__}; a text is expected, empty if from nothing"
    )
    return prepared


def _weights(
    prepared: Any, seeds: Mapping[str, int], labels: Iterable[str], *, n: int = 3, sample: bool = False
) -> dict[str, Weights]:
    """Return the weights of the models of some of :data:`COALITIONS`, of the first ``n`` contributors, requested in the
    order of ``labels``."""
    order, weights = list(labels), {}
    rows = np.array([COALITIONS[label][:n] for label in order], dtype=np.bool_)
    own_seeds = [seeds[label] for label in order]
    iterator = attempt("models_for(coalitions, seeds)", lambda: iter(prepared.models_for(rows, own_seeds)))
    for label in order:
        model: Any = attempt(f"models_for: the model of {label}", lambda: next(iterator, None))
        require(model is not None, f"models_for gives {len(weights)} models for {len(order)} coalitions; one each")
        # now, since a retraining may put the next coalition's weights into the same model
        weights[label] = _inspected(model, label, sample)
    require(next(iterator, None) is None, f"models_for gives more than {len(order)} models for {len(order)} coalitions")
    return weights


def _inspected(model: "DiffusionModel", label: str, sample: bool) -> Weights:
    """Return the model's weights, which must be finite; with ``sample``, check its images too."""
    parameters = attempt(f"the model of {label}: `network`", lambda: list(model.network.parameters()))
    weights = np.concatenate([parameter.detach().cpu().numpy().ravel() for parameter in parameters])
    require(bool(np.isfinite(weights).all()), f"the model of {label} has weights that are not finite")
    if sample:
        images = attempt(f"sampling the model of {label}", lambda: model.sample([0, 1], 2))
        require(
            images.shape == (2, 16, 16, 3) and images.dtype == np.uint8,
            f"the model of {label} makes images {images.dtype} {images.shape}; uint8 (m, 16, 16, 3) expected",
        )
    return weights


def _check_models(models: dict[str, Weights], other: Any) -> None:
    for label, again in _weights(other, SEEDS, COALITIONS).items():
        require(
            np.array_equal(models[label], again),
            f"the model of {label} differs from worker to worker; it must follow from context, coalition and seed",
        )
    moved = _weights(other, SEEDS, OTHER_ORDER)
    reseeded = _weights(other, dict.fromkeys(COALITIONS, 111), OTHER_ORDER)
    for label, first in ((label, models[label]) for label in OTHER_ORDER):
        rounding = 0.1 * _distance(first, reseeded[label]) + 1e-6 * float(np.linalg.norm(first))
        require(
            _distance(first, moved[label]) <= rounding,
            f"the model of {label} depends on which coalitions come before it; it must follow from its own seed",
        )
    require(
        np.array_equal(models["nobody"], reseeded["nobody"]),
        "the model of nobody depends on the seed; it is one network a study, such as context.untrained(start) gives",
    )
    require(
        not np.array_equal(reseeded["everybody"], reseeded["the first alone"]),
        "different coalitions get the same model from the same seed; the coalition's images must matter",
    )


def _check_house(retraining: Any, context: "RetrainingContext", without: Mapping[str, Weights]) -> None:
    """Require that models learn house images with every coalition. The third contributor's images are the house's now;
    ``without`` has the models of before."""
    given = context.contributions
    house = dataclasses.replace(given, owner=np.where(given.owner == 2, HOUSE, given.owner), contributors=("a", "b"))
    prepared = _prepared(retraining, dataclasses.replace(context, contributions=house, folder=context.folder / "house"))
    for label, weights in _weights(prepared, SEEDS, ("nobody", "the first alone"), n=2).items():
        require(
            not np.array_equal(weights, without[label]),
            f"the model of {label} is the same with house images and without; house images are in every coalition, as "
            "context.contributions.of(coalition) gives them",
        )


def _distance(a: Weights, b: Weights) -> float:
    return float(np.linalg.norm(a - b)) if a.shape == b.shape else float("inf")
