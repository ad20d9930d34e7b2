"""Latents of the autoencoders of Qwen-Image and Sana; images from latents are compared with those pipelines'."""

from types import SimpleNamespace

import torch
from diffusers import QwenImageEditPipeline
from torch import Tensor

from diffcredit.diffusion.latent_spaces import SPACES

from . import tiny_text_pipelines_b as tiny


def pictures() -> Tensor:
    return torch.rand(2, 3, tiny.SIDE, tiny.SIDE, generator=torch.Generator().manual_seed(1)) * 2 - 1


@torch.no_grad()
def test_qwen_image_encodes_as_its_editing_pipeline() -> None:
    autoencoder, x = tiny.qwen_autoencoder(), pictures()
    z = SPACES["AutoencoderKLQwenImage"].encode(autoencoder, x)
    pipeline = SimpleNamespace(vae=autoencoder, latent_channels=4)
    theirs = QwenImageEditPipeline._encode_vae_image(pipeline, x[:, :, None], None)
    torch.testing.assert_close(z[:, :, None], theirs, rtol=0, atol=1e-6)
    assert z.shape == (2, 4, tiny.LATENT_SIDE, tiny.LATENT_SIDE)


@torch.no_grad()
def test_latents_come_back_from_images() -> None:
    """Decoding undoes the normalisation of encoding, exactly."""
    for autoencoder in (tiny.qwen_autoencoder(), tiny.dc_autoencoder()):
        x, space = pictures(), SPACES[type(autoencoder).__name__]
        frames = x[:, :, None] if x.ndim < autoencoder.encoder.conv_in.weight.ndim else x
        coded = autoencoder.encode(frames)
        raw = coded.latent if hasattr(coded, "latent") else coded.latent_dist.mode()
        expected = autoencoder.decode(raw).sample.reshape(x.shape)
        torch.testing.assert_close(space.decode(autoencoder, space.encode(autoencoder, x)), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_sanas_latents_are_scaled() -> None:
    autoencoder, x = tiny.dc_autoencoder(), pictures()
    z = SPACES["AutoencoderDC"].encode(autoencoder, x)
    torch.testing.assert_close(z, 0.4 * autoencoder.encoder(x))
