"""Which baselines a study can have, and how long they take, before anything is trained."""

import dataclasses
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from diffcredit.baselines.base import Crediting, Evidence, Scoring
from diffcredit.baselines.derivatives import mean_gradient
from diffcredit.baselines.gradients.per_image import trained_parameters
from diffcredit.baselines.registry import BASELINES
from diffcredit.diffusion.model import Batch, DiffusionModel
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.execution.threads import limited_threads
from diffcredit.execution.timing.calibration import blank_batch
from diffcredit.properties import Property
from diffcredit.study.checks import check
from diffcredit.study.prepared import build_properties
from diffcredit.util.plugins import build

if TYPE_CHECKING:
    from diffcredit.study.study import Study

FEW = 8  # images whose way through the network is timed

Built = tuple[str, dict[str, Any], Scoring | Crediting]
"""A method's name, its options and the object."""


def build_baselines(study: "Study", wanted: Sequence[Mapping[str, Any]]) -> list[Built]:
    """Return the name, the options and the object of each method wanted, given its name and options; by default all."""
    built = []
    for section in wanted or [{"name": name} for name in BASELINES]:
        options = {key: value for key, value in section.items() if key != "name"}
        baseline = build(section["name"], options, BASELINES, where="--method", beside=study.file.parent)
        if not isinstance(baseline, Scoring | Crediting):
            raise UserError(f"--method: {section['name']!r} has neither scores(evidence) nor credits(evidence)")
        built.append((section["name"], options, baseline))
    return built


def possible_baselines(study: "Study", wanted: Sequence[Mapping[str, Any]] = ()) -> list[Built]:
    """Return the methods wanted that the study can have; nothing is trained or computed for that. Others are an error
    where they are wanted by name; where all are wanted (none is named), they are left out with a warning."""
    built = build_baselines(study, wanted)
    study.progress("checking the baselines", 0, len(built))
    check(study)  # a mistake in the study itself is no method's
    properties, promised = build_properties(study.config, study.file), promised_evidence(study)
    possible, refused = [], {}
    for done, (name, options, baseline) in enumerate(built, start=1):
        try:
            _check(baseline, properties, promised)
            possible.append((name, options, baseline))
        except UserError as error:
            refused[name] = error
        study.progress("checking the baselines", done, len(built))
    if refused and wanted:
        reasons = "; ".join(f"{name}: {_reason(name, error)}" for name, error in refused.items())
        others = "; nothing was computed" if len(built) > 1 else ""
        raise UserError(f"{study.file}: {reasons}{others}")
    for name, error in refused.items():
        warn_left_out(name, error)
    return possible


def _check(baseline: Any, properties: Sequence[Property], promised: Evidence) -> None:
    """Refuse a method that suits no property, or the one that the method looks at."""
    refused = []
    seen = properties if getattr(baseline, "of_property", False) else [None]
    for prop in seen:
        try:
            if hasattr(baseline, "check"):  # a class of a user's own may have none
                baseline.check(dataclasses.replace(promised, prop=prop))
        except UserError as error:
            refused.append(error)
    if len(refused) == len(seen):
        raise refused[0]


def warn_left_out(name: str, why: UserError) -> None:
    warnings.warn(f"{name}: left out: {_reason(name, why)}", DiffcreditWarning, stacklevel=3)


def _reason(name: str, why: UserError) -> str:
    return str(why).removeprefix(f"{name}: ")


def expected_seconds(study: "Study", possible: Sequence[Built]) -> float:
    """Estimate how long the methods take once there is a base model, each step that several share counted once."""
    promised, seconds = promised_evidence(study), dict[str, float]()
    study.progress("timing the baselines", 0, 1)
    with limited_threads(study.config.threads):
        a_pass = _seconds_of_a_pass(promised.model("baselines"))
        for _, _, baseline in possible:
            if hasattr(baseline, "seconds"):  # a class of a user's own may not say
                seconds |= baseline.seconds(promised, a_pass)
    study.progress("timing the baselines", 1, 1)
    return sum(seconds.values())


def _seconds_of_a_pass(model: DiffusionModel) -> float:
    """Time one image on its way through the network forward and back, in a batch."""
    batch, names = blank_batch(model, FEW), list(trained_parameters(model))

    def at(places: range) -> tuple[Batch, torch.Tensor, torch.Tensor]:
        part = batch.part(places)
        return part, torch.zeros(len(places), dtype=torch.long, device=part.x.device), torch.zeros_like(part.x)

    start = 0.0
    for _ in range(2):  # the first time warms up
        start = time.perf_counter()
        mean_gradient(model, at, FEW, names)
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
    return (time.perf_counter() - start) / FEW


def promised_evidence(study: "Study", prop: Any = None) -> Evidence:
    """Return what the study will have for its baselines, before anything is trained: black images in place of the base
    model's, and that model before its training."""
    prepared, came_trained = study.prepared, study.prepared.family.trained
    start = lru_cache(maxsize=1)(prepared.start)
    return Evidence(
        contributions=study.contributions,
        generated=np.broadcast_to(np.uint8(0), (study.config.sampling.images, *study.contributions.images.shape[1:])),
        prop=prop,
        seed=study.config.seed,
        extractors=prepared.extractors,
        load_model=start,
        start=None if came_trained else lambda: (start(), 0),
        replicate=None if came_trained else lambda number: start(),
        sampling=study.config.sampling,
        training=study.config.model.train,
        progress=study.progress,
    )
