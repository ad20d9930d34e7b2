"""Denoisers of ours and of a user pass, and each fault is caught."""

from pathlib import Path

import pytest
import torch
from diffusers import PixArtAlphaPipeline, PixArtSigmaPipeline

from diffcredit.diffusion.denoisers.dit import DiT
from diffcredit.diffusion.denoisers.pixart import PixArtSigma
from diffcredit.diffusion.denoisers.stable_diffusion_3 import StableDiffusion3
from diffcredit.diffusion.denoisers.unet import UNet
from diffcredit.diffusion.denoisers.z_image import ZImage
from diffcredit.testing import ConformanceError, check_denoiser
from diffusion import tiny_text_pipelines, tiny_text_pipelines_b

from .own_denoiser import Mine


def pixart_alpha(folder: Path) -> Path:
    tiny_text_pipelines_b.pixart_sigma(folder)
    parts = PixArtSigmaPipeline.from_pretrained(folder).components
    PixArtAlphaPipeline(**parts).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def alpha(tmp_path_factory) -> Path:
    return pixart_alpha(tmp_path_factory.mktemp("alpha") / "pipeline")


@pytest.mark.parametrize(
    ("denoiser", "make", "without"),
    [
        # the last block does not use what its text tokens attend to
        (StableDiffusion3(), tiny_text_pipelines.stable_diffusion_3, ["transformer_blocks.2.attn.add_q_proj"]),
        (ZImage(), tiny_text_pipelines_b.z_image, []),
        (DiT(), tiny_text_pipelines_b.dit, []),
        (Mine(), pixart_alpha, []),
    ],
    ids=["sd3", "z_image", "dit", "mine"],
)
def test_sound_denoisers_pass(denoiser, make, without, tmp_path):
    assert check_denoiser(denoiser, make(tmp_path / "pipeline")) == without


class WrongTime(Mine):
    def predict(self, network, x, time, condition, guidance=None):
        return super().predict(network, x, time / 1000, condition)


class WrongSign(Mine):
    def predict(self, *given):
        return -super().predict(*given)


class Deaf(Mine):
    def predict(self, network, x, time, condition, guidance=None):
        silent = {name: each * (each.dtype == torch.long) for name, each in condition.items()}
        return super().predict(network, x, time, silent)


class Timeless(Mine):
    def predict(self, network, x, time, condition, guidance=None):
        return super().predict(network, x, torch.zeros_like(time), condition)


class Noisy(Mine):
    def predict(self, *given):
        prediction = super().predict(*given)
        return prediction + 1e-3 * torch.randn(prediction.shape)


class NoisyInTraining(Mine):
    def predict(self, network, x, *given):
        return super().predict(network, x + 1e-3 * torch.randn(x.shape) * network.training, *given)


class WithVariance(Mine):
    def predict(self, network, x, time, condition, guidance=None):
        sizes = {"resolution": None, "aspect_ratio": None}
        return network(x, timestep=time, added_cond_kwargs=sizes, **condition).sample


class FirstForAll(Mine):
    def predict(self, network, x, time, condition, guidance=None):
        return super().predict(network, x, time[:1].expand(len(x)), condition)


class Unpadded(Mine):
    def encode(self, pipeline, text, pixels):
        condition = super().encode(pipeline, text, pixels)
        there = condition["encoder_attention_mask"].bool()
        return {name: each[there] for name, each in condition.items()}


class Careless(Mine):
    def encode(self, pipeline, text, pixels):
        return super().encode(pipeline, "a boat", pixels)


class OtherUnguided(Mine):
    unguided = 0.0


class GuidedByTheBatch(Mine):
    def guide(self, without, following, scale):
        guided = super().guide(without, following, scale)
        return following if scale == 1 else guided / guided.std() * following.std()


class GuidedTwice(Mine):
    def guide(self, without, following, scale):
        return without + scale * scale * (following - without)


class OtherNothing(Mine):
    def nothing(self, pipeline, pixels):
        return self.encode(pipeline, "nothing", pixels)


class NoSuchTarget(Mine):
    targets = ("to_q", "to_value")


class Cut(Mine):
    def predict(self, network, x, time, condition, guidance=None):
        with torch.no_grad():
            return super().predict(network, x, time, condition)


class Asks(Mine):
    """Shapes depend on numbers, which vmap cannot follow."""

    def predict(self, network, x, time, condition, guidance=None):
        longest = int(condition["encoder_attention_mask"].sum(1).max())
        return super().predict(network, x, time, {name: each[:, :longest] for name, each in condition.items()})


class Loads(Mine):
    loads_adapters = True


FAULTS = {
    WrongTime: "sampling with guidance 1 differs from PixArtAlphaPipeline.__call__ by",
    WrongSign: "sampling with guidance 1 differs from PixArtAlphaPipeline.__call__ by",
    Deaf: "predict does not follow the condition",
    Timeless: "predict does not follow the time",
    Noisy: "predict gives other numbers when it is called again; `prepared`",
    NoisyInTraining: "predict gives other numbers when it is called again in training; `prepared`",
    WithVariance: r"predict gives \(3, 8, 8, 8\) for x \(3, 4, 8, 8\); the same shape is expected",
    FirstForAll: "predict gives other numbers for an image in a batch than for it alone",
    Unpadded: "the same shapes for all texts are expected, padded and with a mask",
    Careless: "the conditions of 'a red boat' and 'harbour .*' are the same",
    OtherUnguided: "guide.without, following, 0. is not `following`, as `unguided` 0 says",
    GuidedByTheBatch: "guide gives other numbers for an image in a batch",
    GuidedTwice: "sampling with guidance 4.5 differs from PixArtAlphaPipeline.__call__",
    OtherNothing: "sampling with guidance 4.5 differs from PixArtAlphaPipeline.__call__",
    NoSuchTarget: "`targets`: no linear layer's name ends with 'to_value'",
    Cut: "the gradient of the loss raises RuntimeError",
    Asks: "vmap through predict, which is needed unless `ragged` is true, raises RuntimeError",
    Loads: "`loads_adapters` is True; PixArtAlphaPipeline has no load_lora_weights",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_caught(fault, alpha):
    with pytest.raises(ConformanceError, match=FAULTS[fault]):
        check_denoiser(fault(), alpha)


class OwnLevels(StableDiffusion3):
    def sigmas(self, scheduler, steps, side):
        return torch.linspace(1, 0.1, steps + 1)


class OtherLevels(StableDiffusion3):
    def sigmas(self, scheduler, steps, side):
        return torch.linspace(1, 0, steps + 1)


def test_the_levels_of_sampling_are_checked(tmp_path):
    folder = tiny_text_pipelines.stable_diffusion_3(tmp_path / "pipeline")
    with pytest.raises(ConformanceError, match=r"sigmas\(scheduler, 4, 8\) gives .*; 5 falling numbers down to 0"):
        check_denoiser(OwnLevels(), folder)
    with pytest.raises(ConformanceError, match=r"sampling with guidance 1 differs from StableDiffusion3Pipeline"):
        check_denoiser(OtherLevels(), folder)


def test_what_is_no_denoiser_of_the_pipeline(alpha, tmp_path):
    with pytest.raises(ConformanceError, match="UNet does not inherit from PipelineDenoiser"):
        check_denoiser(UNet(), alpha)
    with pytest.raises(ConformanceError, match=r"reading .* raises UserError: .*config.json: out_channels 8"):
        check_denoiser(StableDiffusion3(), alpha)
    with pytest.raises(ConformanceError, match=r"reading .*nowhere.* raises UserError"):
        check_denoiser(PixArtSigma(), tmp_path / "nowhere")
