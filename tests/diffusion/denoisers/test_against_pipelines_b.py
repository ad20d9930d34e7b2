"""Our loop over a pipeline's parts gives what the pipeline's own ``__call__`` gives."""

from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch
from torch import Tensor

from diffcredit.diffusion.denoisers import NETWORKS, PIPELINES
from diffcredit.diffusion.denoisers.dit import DiT
from diffcredit.diffusion.denoisers.qwen_image import packed
from diffcredit.diffusion.objectives import NoiseSchedule

from .. import tiny_text_pipelines_b as tiny
from ..tiny_text_pipelines_b import SIDE
from .served_b import PROMPTS, SEEDS, SERVED, STEPS, decoded, encoded, generators, load, objective_of, own_loop

CASES = [
    pytest.param(name, schedule, id=f"{name}-{number}")
    for name, served in SERVED.items()
    for number, schedule in enumerate(served.schedules)
]


def reference(name: str, pipeline: Any, guidance: float | None, output: str) -> Tensor:
    return torch.as_tensor(
        pipeline(
            list(PROMPTS),
            height=SIDE,
            width=SIDE,
            num_inference_steps=STEPS,
            generator=generators(SEEDS),
            output_type=output,
            **SERVED[name].arguments(guidance),
        ).images
    )


@pytest.mark.parametrize("guidance", [None, 3.5])
@pytest.mark.parametrize(("name", "schedule"), CASES)
def test_same_latents_and_images(name: str, schedule: dict[str, Any], guidance: float | None, tmp_path: Path) -> None:
    served = SERVED[name]
    folder = served.make(tmp_path / name, **schedule)
    pipeline = load(folder)
    following, without = (encoded(served.denoiser, folder, texts) for texts in (PROMPTS, [None] * len(PROMPTS)))
    network = getattr(load(folder), served.denoiser.component)
    objective = objective_of(served.denoiser, pipeline.scheduler)

    ours = own_loop(served.denoiser, network, objective, following, without, guidance)

    theirs = reference(name, pipeline, guidance, "latent")
    torch.testing.assert_close(packed(ours) if name == "qwen_image" else ours, theirs, rtol=0, atol=1e-5)
    images = reference(name, pipeline, guidance, "pt")
    torch.testing.assert_close(decoded(pipeline.vae, ours), images, rtol=0, atol=1e-5)
    assert (images[:, None] - images[None]).abs().amax(dim=(2, 3, 4)).add(torch.eye(3)).min() > 0.02  # all differ


@pytest.mark.parametrize("name", SERVED)
def test_conditions_change_the_image(name: str, tmp_path: Path) -> None:
    served = SERVED[name]
    folder = served.make(tmp_path / name)
    pipeline = load(folder)
    network = getattr(pipeline, served.denoiser.component)
    objective = objective_of(served.denoiser, pipeline.scheduler)
    images = [
        decoded(
            pipeline.vae,
            own_loop(served.denoiser, network, objective, encoded(served.denoiser, folder, texts), None, None),
        )
        for texts in (PROMPTS, PROMPTS[::-1])
    ]
    changes = (images[0] - images[1]).abs().amax(dim=(1, 2, 3))
    assert changes[0] > 2 / 255
    assert changes[1] < 1e-5


@pytest.mark.parametrize("name", SERVED)
def test_a_condition_does_not_depend_on_others(name: str, tmp_path: Path) -> None:
    served = SERVED[name]
    folder = served.make(tmp_path / name)
    together = encoded(served.denoiser, folder, PROMPTS)
    alone = encoded(served.denoiser, folder, PROMPTS[1:2])
    assert all(torch.equal(together[key][1:2], alone[key]) for key in together)


@pytest.mark.parametrize("guidance", [None, 4.0])
def test_dit(guidance: float | None, tmp_path: Path) -> None:
    folder = tiny.dit(tmp_path / "dit")
    pipeline = load(folder)
    decoded_latents = []
    decode = pipeline.vae.decode
    pipeline.vae.decode = lambda z: decoded_latents.append(z) or decode(z)
    images = torch.as_tensor(
        pipeline(
            [7, 1, 999],
            guidance_scale=guidance or 1.0,
            generator=generators(SEEDS),
            num_inference_steps=STEPS,
            output_type="pt",
        ).images
    )
    labels = {"class_labels": torch.tensor([7, 1, 999])}
    nothing = {"class_labels": torch.full((3,), 1000)}
    objective = NoiseSchedule(pipeline.scheduler.config)

    ours = own_loop(DiT(), load(folder).transformer, objective, labels, nothing, guidance)

    theirs = decoded_latents[0] * pipeline.vae.config.scaling_factor
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    torch.testing.assert_close(decoded(pipeline.vae, ours), images, rtol=0, atol=1e-5)


def test_they_are_found_by_the_names_of_pipelines_and_networks() -> None:
    for served in SERVED.values():
        for kind in served.denoiser.pipelines:
            assert resolve_name(PIPELINES[kind]) is type(served.denoiser)
    assert resolve_name(NETWORKS[DiT.network]) is DiT
