"""A pipeline of diffusers called as its users call it, for comparison with our own loop."""

import inspect
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor

from diffcredit.diffusion.denoisers.base import TextDenoiser
from diffcredit.diffusion.first_stage import FirstStage
from diffcredit.diffusion.objectives import NoiseSchedule
from diffcredit.diffusion.pipeline import Pipeline
from diffcredit.diffusion.pretrained import quiet
from diffcredit.diffusion.text_to_image import TextToImageLoRA
from diffcredit.testing.designs import attempt, require

ROUNDING = 1e-4  # of float32 through a network, relative to the largest number
SWITCHED_OFF = ("use_resolution_binning", "clean_caption")  # of __call__: both change what was asked for


def kind_of(base: Pipeline) -> Any:
    """Return diffusers' class of a pipeline."""
    import diffusers

    return getattr(diffusers, base.index["_class_name"])


def whole_pipeline(base: Pipeline) -> Any:
    """Return the pipeline as its users load it; None where it samples by a method that we do not have."""
    from diffusers import DDIMScheduler

    parts = base.denoiser.parts if isinstance(base.denoiser, TextDenoiser) else ()
    missing = {name: None for name in parts if (base.index.get(name) or [None])[0] is None}
    if "safety_checker" in base.index:
        missing["safety_checker"] = None
    kind = kind_of(base)
    with quiet():
        pipeline = attempt(
            f"{kind.__name__}.from_pretrained",
            lambda: kind.from_pretrained(base.folder, local_files_only=True, **missing).to(torch.float32),
        )
    pipeline.set_progress_bar_config(disable=True)
    if isinstance(base.objective(8), NoiseSchedule):
        pipeline.scheduler = DDIMScheduler.from_config(pipeline.scheduler.config, clip_sample=False)
    elif type(pipeline.scheduler).__name__ != "FlowMatchEulerDiscreteScheduler":
        return None
    return pipeline


def samples_of(
    pipeline: Any,
    model: TextToImageLoRA,
    ours: Tensor,
    conditions: Sequence[str] | Sequence[int],
    *,
    seeds: Sequence[int],
    steps: int,
    guidance: float,
    call: Mapping[str, Any],
) -> tuple[Tensor, Tensor]:
    """Return the latents that are decoded, in one row: for ``ours``, the model's samples, and for those of the
    pipeline for ``conditions``, texts or classes. Pipelines differ in how they lay out other latents."""
    denoiser = cast(Pipeline, model.base).denoiser
    with _recorded(cast(FirstStage, model.stage).autoencoder) as decoded:
        model.decode(ours)
    known = inspect.signature(pipeline.__call__).parameters
    arguments: dict[str, Any] = {
        "prompt" if isinstance(denoiser, TextDenoiser) else "class_labels": list(conditions),
        "num_inference_steps": steps,
        "generator": [torch.Generator().manual_seed(seed) for seed in seeds],
        "output_type": "np",
        **{name: model.pixels for name in ("height", "width") if name in known},
        **{name: False for name in SWITCHED_OFF if name in known},
    }
    if "true_cfg_scale" in known and not denoiser.embeds_guidance(model.network):
        arguments |= {"true_cfg_scale": guidance, "negative_prompt": [""] * len(seeds)}
    else:
        arguments["guidance_scale"] = guidance
    with _recorded(pipeline.vae) as theirs, quiet():
        pipeline(**(arguments | dict(call)))
    rows = [torch.cat(each).float().flatten() for each in (decoded, theirs)]
    require(
        len(rows[0]) == len(rows[1]),
        f"{len(rows[0])} numbers are decoded, by the pipeline {len(rows[1])}; the images may be of another size",
    )
    return rows[0], rows[1]


@contextmanager
def _recorded(autoencoder: Any) -> Generator[list[Tensor]]:
    """Yield a list of all latents that are decoded within the block."""
    seen: list[Tensor] = []
    decode = autoencoder.decode

    def recording(z: Tensor, *arguments: Any, **options: Any) -> Any:
        seen.append(z.detach())
        return decode(z, *arguments, **options)

    autoencoder.decode = recording
    try:
        yield seen
    finally:
        del autoencoder.decode


def near(one: Tensor, other: Tensor, scale: Tensor | None = None) -> bool:
    """Return whether two tensors agree but for rounding, relative to the largest number of ``scale``."""
    largest = float((other if scale is None else scale).abs().max())
    return float((one - other).abs().max()) <= ROUNDING * largest
