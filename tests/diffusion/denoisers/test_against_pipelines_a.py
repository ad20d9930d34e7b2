"""The own loop gives what the pipeline's own ``__call__`` gives: Stable Diffusion, XL, 3 and 3.5, FLUX.1, FLUX.2."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from diffcredit.diffusion.denoisers.patches import packed, unpacked
from diffcredit.diffusion.pipeline import Pipeline
from diffcredit.diffusion.text_to_image import TextToImageLoRA

from .. import tiny_pipelines, tiny_text_pipelines
from .served import Served, served, whole_pipeline

CASES: dict[str, Callable[[Path], Path]] = {
    "stable_diffusion_1": tiny_pipelines.stable_diffusion,
    "stable_diffusion_2": partial(tiny_pipelines.stable_diffusion, prediction_type="v_prediction"),
    "sdxl": tiny_text_pipelines.stable_diffusion_xl,
    "sdxl_empty_prompt": partial(tiny_text_pipelines.stable_diffusion_xl, force_zeros=False),
    "sd3": tiny_text_pipelines.stable_diffusion_3,
    "sd35_dynamic": partial(tiny_text_pipelines.stable_diffusion_3, version="3.5", **tiny_text_pipelines.DYNAMIC),
    "sd3_without_t5": partial(tiny_text_pipelines.stable_diffusion_3, t5=False),
    "flux_told": tiny_text_pipelines.flux,
    "flux_told_static": partial(tiny_text_pipelines.flux, shift=3.0),
    "flux_twice": partial(tiny_text_pipelines.flux, guidance_embeds=False, **tiny_text_pipelines.DYNAMIC),
    "flux_twice_static": partial(tiny_text_pipelines.flux, guidance_embeds=False, shift=3.0),
    "flux_2_klein": tiny_text_pipelines.flux_2_klein,
    "flux_2_klein_static": partial(tiny_text_pipelines.flux_2_klein, shift=3.0),
}
TEXTS, SEEDS, STEPS = ["a cat", "the red house", ""], [7, 8, 9], 4


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    return served(CASES[request.param](tmp_path_factory.mktemp(request.param) / "pipeline"))


def by_pipeline(case: Served, pixels: int, guidance: float, output: str, **changes: Any) -> Tensor:
    told = case.denoiser.embeds_guidance(case.network)
    if case.index["_class_name"] == "FluxPipeline" and not told:
        changes |= {"true_cfg_scale": guidance, "negative_prompt": [""] * len(TEXTS)}
    else:
        changes |= {"guidance_scale": guidance}
    generators = [torch.Generator().manual_seed(seed) for seed in SEEDS]
    size = {"height": pixels, "width": pixels, "num_inference_steps": STEPS}
    return whole_pipeline(case)(prompt=TEXTS, generator=generators, output_type=output, **size, **changes).images


def as_the_pipeline_leaves_them(case: Served, x: Tensor) -> Tensor:
    """Latents, in the layout of ``output_type="latent"``."""
    if case.index["_class_name"] == "FluxPipeline":
        return case.kind._pack_latents(x, len(x), *x.shape[1:])
    if case.index["_class_name"] == "Flux2KleinPipeline":
        norm = case.autoencoder.bn
        std = (norm.running_var + case.autoencoder.config.batch_norm_eps).sqrt()
        return case.kind._unpatchify_latents(x * std.view(1, -1, 1, 1) + norm.running_mean.view(1, -1, 1, 1))
    return x


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_samples_are_the_pipelines(case: Served, guidance: float) -> None:
    z = case.sample(TEXTS, SEEDS, 16, guidance, STEPS)
    expected = by_pipeline(case, 16, guidance, "latent")
    torch.testing.assert_close(as_the_pipeline_leaves_them(case, z), expected, rtol=0, atol=1e-5)
    with torch.no_grad():
        images = case.decode(z)
    torch.testing.assert_close(images, by_pipeline(case, 16, guidance, "pt"), rtol=0, atol=1e-5)


def test_samples_of_another_size_are_the_pipelines(case: Served) -> None:
    """Dynamic shift, places of patches and stated sizes depend on it."""
    z = case.sample(TEXTS, SEEDS, 32, 2.0, STEPS)
    expected = by_pipeline(case, 32, 2.0, "latent")
    torch.testing.assert_close(as_the_pipeline_leaves_them(case, z), expected, rtol=0, atol=1e-5)


def test_samples_follow_texts_and_guidance(case: Served) -> None:
    """Else the comparison would not see a condition that is not passed on."""
    z = case.sample(["a cat", "the red house", "a cat"], [7, 7, 7], 16, 3.0, STEPS)
    freely = case.sample(["a cat"], [7], 16, 1.0, STEPS)
    assert (z[0] - z[1]).abs().max() > 1e-3
    assert (z[0] - freely[0]).abs().max() > 1e-3
    torch.testing.assert_close(z[0], z[2], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("precision", "most"), [("float32", 1e-5), ("bf16", 0.5)])
def test_a_fresh_adapter_samples_as_its_pipeline(
    case: Served, precision: Any, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The family's own model of the folder, in latents of a size of 1 to 4. A base in bfloat16 is near, which it would
    not be if the time or the guidance told were rounded."""
    model = TextToImageLoRA.create(Pipeline(case.folder, precision=precision), 2, TEXTS, None, 16, 0)
    noise = torch.cat([torch.randn(1, *model.shape, generator=torch.Generator().manual_seed(seed)) for seed in SEEDS])
    monkeypatch.setattr("diffcredit.diffusion.diffusers_model.initial_noise", lambda *_: noise)
    z = model.denoise([0, 1, 2], STEPS, "ddim", 3.0)
    torch.testing.assert_close(z.float(), case.sample(TEXTS, SEEDS, 16, 3.0, STEPS), rtol=0, atol=most)


def test_patches_are_unpacked_as_they_were_packed() -> None:
    x = torch.from_numpy(np.arange(2 * 3 * 4 * 6, dtype=np.float32).reshape(2, 3, 4, 6))
    assert packed(x).shape == (2, 6, 12)
    assert unpacked(packed(x), 4, 6).equal(x)
    assert packed(x)[0, 0].tolist() == x[0, :, :2, :2].flatten().tolist()
