import json
import re
import shutil
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from peft import LoraConfig
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from diffcredit.diffusion import Training
from diffcredit.diffusion.adapters import projections, ranks_and_scales
from diffcredit.diffusion.denoisers.stable_diffusion import StableDiffusion
from diffcredit.diffusion.pipeline import Pipeline, pipeline
from diffcredit.diffusion.text_to_image import LoRAFamily, TextToImageLoRA
from diffcredit.diffusion.training import train
from diffcredit.errors import DiffcreditError
from diffcredit.retraining.pruning import prune_ranks
from diffcredit.study.study import Study
from tiny_study import files_below, recorded_values, rows, run_here, write_study

from . import tiny, tiny_pipelines
from .tiny_pipelines import STUDY, contributions, pictures

PROMPTS = ("a cat", "two dogs", "a bee in the sun")
CAPTIONS = ("a cat", "two dogs", "a cat", "a bee in the sun", "two dogs", "a cat")
SEEDS = [0, 1, 5, 9]
STEPS = 4
ADAPTER = "pytorch_lora_weights.safetensors"


@pytest.fixture(scope="module")
def base(sd_folder) -> Pipeline:
    return pipeline(str(sd_folder))


@pytest.fixture(scope="module")
def fresh(base) -> TextToImageLoRA:
    return TextToImageLoRA.create(base, 4, PROMPTS, None, 16, seed=0)


@pytest.fixture(scope="module")
def adapted(fresh) -> TextToImageLoRA:
    """With an adapter that changes its images, as a trained one does."""
    generator, clone = torch.Generator().manual_seed(0), fresh.clone()
    for parameter in clone.network.parameters():
        if parameter.requires_grad:
            parameter.data = torch.randn(parameter.shape, generator=generator) / 2
    return clone


@pytest.fixture
def plain(sd_folder) -> StableDiffusionPipeline:
    """The pipeline as any user of diffusers loads it."""
    loaded = StableDiffusionPipeline.from_pretrained(sd_folder, safety_checker=None)
    loaded.set_progress_bar_config(disable=True)
    return loaded


def theirs(plain: StableDiffusionPipeline, guidance: float = 7.5) -> np.ndarray:
    images = plain(
        [PROMPTS[seed % 3] for seed in SEEDS],
        height=16,
        width=16,
        num_inference_steps=STEPS,
        guidance_scale=guidance,
        generator=[torch.Generator().manual_seed(seed) for seed in SEEDS],
        output_type="np",
    ).images
    return (images * 255).round()


def states(base: Pipeline, texts) -> torch.Tensor:
    return base.conditioner.embed(texts, 16)["encoder_hidden_states"]


def difference(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(float) - other).max())


# -- the same images as diffusers


@pytest.mark.parametrize(("scheduler", "guidance"), [("pndm", None), ("pndm", 3.0), ("pndm", 1.0), ("ddim", None)])
def test_without_an_adapter_images_are_those_of_the_pipeline(fresh, plain, scheduler, guidance):
    if scheduler == "ddim":
        config = {key: plain.scheduler.config[key] for key in tiny_pipelines.STABLE_DIFFUSION_SCHEDULE}
        plain.scheduler = DDIMScheduler(**config, clip_sample=False)
    ours = fresh.sample(SEEDS, STEPS, scheduler=scheduler, guidance=guidance)
    assert ours.std() > 5, "images that are all alike would agree with anything"
    assert difference(ours, theirs(plain, guidance or 7.5)) <= 1


@pytest.mark.parametrize("share", [None, 0.6])
def test_the_adapter_file_gives_a_plain_pipeline_the_same_images(base, adapted, plain, tmp_path, share):
    """Also with the uneven ranks of a pruned one."""
    before, model = theirs(plain), adapted.clone()
    if share is not None:
        prune_ranks(model.network, share)
    model.save(tmp_path)
    plain.load_lora_weights(tmp_path)
    ours = model.sample(SEEDS, STEPS, scheduler="pndm")
    assert difference(ours, before) > 5
    assert difference(ours, theirs(plain)) <= 1
    # older versions of diffusers would take one alpha for all layers: the file tells the ranks' own
    with safe_open(tmp_path / ADAPTER, "pt") as file:
        told = json.loads(file.metadata()["lora_adapter_metadata"])
    tensors, ranks = load_file(tmp_path / ADAPTER), set()
    plain.unload_lora_weights()
    for name in {name.partition(".lora_")[0] for name in tensors}:
        b, a = (tensors[f"{name}.lora_{factor}.weight"] for factor in "BA")
        layer = name.removeprefix("unet.")
        for usual, pattern in (("r", "rank_pattern"), ("lora_alpha", "alpha_pattern")):
            fits = [value for key, value in told[f"unet.{pattern}"].items() if re.fullmatch(key, layer)]
            assert (fits or [told[f"unet.{usual}"]]) == [len(a)]
        plain.unet.get_submodule(layer).weight.data += b @ a
        ranks.add(len(a))
    assert difference(ours, theirs(plain)) <= 1, "W + B A by hand"
    assert (len(ranks) > 1) == (share is not None)
    state = torch.random.get_rng_state()
    again = TextToImageLoRA.load(tmp_path, base)
    assert torch.random.get_rng_state().equal(state), "loading draws from nobody's random numbers"
    assert again.fingerprint == model.fingerprint
    np.testing.assert_array_equal(again.sample(SEEDS, STEPS, scheduler="pndm"), ours)


# -- prompts


def test_an_image_follows_the_prompt_of_its_seed(adapted):
    together, other = adapted.sample(SEEDS, STEPS), adapted.clone()
    for place, seed in enumerate(SEEDS):
        other.prompts = (PROMPTS[seed % 3],)
        assert tiny.nearly_equal(other.sample([seed], STEPS), together[place : place + 1])
    other.prompts = (PROMPTS[1],)
    assert not tiny.nearly_equal(other.sample([9], STEPS), together[3:])


def test_a_texts_embedding_is_that_of_the_pipeline_bitwise_whatever_its_company(sd_folder, plain):
    alone = Pipeline(sd_folder)  # one that has seen no text yet
    texts = [*PROMPTS, "", "x" * 40]
    single = torch.cat([states(alone, [text]) for text in texts])
    assert states(Pipeline(sd_folder), texts).equal(single)
    for text, hidden in zip(texts, single, strict=True):
        expected, _ = plain.encode_prompt(text, "cpu", 1, False)
        torch.testing.assert_close(hidden, expected[0])
    assert len({tuple(hidden.flatten().tolist()) for hidden in single}) == len(texts)


def test_prompts_come_from_the_captions_or_from_the_one_prompt(sd_folder):
    captioned = contributions(captions=CAPTIONS)
    family = LoRAFamily(str(sd_folder), rank=2)
    prompts = family.start(captioned, seed=0).prompts
    assert sorted(prompts) == sorted(set(CAPTIONS))
    reordered = contributions(captions=CAPTIONS[::-1])
    assert family.start(reordered, seed=0).prompts == prompts

    one = LoRAFamily(str(sd_folder), rank=2, prompt="a drawing").start(captioned, seed=0)
    assert one.prompts == ("a drawing",)
    batch = one.encode(captioned.images, captioned.captions)
    assert batch.condition["encoder_hidden_states"].equal(states(one.base, ["a drawing"] * 6))
    by_caption = family.start(captioned, seed=0).encode(captioned.images, captioned.captions)
    assert by_caption.condition["encoder_hidden_states"].equal(states(one.base, CAPTIONS))
    assert one.encoding != family.start(captioned, seed=0).encoding


def test_without_captions_a_prompt_is_needed(sd_folder, fresh):
    family, some = LoRAFamily(str(sd_folder)), contributions(captions=("a cat", "", "two dogs", "", "a bee", "a cat"))
    missing = r"model\.prompt: missing, and then a caption for every image is needed; "
    tiny.refused(f"{missing}the contributions have none", family.start, contributions(), 0)
    tiny.refused(f"{missing}2 of 6 images have none, such as '2'", family.start, some, 0)
    tiny.refused("the model follows texts, and these images have none", fresh.encode, pictures(2))
    assert LoRAFamily(str(sd_folder), prompt="").start(some, seed=0).prompts == ("",)


# -- the adapter


@pytest.mark.slow
def test_v_prediction(tmp_path):
    folder = tiny_pipelines.stable_diffusion(tmp_path / "sd", prediction_type="v_prediction")
    model = TextToImageLoRA.create(pipeline(str(folder)), 2, PROMPTS, None, 16, seed=0)
    check_loss(model, lambda a, x, noise: a.sqrt() * noise - (1 - a).sqrt() * x)  # Salimans and Ho 2022
    other = StableDiffusionPipeline.from_pretrained(folder, safety_checker=None)
    assert difference(model.sample(SEEDS, STEPS, scheduler="pndm"), theirs(other)) <= 1


def test_loss_is_the_closed_form(adapted):
    check_loss(adapted, lambda a, x, noise: noise)


def check_loss(model, target):
    """``target`` of (ᾱ, the latents, the noise) is what the network learns to predict."""
    data, t = model.encode(pictures(3), PROMPTS), torch.tensor([1, 499, 999])
    noise = torch.randn(data.x.shape, generator=torch.Generator().manual_seed(2))
    betas = np.linspace(np.sqrt(0.00085), np.sqrt(0.012), 1000) ** 2
    a = torch.from_numpy(np.cumprod(1 - betas)[t.numpy()])[:, None, None, None]
    x_t = (a.sqrt() * data.x + (1 - a).sqrt() * noise).float()
    with torch.no_grad():
        predicted = model.network(x_t, t, encoder_hidden_states=states(model.base, PROMPTS)).sample
        losses = model.loss(data, t, noise)
    expected = (predicted - target(a, data.x, noise)).square().mean(dim=(1, 2, 3))
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5, check_dtype=False)


def test_training_changes_the_adapter_alone(fresh, base):
    before = {name: tensor.clone() for name, tensor in fresh.base._network.state_dict().items()}
    model = fresh.clone()
    train(model, model.encode(pictures(6), CAPTIONS), Training(steps=3, batch_size=4, learning_rate=1e-2), seed=0)
    assert tiny.same(base._network.state_dict(), before)
    assert model.fingerprint != fresh.fingerprint
    for (name, own), original in zip(model.network.named_parameters(), fresh.network.parameters(), strict=True):
        assert own.requires_grad == ("lora_" in name)
        assert (own is original) != own.requires_grad, "what is frozen is shared, what is trained is not"
        assert own.equal(original) != own.requires_grad


@pytest.mark.parametrize("share", [None, 0.6])
def test_the_model_of_nobody_is_the_pipeline_without_an_adapter(adapted, plain, share):
    model = adapted.clone()
    if share is not None:
        prune_ranks(model.network, share)
    nobody, again, other = (model.untrained(seed) for seed in (3, 3, 4))
    assert difference(nobody.sample(SEEDS, STEPS, scheduler="pndm"), theirs(plain)) <= 1
    shapes = [[p.shape for p in one.network.parameters() if p.requires_grad] for one in (model, nobody)]
    assert shapes[0] == shapes[1]
    assert nobody.fingerprint == again.fingerprint != other.fingerprint


def test_fingerprint(fresh, adapted, base, sd_folder, tmp_path):
    copied = pipeline(str(shutil.copytree(sd_folder, tmp_path / "elsewhere")))
    assert copied.fingerprint == base.fingerprint
    assert TextToImageLoRA.create(copied, 4, PROMPTS, None, 16, seed=0).fingerprint == fresh.fingerprint
    for part in ("unet", "text_encoder"):
        folder = shutil.copytree(sd_folder, tmp_path / part)
        (file,) = (folder / part).glob("*.safetensors")
        tensors = load_file(file)
        name = next(name for name, tensor in tensors.items() if tensor.is_floating_point())
        save_file(tensors | {name: tensors[name] * 1.001}, file, {"format": "pt"})
        assert pipeline(str(folder)).fingerprint != base.fingerprint
    others = [
        adapted,
        TextToImageLoRA.create(base, 4, PROMPTS, None, 16, seed=1),
        TextToImageLoRA.create(base, 4, PROMPTS[:2], None, 16, seed=0),
        TextToImageLoRA.create(base, 4, PROMPTS, "a cat", 16, seed=0),
        TextToImageLoRA.create(base, 4, PROMPTS, None, 32, seed=0),
    ]
    assert len({model.fingerprint for model in [fresh, *others]}) == 6


def test_a_rank_of_256_on_stable_diffusion_has_51_million_parameters():
    """r (in + out) of each of the 128 attention projections of Stable Diffusion 1.5."""
    with torch.device("meta"):
        network = UNet2DConditionModel(  # its config.json; the rest are defaults
            sample_size=64,
            in_channels=4,
            out_channels=4,
            block_out_channels=(320, 640, 1280, 1280),
            layers_per_block=2,
            cross_attention_dim=768,
            attention_head_dim=8,
        )
    assert sum(p.numel() for p in network.parameters()) == 859_520_964
    expected = 0
    # transformer blocks of each width: two on the way down, three on the way up, one in the middle
    for width, blocks in ((320, 5), (640, 5), (1280, 5 + 1)):
        own = 4 * (width + width)
        across = 2 * (width + width) + 2 * (768 + width)
        expected += 256 * blocks * (own + across)
    network.requires_grad_(False)
    names = projections(network, StableDiffusion.targets)
    assert len(names) == 16 * 8
    config = LoraConfig(**ranks_and_scales(dict.fromkeys(names, 256), {}))
    with torch.device("meta"):
        network.add_adapter(config)
    trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
    assert trained == expected
    assert trained / 1e6 == pytest.approx(51.0, abs=0.05)


# -- what is refused


@pytest.fixture
def folder(sd_folder, tmp_path) -> Path:
    """The test's own copy of the pipeline."""
    return shutil.copytree(sd_folder, tmp_path / "sd")


def test_a_folder_that_is_no_such_pipeline_is_refused(folder, tmp_path, ddpm_folder):
    shutil.rmtree(folder / "scheduler")
    tiny.refused("/sd: has no folder 'scheduler'", pipeline, str(folder))
    tiny.refused(r"model_index\.json: no such file", pipeline, str(folder / "unet"))
    accepted = "accepted: StableDiffusionPipeline, .*, or a class of your own as model.denoiser: my_package.module"
    tiny.refused(rf"model_index\.json: _class_name 'DDPMPipeline'; {accepted}", pipeline, str(ddpm_folder))


@pytest.mark.parametrize(
    ("part", "kind", "keep"),
    [("unet", "UNet2DConditionModel", None), ("vae", "AutoencoderKL", -100), ("text_encoder", "CLIPTextModel", -100)],
)
def test_missing_and_corrupt_weights_are_named(folder, part, kind, keep):
    (file,) = (folder / part).glob("*.safetensors")
    content = file.read_bytes()
    file.unlink()
    if keep is not None:
        file.write_bytes(content[:keep])
    tiny.refused(rf"/sd/{part}: {kind} cannot be loaded from there", encode, folder)


def encode(folder: Path) -> None:
    """Text encoders are read at the first text, the network when it is first needed."""
    pipeline = Pipeline(folder)
    pipeline.conditioner.embed(["a cat"], 16)
    pipeline.network()


def test_a_tokenizer_of_another_text_encoder_a_corrupt_one_and_none_are_refused(folder):
    file = folder / "tokenizer" / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["vocab"]["zz"] = 190
    file.write_text(json.dumps(tokenizer))
    tiny.refused(r"/sd/tokenizer: 191 tokens; the text encoder knows 190", encode, folder)
    file.write_text("{")
    tiny.refused(r"/sd/tokenizer: CLIPTokenizer cannot be loaded from there", encode, folder)
    file.unlink()
    tiny.refused(r"/sd/tokenizer: has neither tokenizer\.json nor vocab\.json and merges", encode, folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"in_channels": 9}, r"in_channels 9; the autoencoder has 4 \(inpainting"),
        ({"class_embed_type": "timestep"}, "the U-Net has conditions beside the text"),
    ],
)
def test_inpainting_and_further_conditions_are_refused(folder, change, message):
    config = json.loads((folder / "unet" / "config.json").read_text())
    UNet2DConditionModel.from_config(config | change).save_pretrained(folder / "unet")
    tiny.refused(rf"/sd/unet/config.json: .*{message}", pipeline, str(folder))


def test_the_adapter_of_another_base_is_refused(adapted, tmp_path):
    adapted.save(tmp_path / "adapter")
    other = pipeline(str(tiny_pipelines.stable_diffusion(tmp_path / "other", seed=1)))
    message = r"adapter/config\.json: the adapter of another base than .*other"
    tiny.refused(message, TextToImageLoRA.load, tmp_path / "adapter", other)


def test_what_is_no_saved_adapter_is_named(adapted, base, tmp_path):
    def refused_with(message: str, tensors: dict | None = None, **texts: str) -> None:
        adapted.save(tmp_path)
        if tensors is not None:
            save_file(tensors, tmp_path / ADAPTER)
        for old, new in texts.items():
            file = tmp_path / "config.json"
            file.write_text(file.read_text().replace(f'"{old}"', new))
        tiny.refused(message, TextToImageLoRA.load, tmp_path, base)

    adapted.save(tmp_path)
    tensors = load_file(tmp_path / ADAPTER)
    name = next(name for name in tensors if "lora_B" in name)
    layer = re.escape(name.removeprefix("unet.").removesuffix(".lora_B.weight"))
    others = {key: tensor for key, tensor in tensors.items() if key != name}
    refused_with(rf"{ADAPTER}: not a whole adapter; lora_B of {layer} is missing", others)
    refused_with(
        rf"{ADAPTER}: {layer}\.lora_B\.weights is no factor of LoRA", tensors | {f"{name}s": torch.zeros(3, 5)}
    )
    another = rf"{ADAPTER}: not an adapter of this network: {layer} has lora_A .* and lora_B \(3, 5\); for .* they are "
    refused_with(another, tensors | {name: torch.zeros(3, 5)})
    pair = {key for key in tensors if key.startswith(name.removesuffix("B.weight"))}
    rest = {key: tensor for key, tensor in tensors.items() if key not in pair}
    adapted.save(tmp_path)
    save_file(rest, tmp_path / ADAPTER)
    with pytest.raises(DiffcreditError, match="damaged"):
        TextToImageLoRA.load(tmp_path, base)
    refused_with(r"config\.json: family 'ddpm'; accepted: 'lora'", lora='"ddpm"')
    refused_with(r"config\.json: not the description of a saved model; 'base' is missing", base='"bass"')
    refused_with(r"config\.json: cannot be read", family="")
    adapted.save(tmp_path)
    (tmp_path / ADAPTER).write_bytes((tmp_path / ADAPTER).read_bytes()[:-10])
    tiny.refused(rf"{ADAPTER}: the saved weights are corrupt", TextToImageLoRA.load, tmp_path, base)
    for file in (ADAPTER, "config.json"):
        (tmp_path / file).unlink()
        tiny.refused(rf"{file}: no such file", TextToImageLoRA.load, tmp_path, base)


@pytest.mark.parametrize("package", ["peft", "transformers"])
def test_a_missing_package_is_named_with_its_extra(folder, base, monkeypatch, package):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    message = r'need transformers and peft: pip install "diffcredit\[lora\]"'
    if package == "peft":
        tiny.refused(message, TextToImageLoRA.create, base, 2, PROMPTS, None, 16, 0)
    else:
        tiny.refused(message, pipeline, str(folder))


# -- in a study


def study(folder: Path, sd_folder: Path) -> Path:
    captions = {"ann": ["a cat", "a dog", "a cow"], "bob": ["a cat", "two cats", "a bee"], "cem": ["the sun"] * 3}
    tiny_pipelines.captioned_folder(folder / "images", captions)
    training = {"steps": 2, "batch_size": 4, "learning_rate": 0.01}
    own = {
        "contributions": STUDY["contributions"] | {"source": "imagefolder", "holdout": 0.25},
        "model": {"family": "lora", "pretrained": str(sd_folder), "rank": 2, "train": training},
        "sampling": {"steps": 2, "images": 4, "scheduler": "pndm", "guidance": 3.0},
    }
    return write_study(folder, STUDY | own)


def test_a_study(sd_folder, tmp_path, monkeypatch):
    """From captions in a study file to values; a second run finds all that was made."""
    file = study(tmp_path, sd_folder)
    assert [evaluation.status for evaluation in run_here(file)] == ["done"] * 5
    values = recorded_values(file.parent)
    assert len(values) == 10
    assert None not in values.values()
    assert len(set(values.values())) > 5
    ((settings,),) = rows(file.parent, "SELECT settings FROM recipes")
    assert str(tmp_path) not in str(settings)
    assert str(sd_folder) not in str(settings)
    kept = files_below(tmp_path / "results" / "models")
    assert {name for name in kept if name.startswith("base-") and name.endswith(ADAPTER)}
    assert len([name for name in kept if name.startswith("latents-")]) == 1

    pipeline.cache_clear()  # as in a new process, which has read no text yet
    for method in ("encode", "create"):
        monkeypatch.setattr(TextToImageLoRA, method, Mock(side_effect=AssertionError("made twice")))
    again = Study.load(file)
    assert again.recipe.retraining.weights == again.prepared.base.fingerprint
    assert files_below(tmp_path / "results" / "models") == kept
