"""FLUX.2's latents, against the pipeline's own code."""

from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import Flux2KleinPipeline

from diffcredit.diffusion.first_stage import first_stage
from diffcredit.diffusion.latent_spaces import SPACES

from .tiny_pipelines import pictures
from .tiny_text_pipelines import flux_2_klein


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Flux2KleinPipeline:
    folder: Path = flux_2_klein(tmp_path_factory.mktemp("klein") / "pipeline")
    return Flux2KleinPipeline.from_pretrained(folder)


def test_flux_2_encodes_as_the_pipeline_encodes_images(pipeline: Flux2KleinPipeline) -> None:
    x = torch.rand(2, 3, 16, 24, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        z = SPACES["AutoencoderKLFlux2"].encode(pipeline.vae, x)
        expected = pipeline._encode_vae_image(x, None)
    assert z.shape == (2, 16, 4, 6)
    assert z.equal(expected)


def test_flux_2_decodes_what_it_encodes(pipeline: Flux2KleinPipeline) -> None:
    """What the decoder is given are the encoder's latents before patches and statistics."""
    x = torch.rand(2, 3, 16, 24, generator=torch.Generator().manual_seed(0)) * 2 - 1
    space = SPACES["AutoencoderKLFlux2"]
    with torch.no_grad():
        images = space.decode(pipeline.vae, space.encode(pipeline.vae, x))
        expected = pipeline.vae.decode(pipeline.vae.encode(x).latent_dist.mode()).sample
    torch.testing.assert_close(images, expected, rtol=0, atol=1e-5)


def test_the_first_stage_of_a_folder_has_its_latent_space(tmp_path: Path) -> None:
    folder, images = flux_2_klein(tmp_path / "klein"), pictures(3)
    stage, pipeline = first_stage(str(folder)), Flux2KleinPipeline.from_pretrained(folder)
    assert (stage.channels, stage.factor, stage.size_of(16)) == (16, 4, 4)
    z = stage.encode(images, "cpu")
    x = torch.from_numpy(images).permute(0, 3, 1, 2) / 127.5 - 1
    with torch.no_grad():
        torch.testing.assert_close(z, pipeline._encode_vae_image(x, None), rtol=0, atol=1e-5)
        decoded = pipeline.vae.decode(pipeline.vae.encode(x).latent_dist.mode()).sample
    expected = pipeline.image_processor.postprocess(decoded, output_type="np") * 255
    assert np.abs(stage.decode(z) - expected).max() < 0.501
