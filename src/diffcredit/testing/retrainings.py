"""A conformance test for retrainings of your own::

def test_my_retraining():
    check_retraining(MyRetraining(steps=3))
"""

import copy
import dataclasses
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.testing.designs import attempt, require
from diffcredit.util.artifacts import canonical_json, fingerprint_arrays
from diffcredit.util.progress import silent

if TYPE_CHECKING:
    from diffcredit.diffusion.model import DiffusionModel
    from diffcredit.retraining.base import Retraining, RetrainingContext

Weights = NDArray[np.float32]

COALITIONS = {"the first alone": (1, 0, 0), "two": (1, 0, 1), "nobody": (0, 0, 0), "everybody": (1, 1, 1)}
SEEDS = dict(zip(COALITIONS, (11, 12, 13, 14), strict=True))
OTHER_ORDER = ("everybody", "nobody", "the first alone")


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
        before = _identity(context)
        # two of them, as in two workers: the second finds what the first cached in the folder
        one, two = (_prepared(retraining, context) for _ in range(2))
        require(
            one.weights == two.weights,
            f"`weights` is {one.weights!r} at first and {two.weights!r} when prepared again from the same folder",
        )
        require(_identity(context) == before, "prepare changes the base model or the contributions' images")
        models = _models(one, SEEDS, COALITIONS, sample=True)
        require(_identity(context) == before, "models_for changes the base model or the contributions' images")
        _check_models(models, two)


def _context(folder: Path) -> "RetrainingContext":
    from diffcredit.diffusion.ddpm import DDPM
    from diffcredit.diffusion.settings import Training
    from diffcredit.diffusion.training import train
    from diffcredit.retraining.base import RetrainingContext
    from diffcredit.testing.properties import random_context

    contributions = random_context().contributions
    base, training = DDPM.create("tiny", 16, seed=1), Training(steps=2, batch_size=4, learning_rate=1e-3)
    train(base, base.encode(contributions.images), training, seed=2)
    return RetrainingContext(base, contributions, training, seed=3, folder=folder, load=DDPM.load, progress=silent)


def _identity(context: "RetrainingContext") -> tuple[str, str]:
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


def _models(
    prepared: Any, seeds: Mapping[str, int], labels: Iterable[str], *, sample: bool = False
) -> dict[str, Weights]:
    """Return the weights of the models of some of :data:`COALITIONS`, requested in the order of ``labels``."""
    order, weights = list(labels), {}
    rows = np.array([COALITIONS[label] for label in order], dtype=np.bool_)
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
    for label, again in _models(other, SEEDS, COALITIONS).items():
        require(
            np.array_equal(models[label], again),
            f"the model of {label} differs from worker to worker; it must follow from context, coalition and seed",
        )
    moved = _models(other, SEEDS, OTHER_ORDER)
    reseeded = _models(other, dict.fromkeys(COALITIONS, 111), OTHER_ORDER)
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


def _distance(a: Weights, b: Weights) -> float:
    return float(np.linalg.norm(a - b)) if a.shape == b.shape else float("inf")
