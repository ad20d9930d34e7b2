# ruff: noqa: E501 - one line for each refusal
"""Models that a study file cannot have, refused through the command line: one line, exit code 2."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from diffusion import tiny_pipelines, tiny_text_pipelines
from diffusion.ways import CAPTIONS, LABELS, NUMBERS, Ways, change
from tiny_study import write_study

FINE_TUNE = {"method": "fine_tune", "steps": 1}
SERVED = "accepted: StableDiffusionPipeline, StableDiffusionXLPipeline, StableDiffusion3Pipeline, FluxPipeline"
DIT = {"family": "ddpm", "preset": "dit-tiny"}
FLOW = {**DIT, "objective": "flow"}
LABELLED = {**DIT, "conditions": "labels"}
LATENT = {"family": "latent", "autoencoder": "autoencoder"}
PARTS = ("autoencoder", "text_encoder", "labelled_unet", "labelled_dit", "sd3", "flux")
SD3 = {"family": "lora", "pretrained": "sd3"}


def images(folder: Path, texts: tuple[str | None, ...], side: int = 16) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for place, person in enumerate(("ann", "ann", "bob", "bob", "cem", "cem")):
        pixels = np.random.default_rng(place).integers(0, 256, (side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{place}.png")
        text = texts[place % len(texts)]
        rows.append({"file_name": f"{place}.png", "contributor": person} | ({} if text is None else {"text": text}))
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def refused(ways: Ways, tmp_path: Path, diffcredit: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """Plans a study with this model section, whose parts are those of :mod:`diffusion.ways`; what is said."""
    monkeypatch.setenv("DIFFCREDIT_NOTES", str(tmp_path / "notes"))

    def refusal(
        model: dict[str, Any],
        texts: tuple[str | None, ...] = LABELS,
        side: int = 16,
        train: dict[str, Any] | None = None,
        **sections: Any,
    ) -> str:
        images(tmp_path / "images", texts)
        named = {
            key: str(ways.part(value)) if isinstance(value, str) and value in PARTS else value
            for key, value in model.items()
        }
        file = write_study(
            tmp_path,
            {
                "contributions": {"source": "imagefolder", "path": "images", "resolution": side},
                "model": named | {"train": {"steps": 1, "batch_size": 2, **(train or {})}},
                "retraining": FINE_TUNE,
                "sampling": {"steps": 1, "images": 2},
                "properties": ["colourfulness"],
                "stop": {"evaluations": 3},
                **sections,
            },
        )
        capsys.readouterr()  # what was said while parts were made
        said = diffcredit.refused("plan", file)
        start = f"error: {file}: "
        assert said.startswith(start)
        assert not (tmp_path / "results" / "models").exists()  # nothing was trained
        return said.removeprefix(start).strip()

    return refusal


@pytest.mark.parametrize(
    ("model", "side", "message"),
    [
        (DIT, 17, "17 does not fit model.preset 'dit-tiny', whose patches have 2 pixels; accepted: multiples of 2"),
        (
            {"family": "ddpm", "preset": "tiny"},
            18,
            "18 does not fit model.preset 'tiny', which halves it 2 times; accepted: multiples of 4",
        ),
        ({**LATENT, "preset": "dit-tiny"}, 17, "17; the autoencoder takes multiples of 2 pixels"),
        (
            {**LATENT, "preset": "dit-tiny"},
            18,
            "18 does not fit model.preset 'dit-tiny', whose patches have 4 pixels; accepted: multiples of 4",
        ),
        (SD3, 18, "18: latents of 9 × 9; this transformer takes sides that are multiples of 2"),
        (SD3, 64, "64: latents of 32 × 32; this transformer takes at most 16 × 16"),
    ],
)
def test_a_resolution_that_does_not_fit(refused, model, side, message):
    assert refused(model, side=side) == f"contributions.resolution: {message}"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("WanPipeline", "it makes videos; "),
        ("LTXVideoPipeline", "it makes videos; "),
        ("CogVideoXPipeline", "it makes videos; "),
        ("StableDiffusionInpaintPipeline", "it completes a given image; "),
        ("FluxFillPipeline", "it completes a given image; "),
        ("QwenImageEditPipeline", "it changes a given image; "),
        ("StableDiffusionXLControlNetPipeline", "it is conditioned on an image beside the text; "),
        ("FluxControlPipeline", "it is conditioned on an image beside the text; "),
        ("LatentConsistencyModelPipeline", "it is distilled to a few steps, which no training objective continues; "),
        ("SanaSprintPipeline", "it is distilled to a few steps, which no training objective continues; "),
    ],
)
def test_a_pipeline_of_another_kind_says_why(refused, tmp_path, kind, reason):
    folder = tiny_pipelines.described(tmp_path / "pipeline", kind)
    said = refused({"family": "lora", "pretrained": str(folder)})
    assert said.startswith(f"model: {folder / 'model_index.json'}: _class_name {kind!r}: {reason}{SERVED}")
    assert "a class of your own" not in said


def test_an_unknown_pipeline_says_how_to_add_it(refused, tmp_path):
    folder = tiny_pipelines.described(tmp_path / "pipeline", "LuminaPipeline")
    said = refused({"family": "lora", "pretrained": str(folder)})
    assert said.startswith(f"model: {folder / 'model_index.json'}: _class_name 'LuminaPipeline'; {SERVED}")
    assert said.endswith("or a class of your own as model.denoiser: my_package.module:MyDenoiser")
    said = refused({"family": "lora", "pretrained": str(tmp_path / "images")})
    assert said.endswith("model_index.json: no such file; a folder with a model has it")


@pytest.mark.parametrize("part", ["text_encoder", "tokenizer_2", "vae", "scheduler", "transformer"])
def test_a_pipeline_without_a_part(refused, tmp_path, part):
    folder = tiny_text_pipelines.stable_diffusion_3(tmp_path / "pipeline")
    shutil.rmtree(folder / part)
    said = refused({"family": "lora", "pretrained": str(folder)}, CAPTIONS)
    assert said == f"model: {folder}: has no folder {part!r}, which model_index.json names"


@pytest.mark.parametrize(
    ("model", "texts", "message"),
    [
        (LABELLED, (*LABELS, None), "model.conditions: labels: a text for every image is needed; 1 of 6 images have none, such as '3.png'"),
        (LABELLED, (None,), "model.conditions: labels: a text for every image is needed; the contributions have none"),
        (
            {"family": "ddpm", "preset": "mmdit-tiny", "conditions": "captions", "text_encoder": "text_encoder"},
            (None, *CAPTIONS),
            "model.conditions: captions: a text for every image is needed; 2 of 6 images have none, such as '0.png'",
        ),
        (SD3, ("a cat", None), "model.prompt: missing, and then a caption for every image is needed; 3 of 6 images have none, such as '1.png'"),
        (SD3, (None,), "model.prompt: missing, and then a caption for every image is needed; the contributions have none"),
    ],
)  # fmt: skip
def test_images_with_and_without_texts(refused, model, texts, message):
    assert refused(model, texts) == message


@pytest.mark.parametrize(
    ("model", "texts", "side", "message"),
    [
        ({"family": "latent", "pretrained": "labelled_dit", "conditions": "labels"}, (*LABELS, "violet"), 32, "contributions: 3.png: the label 'violet' is unknown; the model's 3 classes: red, green, blue"),
        ({"family": "ddpm", "pretrained": "labelled_unet", "conditions": "labels"}, LABELS, 16, "contributions: 0.png: the label 'red' is unknown; the model's 3 classes: 0, 1, 2"),
        ({"family": "lora", "pretrained": "labelled_dit"}, NUMBERS, 32, "contributions: 0.png: the label '0' is unknown; the model's 3 classes: red, green, blue"),
        # the fourth class is that of no label
        ({"family": "ddpm", "pretrained": "labelled_unet", "conditions": "labels"}, (*NUMBERS, "3"), 16, "contributions: 3.png: the label '3' is unknown; the model's 3 classes: 0, 1, 2"),
    ],
)  # fmt: skip
def test_labels_that_a_network_does_not_know(refused, model, texts, side, message):
    assert refused(model, texts, side) == message


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({**DIT, "preset": "dit-huge"}, "model.preset: 'dit-huge' is unknown; accepted: tiny, mini, light, small, ddpm-cifar, latent-small, ldm-celebahq, dit-tiny, dit-small, dit-s, mmdit-tiny, mmdit-small"),
        ({**DIT, "preset": "mmdit-tiny"}, "model.preset: 'mmdit-tiny' follows captions; model.conditions: captions is needed"),
        ({**LABELLED, "preset": "mmdit-tiny"}, "model.preset: 'mmdit-tiny' follows captions; model.conditions: captions is needed"),
        ({**DIT, "conditions": "captions", "text_encoder": "text_encoder"}, "model.preset: 'dit-tiny' follows labels, not captions; accepted with captions: mmdit-tiny, mmdit-small"),
        ({"family": "ddpm", "preset": "tiny", "conditions": "captions", "text_encoder": "text_encoder"}, "model.preset: 'tiny' follows no captions; accepted with captions: mmdit-tiny, mmdit-small"),
        ({**DIT, "conditions": "tags"}, "model.conditions: 'tags' is not accepted; Input should be 'labels' or 'captions'"),
        ({**LABELLED, "condition_dropout": 1.0}, "model.condition_dropout: 1.0 is not accepted; Input should be less than 1"),
        ({**FLOW, "density": {"name": "cosine"}}, "model.density.name: 'cosine' is not accepted; Input should be 'uniform' or 'logit_normal'"),
        ({**FLOW, "density": {"std": 0}}, "model.density.std: 0 is not accepted; Input should be greater than 0"),
        ({**FLOW, "density": {"sigma": 1}}, "model.density.sigma: unknown; accepted: name, mean, std, shift"),
        ({**SD3, "rank": 0}, "model.rank: 0 is not accepted; Input should be greater than or equal to 1"),
        ({**SD3, "base": "fp16"}, "model.base: 'fp16' is not accepted; Input should be 'float32', 'bf16' or '8bit'"),
    ],
)  # fmt: skip
def test_a_setting_that_is_not_there(refused, model, message):
    assert refused(model) == message


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"family": "latent", "autoencoder": "autoencoder", "preset": "mmdit-tiny", "conditions": "captions"}, "text_encoder and conditions: captions go together; give both or neither"),
        ({**DIT, "text_encoder": "text_encoder"}, "text_encoder and conditions: captions go together; give both or neither"),
        ({**DIT, "density": {"name": "uniform"}}, "density is that of σ, for objective: flow; leave it out"),
        ({**DIT, "condition_dropout": 0.1}, "condition_dropout needs conditions: labels or captions"),
        ({"family": "ddpm", "pretrained": "labelled_unet", "conditions": "captions", "text_encoder": "text_encoder"}, "pretrained networks follow labels or nothing here; with captions, family: lora takes them"),
        ({"family": "ddpm", "preset": "dit-tiny", "pretrained": "labelled_unet"}, "exactly one of preset and pretrained is expected"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together(refused, model, reason):
    said = refused(model)
    assert said.startswith("model: {")
    assert said.endswith(f" is not accepted by {model['family']}; {reason}")


def test_a_density_for_a_noise_schedule(refused, tmp_path):
    folder = tiny_pipelines.stable_diffusion(tmp_path / "pipeline")
    model = {"family": "lora", "pretrained": str(folder), "density": {"name": "uniform"}}
    assert refused(model) == f"model.density: {folder} has a noise schedule and no density of σ; leave it out"


def test_what_is_not_a_text_encoder(refused, ways):
    model = {"family": "ddpm", "preset": "mmdit-tiny", "conditions": "captions", "text_encoder": "autoencoder"}
    file = ways.part("autoencoder") / "config.json"
    assert refused(model) == f"{file}: architectures None; accepted: BertModel, CLIPTextModel, T5EncoderModel"


def test_labels_of_a_network_that_has_none_and_none_of_one_that_has(refused, ways, tmp_path):
    folder = tiny_pipelines.ddpm_pipeline(tmp_path / "pipeline")
    said = refused({"family": "ddpm", "pretrained": str(folder), "conditions": "labels"})
    assert said == f"{folder / 'unet' / 'config.json'}: a network without class labels; leave model.conditions out"
    said = refused({"family": "ddpm", "pretrained": "labelled_unet"})
    file = ways.part("labelled_unet") / "config.json"
    assert said == f"{file}: a class-conditional network; model.conditions: labels is needed"


def test_names_of_other_classes_than_the_networks(refused, ways, tmp_path):
    folder = shutil.copytree(ways.part("labelled_dit"), tmp_path / "dit")
    index = folder / "model_index.json"
    change(index, id2label={"0": "red", "1": "green"})
    for model, where in (
        (
            {"family": "lora", "pretrained": str(folder)},
            f"model: {index}: id2label names 2 classes, and the network has 3",
        ),
        (
            {"family": "latent", "pretrained": str(folder), "conditions": "labels"},
            f"{folder / 'transformer' / 'config.json'}: 3 classes beside that of no label, and 2 names",
        ),
    ):
        assert refused(model, ("red", "green"), 32) == where
    change(index, id2label={"0": "red", "2": "green", "3": "blue"})
    said = refused({"family": "lora", "pretrained": str(folder)}, ("red", "green"), 32)
    assert said == f"model: {index}: id2label does not number its 3 classes 0 to 2"


def test_classes_that_are_no_labels(refused, ways, tmp_path):
    folder = shutil.copytree(ways.part("labelled_unet"), tmp_path / "unet")
    change(folder / "config.json", class_embed_type="timestep", num_class_embeds=None)
    said = refused({"family": "ddpm", "pretrained": str(folder), "conditions": "labels"}, NUMBERS)
    file = folder / "config.json"
    assert said == f"{file}: class_embed_type 'timestep'; accepted: null, with num_class_embeds for labels"


def test_guidance_without_anything_to_follow(refused, tmp_path):
    guided = {"steps": 1, "images": 2, "guidance": 3.0}
    nothing = "sampling.guidance: this model follows nothing; leave it out, or give model.conditions"
    assert refused(DIT, sampling=guided) == nothing
    folder = tiny_pipelines.ddpm_pipeline(tmp_path / "pipeline")
    assert refused({"family": "ddpm", "pretrained": str(folder)}, sampling=guided) == nothing
    assert refused({**LABELLED, "condition_dropout": 0}, sampling=guided) == (
        "sampling.guidance: 3, and with model.condition_dropout: 0 the model does not learn what guidance starts from; "
        "leave one of them out"
    )


def test_prompts_that_a_model_does_not_follow(refused):
    stated = {"steps": 1, "images": 2, "prompts": ["violet"]}
    assert refused(DIT, sampling=stated) == "sampling.prompts: the model follows no prompts; leave them out"
    said = refused(LABELLED, sampling=stated)
    assert said == "sampling.prompts: the label 'violet' is unknown; the model's 3 classes: blue, green, red"


def test_what_flow_matching_has_not(refused):
    said = refused(FLOW, train={"min_snr": 5.0})
    assert said.startswith("model.train: min_snr: this model is trained by flow matching, where the density of σ says")
    said = refused(FLOW, sampling={"steps": 1, "images": 2, "scheduler": "dpm"})
    assert said.startswith("sampling.scheduler: 'dpm' is for models with a noise schedule; this one is trained by flow")
    said = refused(FLOW, retraining={"method": "sparsified", "importance": "diff-pruning"})
    assert said.startswith("retraining: importance: 'diff-pruning' leaves out time steps of much noise")
    assert said.endswith("accepted: taylor, magnitude, random, reinitialised")


@pytest.mark.parametrize(
    ("model", "retraining", "message"),
    [
        (SD3, {"method": "lora"}, "method: 'lora' is for models without an adapter"),
        (SD3, {"method": "sparsified", "depth": 0.5}, "depth: 0.5 is for transformers that are trained whole, not for a model with LoRA adapters"),
        ({"family": "ddpm", "preset": "tiny"}, {"method": "sparsified", "depth": 0.5}, "depth: 0.5 is for transformers that are trained whole, not for UNet2DModel"),
    ],
)  # fmt: skip
def test_a_retraining_that_the_model_does_not_take(refused, model, retraining, message):
    assert refused(model, retraining=retraining).startswith(f"retraining: {message}")


def test_the_adapter_of_another_base(refused, ways, tmp_path):
    model = ways.start("lora sd3")
    model.save(tmp_path / "adapter")
    file = tmp_path / "adapter" / "pytorch_lora_weights.safetensors"
    flux = {"family": "lora", "pretrained": "flux", "adapter": str(file), "prompt": "a cat"}
    said = refused(flux)
    assert str(file) in said
    assert "transformer_blocks" in said
