"""What the comparison with pipelines does not show: time in bfloat16, fixed shapes, labels, refusals."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DPMSolverMultistepScheduler, SanaPipeline
from torch import Tensor

from diffcredit.diffusion.denoisers.dit import DiT
from diffcredit.diffusion.denoisers.refusals import reason_against
from diffcredit.diffusion.denoisers.sana import INSTRUCTION
from diffcredit.diffusion.denoisers.unet import UNet
from diffcredit.errors import UserError

from .. import tiny_text_pipelines_b as tiny
from .adapters_b import LABELS, TRAINED
from .served_b import PROMPTS, SEEDS, SERVED, STEPS, encoded, generators, load, noise, objective_of, own_loop

SIGMA = torch.tensor([0.7031, 0.3337, 0.9023])  # none of them a number of bfloat16
TOLD = {
    "qwen_image": ("time_text_embed.time_proj", lambda sigma: sigma),
    "z_image": ("t_embedder", lambda sigma: 1000 * (1 - sigma)),
    "sana": ("time_embed.emb.time_proj", lambda sigma: 500 * sigma),
    "dit": ("transformer_blocks.1.norm1.emb.time_proj", lambda sigma: 1000 * sigma),
    "unet": ("time_proj", lambda sigma: 1000 * sigma),
}


@pytest.mark.parametrize("name", TOLD)
def test_time_is_not_rounded(name: str, tmp_path: Path) -> None:
    denoiser, network, _, condition = TRAINED[name](tmp_path / name)
    place, expected = TOLD[name]
    told: list[Tensor] = []
    network.to(torch.bfloat16).get_submodule(place).register_forward_pre_hook(lambda _, inputs: told.append(inputs[0]))
    halves = {key: each.bfloat16() if each.is_floating_point() else each for key, each in condition.items()}
    prediction = denoiser.predict(network, noise(SEEDS).bfloat16(), SIGMA, halves)
    assert prediction.shape == noise(SEEDS).shape
    torch.testing.assert_close(told[0], expected(SIGMA), rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", SERVED)
def test_conditions_of_all_texts_have_one_shape(name: str, tmp_path: Path) -> None:
    folder = SERVED[name].make(tmp_path / name)
    conditions = encoded(SERVED[name].denoiser, folder, ["", "word " * 500, "a red boat", None])
    masks = next(each for each in conditions.values() if each.dtype == torch.bool)
    lengths = masks.sum(dim=1).tolist()
    assert lengths[1] == masks.shape[1]  # a long text fills it
    if name != "sana":  # there the instruction fills it
        assert lengths[0] < lengths[2] < lengths[1]


def test_sana_samples_as_its_solver_does_at_first_order(tmp_path: Path) -> None:
    class ExactTimes(DPMSolverMultistepScheduler):
        """Diffusers' solver tells the network whole time steps, which are not those of its σ."""

        def set_timesteps(self, *arguments: Any, **more: Any) -> None:
            super().set_timesteps(*arguments, **more)
            self.timesteps = 1000 * self.sigmas[:-1]

    denoiser, folder = SERVED["sana"].denoiser, tiny.sana(tmp_path / "sana")
    pipeline = load(folder)
    flow = {"use_flow_sigmas": True, "flow_shift": 3.0, "prediction_type": "flow_prediction"}
    pipeline.scheduler = ExactTimes(solver_order=1, **flow)
    theirs = pipeline(
        list(PROMPTS),
        height=tiny.SIDE,
        width=tiny.SIDE,
        num_inference_steps=STEPS,
        generator=generators(SEEDS),
        output_type="latent",
        **SERVED["sana"].arguments(None),
    ).images
    objective = objective_of(denoiser, DPMSolverMultistepScheduler(**flow))
    ours = own_loop(denoiser, load(folder).transformer, objective, encoded(denoiser, folder, PROMPTS), None, None)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_sanas_instruction_is_the_pipelines() -> None:
    assert inspect.signature(SanaPipeline.__call__).parameters["complex_human_instruction"].default == [*INSTRUCTION]


def test_z_image_without_guidance() -> None:
    denoiser, (without, following) = SERVED["z_image"].denoiser, (noise(SEEDS), noise(SEEDS[::-1]))
    assert torch.equal(denoiser.guide(without, following, denoiser.unguided), following)


def test_label_dropout_is_switched_off() -> None:
    network = tiny.dit_network().train()
    x, times = noise(range(64)), torch.full((64,), 10)
    condition = {"class_labels": torch.arange(64) % 5}

    def twice() -> list[Tensor]:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            return [DiT().predict(network, x, times, condition) for _ in range(2)]

    assert not torch.equal(*twice())
    assert DiT().prepared(network) is network
    assert torch.equal(*twice())
    with torch.no_grad():
        kept = twice()[0]
        nothing = DiT().predict(network, x, times, {"class_labels": torch.full((64,), 5)})
        assert (kept - nothing).abs().amax(dim=(1, 2, 3)).min() > 1e-3
        assert torch.equal(DiT().predict(network, x, times, None), nothing)


def test_labels_reach_the_unet(tmp_path: Path) -> None:
    _, network, _, _ = TRAINED["unet"](tmp_path)
    steps = torch.tensor([7, 300, 999])
    with torch.no_grad():
        expected = network(noise(SEEDS), steps, class_labels=LABELS["class_labels"]).sample
        assert torch.equal(UNet().predict(network, noise(SEEDS), steps, LABELS), expected)
        others = {"class_labels": LABELS["class_labels"].flip(0)}
        assert not torch.equal(UNet().predict(network, noise(SEEDS), steps, others), expected)


@pytest.mark.parametrize("name", TRAINED)
def test_sizes(name: str, tmp_path: Path) -> None:
    denoiser, network, _, condition = TRAINED[name](tmp_path / name)
    times = torch.full((3,), 100) if name == "pixart_sigma" else SIGMA
    denoiser.check_size(network, 12)
    with torch.no_grad():
        assert denoiser.predict(network, noise(SEEDS, side=12), times, condition).shape[-1] == 12
    if name == "sana":  # patches of a single latent
        denoiser.check_size(network, 7)
        return
    with pytest.raises(UserError, match=r"latents of 7 × 7; .* multiples of 2$"):
        denoiser.check_size(network, 7)


def test_places_of_z_image_end(tmp_path: Path) -> None:
    denoiser, network, _, _ = TRAINED["z_image"](tmp_path / "z")
    denoiser.check_size(network, 128)
    with pytest.raises(UserError, match="latents of 130 × 130; this network has places for 128 × 128"):
        denoiser.check_size(network, 130)


@pytest.mark.parametrize(
    ("name", "network", "scheduler", "message"),
    [
        ("qwen_image", {"guidance_embeds": True}, {}, "guidance_embeds true: a network distilled to embedded guidance"),
        ("qwen_image", {"zero_cond_t": True}, {}, "zero_cond_t true: a network that edits images"),
        ("qwen_image", {"_name_or_path": "x/Qwen-Image-Lightning"}, {}, "distilled to a few steps"),
        ("qwen_image", {}, {"stochastic_sampling": True}, "stochastic_sampling True; accepted: false"),
        ("z_image", {}, {"shift": 3.0}, "shift 3: Z-Image-Turbo is distilled to a few steps"),
        ("z_image", {"siglip_feat_dim": 1152}, {}, "siglip_feat_dim 1152: a network that edits images"),
        ("z_image", {"in_channels": 8}, {}, "in_channels 8; the autoencoder has 4"),
        ("sana", {"guidance_embeds": True}, {}, "guidance_embeds true: Sana-Sprint is distilled to a few steps"),
        ("sana", {"in_channels": 8}, {}, "in_channels 8; the autoencoder has 4"),
        ("sana", {}, {"_class_name": "DPMSolverMultistepScheduler"}, "use_flow_sigmas false; accepted: true"),
        ("pixart_sigma", {"use_additional_conditions": True}, {}, "PixArt-α, which is told the image's size"),
        ("pixart_sigma", {"sample_size": 128}, {}, "PixArt-α"),
        ("pixart_sigma", {}, {"_class_name": "LCMScheduler"}, "'LCMScheduler': the pipeline is distilled"),
    ],
)
def test_refused(name: str, network: dict[str, Any], scheduler: dict[str, Any], message: str, tmp_path: Path) -> None:
    denoiser, folder = SERVED[name].denoiser, SERVED[name].make(tmp_path / name)
    index = json.loads((folder / "model_index.json").read_text())
    config = json.loads((folder / "transformer" / "config.json").read_text())
    denoiser.check(folder, index, config)
    file = folder / "scheduler" / "scheduler_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | scheduler))
    with pytest.raises(UserError) as caught:
        denoiser.check(folder, index, config | network)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("QwenImageEditPlusPipeline", "it changes a given image"),
        ("ZImageControlNetInpaintPipeline", "it is conditioned on an image beside the text"),
        ("StableDiffusionInpaintPipeline", "it completes a given image"),
        ("SanaSprintPipeline", "it is distilled to a few steps, which no training objective continues"),
        ("SanaVideoPipeline", "it makes videos"),
        ("WanPipeline", "it makes videos"),
        *((kind, None) for served in SERVED.values() for kind in served.denoiser.pipelines),
        ("StableDiffusionPipeline", None),
        ("WuerstchenDecoderPipeline", None),
    ],
)
def test_reasons(kind: str, reason: str | None) -> None:
    assert reason_against(kind) == reason
