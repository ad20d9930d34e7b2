"""What is refused before training, in one line, and by which key of which config."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from diffcredit.diffusion.denoisers.flux import Flux
from diffcredit.errors import UserError

from .. import tiny_pipelines, tiny_text_pipelines
from .served import Served, served

SD, XL, SD3, FLUX, KLEIN = "stable_diffusion", "stable_diffusion_xl", "stable_diffusion_3", "flux", "flux_2_klein"


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Served]:
    makers = {name: getattr(tiny_text_pipelines, name) for name in (XL, SD3, FLUX, KLEIN)}
    makers[SD] = tiny_pipelines.stable_diffusion
    return {name: served(make(tmp_path_factory.mktemp(name) / "pipeline")) for name, make in makers.items()}


def check(case: Served, folder: Path, changes: dict[str, dict[str, Any]]) -> None:
    """Check the pipeline's configs with ``changes``, as a folder without weights has them."""
    index = dict(case.index) | changes.get("index", {})
    read = {}
    for part in (case.denoiser.component, "vae", "scheduler"):
        file = f"{part}/{'scheduler_config' if part == 'scheduler' else 'config'}.json"
        read[part] = json.loads((case.folder / file).read_text()) | changes.get(part, {})
        (folder / part).mkdir(parents=True)
        (folder / file).write_text(json.dumps(read[part]))
    case.denoiser.check(folder, index, read[case.denoiser.component])


@pytest.mark.parametrize("name", [SD, XL, SD3, FLUX, KLEIN])
def test_the_tiny_pipelines_are_accepted(cases: dict[str, Served], tmp_path: Path, name: str) -> None:
    check(cases[name], tmp_path, {})
    # as the original's index and scheduler are
    check(cases[name], tmp_path / "2", {"index": {"image_encoder": [None, None], "_name_or_path": "some/base-1.0"}})


ADAPTER = {"image_encoder": ["transformers", "CLIPVisionModelWithProjection"]}
TURBO = {"_class_name": "EulerAncestralDiscreteScheduler", "timestep_spacing": "trailing"}
SCHNELL = {"use_dynamic_shifting": False, "shift": 1.0}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (SD, {"unet": {"in_channels": 9}}, r"unet/config.json: in_channels 9; .* has 4 .inpainting.*accepted: 4"),
        (SD, {"unet": {"out_channels": 8}}, r"unet/config.json: out_channels 8; accepted: 4, .*learned variance"),
        (
            SD,
            {"unet": {"class_embed_type": "timestep"}},
            r"class_embed_type 'timestep': .* beside the text",
        ),
        (SD, {"unet": {"addition_embed_type": "text"}}, r"addition_embed_type 'text': .*; accepted: None"),
        (SD, {"unet": {"encoder_hid_dim_type": "ip_image_proj"}}, r"encoder_hid_dim_type 'ip_image_proj'"),
        (SD, {"unet": {"time_cond_proj_dim": 256}}, r"time_cond_proj_dim 256: .*few steps"),
        (SD, {"index": {"_name_or_path": "stabilityai/sd-turbo"}}, r"'stabilityai/sd-turbo' is distilled to a few"),
        (SD, {"index": ADAPTER}, r"model_index.json: image_encoder 'CLIPVision.*IP-adapter"),
        (XL, {"scheduler": TURBO}, r"scheduler_config.json: _class_name 'EulerAncestral.*'trailing'.*few steps"),
        (XL, {"scheduler": {"_class_name": "LCMScheduler"}}, r"_class_name 'LCMScheduler'.*few steps"),
        (XL, {"scheduler": {"_class_name": "EDMDPMSolverMultistepScheduler"}}, r"not EDM's noise levels"),
        (XL, {"unet": {"in_channels": 9}}, r"in_channels 9; .*accepted: 4"),
        (XL, {"unet": {"addition_embed_type": "text"}}, r"addition_embed_type 'text': .*; accepted: 'text_time'"),
        (XL, {"index": ADAPTER}, r"IP-adapter"),
        (SD3, {"transformer": {"_name_or_path": "a/sd-3.5-large-turbo"}}, r"'a/sd-3.5-large-turbo' is distilled"),
        (SD3, {"transformer": {"in_channels": 33}}, r"transformer/config.json: in_channels 33; .*accepted: 4"),
        (SD3, {"transformer": {"patch_size": 4}}, r"patch_size 4; accepted: 2"),
        (SD3, {"scheduler": {"stochastic_sampling": True}}, r"scheduler_config.json: stochastic_sampling True"),
        (SD3, {"index": ADAPTER}, r"IP-adapter"),
        (FLUX, {"transformer": {"guidance_embeds": False}, "scheduler": SCHNELL}, r"FLUX.1-schnell is distilled"),
        (FLUX, {"transformer": {"in_channels": 96}}, r"in_channels 96; .*accepted: 16"),
        (FLUX, {"scheduler": {"invert_sigmas": True}}, r"invert_sigmas True; accepted: false"),
        (FLUX, {"index": ADAPTER}, r"IP-adapter"),
        (KLEIN, {"index": {"is_distilled": True}}, r"is_distilled true: .*FLUX.2-klein-base"),
        (KLEIN, {"transformer": {"guidance_embeds": True}}, r"guidance_embeds true; accepted: false"),
        (KLEIN, {"vae": {"latent_channels": 32}}, r"in_channels 16; .*accepted: 128"),
    ],
)
def test_refusals(
    cases: dict[str, Served], tmp_path: Path, name: str, changes: dict[str, dict[str, Any]], message: str
) -> None:
    with pytest.raises(UserError, match=message) as raised:
        check(cases[name], tmp_path, changes)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"index": {"_name_or_path": "someone/flux-dev-de-distilled"}, "transformer": {"guidance_embeds": False}},
        {"transformer": {"guidance_embeds": False}, "scheduler": {"use_dynamic_shifting": False, "shift": 3.0}},
    ],
)
def test_models_that_are_distilled_no_more_are_accepted(
    cases: dict[str, Served], tmp_path: Path, changes: dict[str, dict[str, Any]]
) -> None:
    check(cases[FLUX], tmp_path, changes)


def test_a_few_step_model_of_the_hub_is_known_by_its_folder(cases: dict[str, Served], tmp_path: Path) -> None:
    folder = tmp_path / "models--black-forest-labs--FLUX.1-schnell" / "snapshots" / "0"
    with pytest.raises(UserError, match=r"'black-forest-labs/FLUX.1-schnell' is distilled"):
        check(cases[FLUX], folder, {})


def test_v_prediction_to_pure_noise_from_the_last_step_is_no_turbo(cases: dict[str, Served], tmp_path: Path) -> None:
    schedule = {"prediction_type": "v_prediction", "rescale_betas_zero_snr": True}
    check(cases[XL], tmp_path, {"scheduler": {**TURBO, **schedule}})


def test_sides(cases: dict[str, Served]) -> None:
    """A side is a multiple for every level of a U-Net to halve it, and for patches; SD3 has a largest one."""
    for name in (SD, XL, SD3, FLUX):
        case = cases[name]
        case.denoiser.check_size(case.network, 8)
        with pytest.raises(UserError, match=r"latents of 7 × 7; .* takes sides that are multiples of 2"):
            case.denoiser.check_size(case.network, 7)
    cases[KLEIN].denoiser.check_size(cases[KLEIN].network, 7)
    most = 2 * cases[SD3].config["pos_embed_max_size"]
    cases[SD3].denoiser.check_size(cases[SD3].network, most)
    with pytest.raises(UserError, match=f"this transformer takes at most {most} × {most}"):
        cases[SD3].denoiser.check_size(cases[SD3].network, most + 2)


def test_a_network_that_needs_a_text_says_so(cases: dict[str, Served]) -> None:
    x = torch.zeros(1, 4, 8, 8)
    for name in (XL, FLUX, KLEIN):
        with pytest.raises(TypeError, match="without a condition"):
            cases[name].denoiser.predict(cases[name].network, x, torch.ones(1), None)


def test_no_text_for_stable_diffusion_3_is_a_token_of_zeros(cases: dict[str, Served]) -> None:
    """As a network without texts is trained."""
    case, x, time = cases[SD3], torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0)), torch.rand(2)
    zeros = {"encoder_hidden_states": torch.zeros(2, 1, 32), "pooled_projections": torch.zeros(2, 20)}
    with torch.no_grad():
        freely = case.denoiser.predict(case.network, x, time, None)
        assert freely.equal(case.denoiser.predict(case.network, x, time, zeros))


def test_flux_is_told_guidance_1_in_training(cases: dict[str, Served]) -> None:
    case, x, time = cases[FLUX], torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0)), torch.rand(2)
    condition = case.conditions(["a cat", "a hat"], 16)
    with torch.no_grad():
        told = [Flux().predict(case.network, x, time, condition, guidance) for guidance in (None, 1.0, 3.5)]
    assert told[0].equal(told[1])
    assert not told[0].equal(told[2])


@pytest.mark.parametrize("name", [SD3, FLUX, KLEIN])
def test_time_is_not_rounded_to_bfloat16(tmp_path: Path, name: str) -> None:
    """Two σ with the same nearest bfloat16 have different predictions, whether weights or autocast are bfloat16."""
    case = served(getattr(tiny_text_pipelines, name)(tmp_path / "pipeline"))
    near, far = torch.tensor([0.7]), torch.tensor([0.7005])
    assert near.bfloat16() == far.bfloat16()
    channels, side = case.latents(16)
    x = torch.randn(1, channels, side, side, generator=torch.Generator().manual_seed(0))
    condition = case.conditions(["a cat"], 16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        mixed = [case.denoiser.predict(case.network, x, time, condition) for time in (near, far)]
    case.network.to(torch.bfloat16)
    half = {key: each.bfloat16() for key, each in condition.items()}
    with torch.no_grad():
        low = [case.denoiser.predict(case.network, x.bfloat16(), time, half) for time in (near, far)]
    assert not mixed[0].equal(mixed[1])
    assert not low[0].equal(low[1])
    assert low[0].dtype == torch.bfloat16
