"""Refusals that several pipelines share. They read configs alone, before any weights are loaded."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from diffcredit.errors import UserError

FEW_STEPS = re.compile(r"turbo|schnell|lightning|\blcm\b|hyper-sd|(?<!de)(?<!de-)distill", re.IGNORECASE)
WHY_FEW_STEPS = "is distilled to a few steps, which no training objective continues"
WHOLE_MODEL = "accepted: the model that it was distilled from"


def part_config(folder: Path, part: str) -> dict[str, Any]:
    """Return the config of a pipeline's ``part``, empty if there is none: whoever loads the part reports that."""
    name = "scheduler_config.json" if part == "scheduler" else "config.json"
    with suppress(OSError, ValueError):
        content = json.loads((folder / part / name).read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else {}
    return {}


def check_channels(folder: Path, component: str, config: Mapping[str, Any], patch: int = 1) -> None:
    """Raise a UserError unless the network takes and gives latents of the autoencoder and nothing else, with ``patch``
    channels for each of theirs."""
    file, expected = folder / component / "config.json", part_config(folder, "vae").get("latent_channels")
    taken = config.get("in_channels")
    if expected is not None and taken is not None and taken != patch * expected:
        raise UserError(
            f"{file}: in_channels {taken}; the autoencoder has {expected} (inpainting and upscaling models are not "
            f"supported); accepted: {patch * expected}"
        )
    given = config.get("out_channels")
    if given is not None and taken is not None and given != taken:
        raise UserError(f"{file}: out_channels {given}; accepted: {taken}, as in_channels (no learned variance)")


def check_texts_alone(folder: Path, index: Mapping[str, Any]) -> None:
    """Raise a UserError if the pipeline is also conditioned on images."""
    encoder = index.get("image_encoder")
    if isinstance(encoder, list) and any(encoder):
        raise UserError(
            f"{folder / 'model_index.json'}: image_encoder {encoder[-1]!r}; conditions beside texts (IP-adapter) are "
            "not supported"
        )


def check_many_steps(folder: Path, *configs: Mapping[str, Any]) -> None:
    """Raise a UserError if a name in ``configs``, or the hub's name of the folder, is that of a few-step model."""
    known = [str(config.get("_name_or_path") or "") for config in configs]
    known += [part.removeprefix("models--").replace("--", "/") for part in folder.parts if part.startswith("models--")]
    for name in known:
        if FEW_STEPS.search(name):
            raise UserError(f"{folder}: {name!r} {WHY_FEW_STEPS}; {WHOLE_MODEL}")


def check_noise_scheduler(folder: Path) -> None:
    """Raise a UserError if the pipeline's scheduler is one of few-step models, or has no noise schedule."""
    config, file = part_config(folder, "scheduler"), folder / "scheduler" / "scheduler_config.json"
    kind = str(config.get("_class_name", ""))
    # Turbo models: no other checkpoints pair Euler's steps from the very last time step with ε-prediction
    turbo = (
        kind.startswith("Euler")
        and config.get("timestep_spacing") == "trailing"
        and config.get("prediction_type", "epsilon") == "epsilon"
        and not config.get("rescale_betas_zero_snr")
    )
    if turbo or kind in ("LCMScheduler", "TCDScheduler"):
        spacing = " with timestep_spacing 'trailing'" if turbo else ""
        raise UserError(f"{file}: _class_name {kind!r}{spacing}: the pipeline {WHY_FEW_STEPS}; {WHOLE_MODEL}")
    if kind.startswith("EDM"):
        raise UserError(f"{file}: _class_name {kind!r}; accepted: schedulers with betas, not EDM's noise levels")


def check_flow_scheduler(folder: Path) -> None:
    """Raise a UserError if the pipeline's scheduler does more than Euler's steps from noise to images."""
    config = part_config(folder, "scheduler")
    for key in ("invert_sigmas", "stochastic_sampling"):
        if config.get(key):
            file = folder / "scheduler" / "scheduler_config.json"
            raise UserError(f"{file}: {key} {config[key]!r}; accepted: false")


def check_multiple(kind: str, side: int, multiple: int) -> None:
    """Raise a UserError unless the ``side`` of latents is a multiple of ``multiple``."""
    if side % multiple:
        raise UserError(f"latents of {side} × {side}; {kind} takes sides that are multiples of {multiple}")
