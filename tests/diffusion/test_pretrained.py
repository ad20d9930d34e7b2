import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import UNet2DModel
from diffusers.utils import logging as diffusers_logging
from huggingface_hub.utils import are_progress_bars_disabled, filter_repo_objects
from safetensors.torch import load_file, save_file
from transformers.utils import logging as transformers_logging

from diffcredit.diffusion.ddpm import DDPM, LatentFamily, PixelFamily
from diffcredit.diffusion.pipeline import Pipeline
from diffcredit.diffusion.pretrained import DOWNLOADED, NOT_DOWNLOADED, PretrainedNetwork, quiet
from diffcredit.execution import InProcess
from diffcredit.study.study import Study
from tiny_study import files_below, images_of, rows, run_here, write_study

from . import tiny, tiny_pipelines, tiny_text_pipelines_b
from .tiny_pipelines import STUDY, contributions


def start(folder: Path, side: int = 16) -> DDPM:
    return PixelFamily(pretrained=str(folder)).start(contributions(side), seed=0)


def change_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.fixture
def own_folder(ddpm_folder, tmp_path) -> Path:
    """A U-Net's own folder, the test's to change."""
    return shutil.copytree(ddpm_folder / "unet", tmp_path / "my-unet")


def refused(folder: Path, message: str, side: int = 16) -> None:
    tiny.refused(message, start, folder, side)


@pytest.mark.parametrize("part", ["", "unet"])
def test_the_weights_are_bitwise_those_of_the_folder(ddpm_folder, part):
    model = start(ddpm_folder / part)
    theirs = UNet2DModel.from_pretrained(ddpm_folder / "unet")
    assert tiny.same(tiny.weights(model), theirs.state_dict())
    assert all(parameter.requires_grad for parameter in model.network.parameters())


def test_the_schedule_is_taken_over(tmp_path):
    folder = tiny_pipelines.ddpm_pipeline(tmp_path, beta_end=0.01, num_train_timesteps=500)
    model = start(folder)
    assert model.time_steps == 500
    x, noise = torch.ones(1, 3, 16, 16), torch.zeros(1, 3, 16, 16)
    expected = np.sqrt(np.prod(1 - np.linspace(1e-4, 0.01, 500)))
    assert model.objective.add_noise(x, noise, torch.tensor([499]))[0, 0, 0, 0].item() == pytest.approx(expected)
    assert start(folder / "unet").time_steps == 1000  # a U-Net alone does not tell; then the family's


def test_the_fingerprint_follows_the_content_not_the_place(ddpm_folder, tmp_path):
    def fingerprint(folder: Path) -> str:
        identity = PixelFamily(pretrained=str(folder)).identity()
        assert str(folder) not in json.dumps(identity)
        return identity["pretrained"]

    original = fingerprint(ddpm_folder)
    moved = shutil.copytree(ddpm_folder, tmp_path / "elsewhere")
    assert fingerprint(moved) == original

    changed = shutil.copytree(ddpm_folder, tmp_path / "changed")
    (file,) = (changed / "unet").glob("*.safetensors")
    tensors = load_file(file)
    tensors["conv_out.bias"][1] += 1e-6
    save_file(tensors, file, {"format": "pt"})
    rescheduled = shutil.copytree(ddpm_folder, tmp_path / "rescheduled")
    schedule = rescheduled / "scheduler" / "scheduler_config.json"
    schedule.write_text(schedule.read_text().replace("0.02", "0.03"))
    assert len({original, fingerprint(changed), fingerprint(rescheduled), fingerprint(ddpm_folder / "unet")}) == 4
    assert start(changed).fingerprint != start(ddpm_folder).fingerprint


def test_a_pretrained_model_is_kept_and_found_again(own_folder, tmp_path):
    # as training scripts and older versions of diffusers write it
    change_config(own_folder, sample_size=[16, 16], my_own_note="sunday")
    config = json.loads((own_folder / "config.json").read_text())
    del config["in_channels"], config["out_channels"]  # three is what diffusers takes then
    (own_folder / "config.json").write_text(json.dumps(config))
    model = start(own_folder)
    model.save(tmp_path / "kept")
    again = DDPM.load(tmp_path / "kept")
    assert again.fingerprint == model.fingerprint
    assert again.shape == (3, 16, 16)
    np.testing.assert_array_equal(again.sample([3], 2), model.sample([3], 2))


def test_weights_under_old_names_and_of_half_precision_are_read(own_folder):
    """As in google/ddpm-cifar10-32 and CompVis/ldm-celebahq-256; computed in float32."""
    (file,) = own_folder.glob("*.safetensors")
    old = {".to_q.": ".query.", ".to_k.": ".key.", ".to_v.": ".value.", ".to_out.0.": ".proj_attn."}
    half, renamed = {name: tensor.half() for name, tensor in load_file(file).items()}, {}
    for name, tensor in half.items():
        before = name
        for new, former in old.items():
            before = before.replace(new, former)
        renamed[before] = tensor
    assert set(renamed) != set(half)
    save_file(renamed, file, {"format": "pt"})
    assert tiny.same(tiny.weights(start(own_folder)), {name: tensor.float() for name, tensor in half.items()})


# -- what is refused


ANOTHER = "_class_name {} .*accepted here: UNet2DModel"
CLASSES = "a class-conditional network; model.conditions: labels is needed"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"_class_name": "FluxTransformer2DModel"}, ANOTHER.format("'FluxTransformer2DModel'")),
        ({"_class_name": None}, ANOTHER.format(None)),
        ({"class_embed_type": "timestep"}, "class_embed_type 'timestep'; accepted: null"),
        ({"num_class_embeds": 10}, CLASSES),
        ({"out_channels": 6}, r"out_channels 6; 3 are expected \(a learned variance is not supported\)"),
        ({"in_channels": 4}, "in_channels 4; 3 are expected"),
        ("{", "cannot be read"),
        ("[]", "list; a JSON object is expected"),
    ],
)
def test_another_description_is_refused(own_folder, changes, message):
    if isinstance(changes, str):
        (own_folder / "config.json").write_text(changes)
    else:
        change_config(own_folder, **changes)
    refused(own_folder, rf"my-unet/config\.json: {message}")


def test_a_pipeline_without_such_a_unet_is_refused(tmp_path):
    refused(tiny_pipelines.described(tmp_path, "DiTPipeline"), r"config\.json: no such file")
    tiny_pipelines.described(tmp_path / "unet", "UNet2DConditionModel", "config.json")
    refused(tmp_path, r"unet/config\.json: _class_name 'UNet2DConditionModel' is a text-to-image network")
    tiny_pipelines.described(tmp_path / "unet", "MyOwnUNet", "config.json")
    tiny.refused(ANOTHER.format("'MyOwnUNet'"), LatentFamily(pretrained=str(tmp_path)).identity)


def test_images_of_another_size_are_refused(own_folder, ldm_folder):
    refused(own_folder, r"resolution: 24 .*my-unet/config\.json has sample_size 16; accepted: 16", side=24)
    for side, message in (
        (32, "32 gives the network 16 × 16, .*sample_size 8; accepted: 16"),
        (15, "15; the autoencoder takes multiples of 2"),
    ):
        tiny.refused(f"resolution: {message}", LatentFamily(pretrained=str(ldm_folder)).start, contributions(side), 0)


def test_other_corrupt_and_missing_weights_are_named(own_folder):
    (file,) = own_folder.glob("*.safetensors")
    whole, tensors = file.read_bytes(), load_file(file)
    del tensors["conv_out.bias"]
    save_file(tensors, file, {"format": "pt"})
    refused(own_folder, r"my-unet: 1 tensors of UNet2DModel are missing, such as 'conv_out\.bias'")
    file.write_bytes(whole[:-100])
    refused(own_folder, "my-unet: UNet2DModel cannot be loaded from there")
    file.unlink()
    refused(own_folder, "my-unet: UNet2DModel cannot be loaded from there")
    file.write_bytes(whole)
    change_config(own_folder, block_out_channels=[16, 16])
    refused(own_folder, "my-unet: UNet2DModel cannot be loaded from there")


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"_class_name": "ScoreSdeVeScheduler", "sigma_max": 348.0}, "'ScoreSdeVeScheduler' has no betas; accepted"),
        ({"beta_schedule": "linear", "prediction_type": "flow"}, "prediction_type: 'flow'"),
        ({"beta_schedule": "sigmoid"}, "not a noise schedule"),
    ],
)
def test_another_noise_process_is_refused(ddpm_folder, tmp_path, schedule, message):
    folder = shutil.copytree(ddpm_folder, tmp_path / "pipeline")
    (folder / "scheduler" / "scheduler_config.json").write_text(json.dumps(schedule))
    refused(folder, rf"scheduler_config\.json: .*{message}")


def test_a_hub_id_offline_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    unknown = "nobody/no-such-model"
    tiny.refused(f"^{unknown}: no such folder, and the hub does not give it", PretrainedNetwork.find, unknown)


def test_what_is_downloaded_of_stable_diffusion():
    wanted = {
        "model_index.json",
        "scheduler/scheduler_config.json",
        "text_encoder/config.json",
        "text_encoder/model.safetensors",
        "tokenizer/merges.txt",
        "tokenizer/vocab.json",
        "unet/config.json",
        "unet/diffusion_pytorch_model.safetensors",
        "vae/diffusion_pytorch_model.safetensors",
    }
    unwanted = {
        "README.md",
        "v1-5-pruned.safetensors",
        "v1-5-pruned-emaonly.ckpt",
        "safety_checker/model.safetensors",
        "text_encoder/model.fp16.safetensors",
        "text_encoder/pytorch_model.bin",
        "unet/diffusion_pytorch_model.bin",
        "unet/diffusion_pytorch_model.fp16.safetensors",
        "unet/diffusion_pytorch_model.non_ema.safetensors",
    }
    files = sorted(wanted | unwanted)
    chosen = filter_repo_objects(files, allow_patterns=list(DOWNLOADED), ignore_patterns=list(NOT_DOWNLOADED))
    assert set(chosen) == wanted
    alone = ["config.json", "diffusion_pytorch_model.safetensors"]  # a U-Net's own repository
    assert list(filter_repo_objects(alone, allow_patterns=list(DOWNLOADED))) == alone


# -- silence


@pytest.mark.parametrize("bars", [True, False])
def test_the_users_settings_come_back(bars):
    loggings = (diffusers_logging, transformers_logging)
    before = [(logging.is_progress_bar_enabled(), logging.get_verbosity()) for logging in loggings]
    hub = are_progress_bars_disabled()
    try:
        for logging in loggings:
            (logging.enable_progress_bar if bars else logging.disable_progress_bar)()
            logging.set_verbosity_info()
        with suppress(RuntimeError), quiet():
            assert not any(logging.is_progress_bar_enabled() for logging in loggings)
            assert all(logging.get_verbosity() == logging.ERROR for logging in loggings)
            raise RuntimeError("settings come back after a failure too")
        for logging in loggings:
            assert logging.is_progress_bar_enabled() is bars
            assert logging.get_verbosity() == logging.INFO
        assert are_progress_bars_disabled() is not bars
    finally:
        for logging, (enabled, verbosity) in zip(loggings, before, strict=True):
            (logging.enable_progress_bar if enabled else logging.disable_progress_bar)()
            logging.set_verbosity(verbosity)
        assert are_progress_bars_disabled() is hub


# -- in a study


def study(folder: Path, pretrained: Path, **changes: object) -> Path:
    images_of(folder / "images", ["ann", "bob", "cem"], each=4)
    shutil.copytree(pretrained, folder / "my-unet")
    model = {"family": "ddpm", "pretrained": "my-unet", "train": {"steps": 2, "batch_size": 8}}
    return write_study(folder, STUDY | {"model": model} | changes)


def test_a_study_starts_from_ones_own_unet(ddpm_folder, tmp_path):
    file = study(tmp_path / "one", ddpm_folder)
    told: list[str] = []
    loaded = Study.load(file, progress=lambda what, done, total: told.append(what))
    theirs = UNet2DModel.from_pretrained(ddpm_folder / "unet")
    assert tiny.same(tiny.weights(loaded.prepared.base), theirs.state_dict())
    assert "training the base model" not in told

    nobody, everybody = loaded.recipe.retraining.models_for(np.array([[False] * 3, [True] * 3]), [1, 2])
    for name, tensor in theirs.state_dict().items():
        # one step of Adam moves a weight by its rate; what is drawn anew has nothing of the pretrained one
        assert (tiny.weights(everybody)[name] - tensor).abs().max() < 2e-4
        assert "norm" in name or not tiny.weights(nobody)[name].equal(tensor)
    (again,) = loaded.recipe.retraining.models_for(np.zeros((1, 3), bool), [7])
    assert tiny.same(tiny.weights(nobody), tiny.weights(again))

    assert [evaluation.status for evaluation in run_here(file)] == ["done"] * 5
    assert not [name for name in files_below(tmp_path / "one" / "results" / "models") if name.startswith("base")]
    ((settings,),) = rows(file.parent, "SELECT settings FROM recipes")
    assert str(tmp_path) not in str(settings)
    # the folder in another place, and given as a full path, is the same study
    other = study(tmp_path / "two", ddpm_folder)
    other.write_text(other.read_text().replace("my-unet", str(tmp_path / "one" / "my-unet")))
    elsewhere = Study.load(other)
    assert elsewhere.recipe.retraining.weights == loaded.recipe.retraining.weights
    next(iter(elsewhere.evaluate(InProcess())))
    assert rows(other.parent, "SELECT settings FROM recipes") == [(settings,)]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"preset": "tiny", "pretrained": "my-unet"}, "exactly one of preset and pretrained is expected"),
        ({}, "exactly one of preset and pretrained is expected"),
        ({"family": "latent", "preset": "tiny"}, "autoencoder is missing"),
        ({"pretrained": "my-unte"}, "model: my-unte: no such folder, and not a hub id"),
        ({"pretrained": "my-unte" * 50}, "model: (my-unte){50}: no such folder, and not a hub id"),
        ({"family": "latent", "preset": "tiny", "autoencoder": "my-unet"}, "_class_name 'UNet2DModel'; accepted: Auto"),
        ({"family": "lora"}, "model.pretrained: missing"),
        (
            {"family": "lora", "pretrained": "my-unet", "preset": "tiny"},
            "model.preset: unknown; lora accepts pretrained",
        ),
        ({"family": "lora", "pretrained": "my-unet", "rank": 0}, "model.rank: 0 is not accepted"),
    ],
)
def test_a_model_section_that_cannot_be_followed(ddpm_folder, tmp_path, model, message):
    file = study(tmp_path, ddpm_folder / "unet", model={"train": {"steps": 1}, **model})
    tiny.refused(rf"study\.yaml: .*{message}", run_here, file)


@pytest.mark.parametrize(
    ("sampling", "schedule", "message"),
    [
        ({"steps": 101}, {"num_train_timesteps": 100}, r"sampling\.steps: 101; this model has 100 time steps"),
        ({"scheduler": "pndm"}, {"prediction_type": "sample"}, r"sampling\.scheduler: 'pndm' takes no model that"),
        (
            {"steps": 2, "guidance": 3.0},
            {},
            r"sampling\.guidance: this model follows nothing; leave it out, or give model.conditions",
        ),
    ],
)
def test_what_the_model_cannot_be_sampled_with_is_refused_at_once(tmp_path, sampling, schedule, message):
    folder = tiny_pipelines.ddpm_pipeline(tmp_path / "pipeline", **schedule)
    file = study(tmp_path, folder, sampling={"images": 2, **sampling}, properties=["colourfulness"])
    tiny.refused(rf"study\.yaml: {message}", run_here, file)


def test_an_optimizer_without_its_package_is_refused_at_once(ddpm_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    model = {"pretrained": "my-unet", "train": {"steps": 2, "optimizer": "adam8bit"}}
    file = study(tmp_path, ddpm_folder, model=model)
    tiny.refused(r"study\.yaml: model\.train\.optimizer: 'adam8bit' needs the package", run_here, file)


def test_loading_does_not_touch_torchs_own_random_numbers(tmp_path):
    """PixArt's transformer draws its tables of modulation before its weights are read."""
    folder = tiny_text_pipelines_b.pixart_sigma(tmp_path / "pixart")
    before = torch.random.get_rng_state()
    Pipeline(folder).network()
    assert torch.random.get_rng_state().equal(before)
