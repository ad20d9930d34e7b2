"""A user's adapter: its update by hand, its place in a study file, and what is refused."""

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import StableDiffusionPipeline, UNet2DConditionModel
from safetensors.torch import load_file, save_file

from diffcredit.diffusion.adapter_files import read_adapter
from diffcredit.diffusion.adapters import Adapter, adapter_of, fresh, with_adapter
from diffcredit.diffusion.pipeline import Pipeline, pipeline
from diffcredit.diffusion.text_to_image import LoRAFamily, TextToImageLoRA
from diffcredit.errors import UserError
from diffcredit.retraining.pruning import prune_ranks
from diffcredit.study.study import Study
from tiny_study import write_small

from . import tiny, tiny_pipelines, tiny_text_pipelines, tiny_text_pipelines_b, trained_adapters
from .tiny_pipelines import contributions
from .trained_adapters import Factors, by_ai_toolkit, by_diffusers, by_kohya

PROMPTS = ("a cat",)
LAYER = "mid_block.attentions.0.transformer_blocks.0.attn1.to_q"


@pytest.fixture(scope="module")
def base(sd_folder: Path) -> Pipeline:
    return pipeline(str(sd_folder))


def unet(base: Pipeline) -> UNet2DConditionModel:
    return UNet2DConditionModel.from_pretrained(base.folder / "unet")


@pytest.fixture(scope="module")
def factors(base: Pipeline) -> dict[str, Factors]:
    network = unet(base)
    layers = trained_adapters.adaptable(network, "attentions", "resnets", "conv_out")
    return trained_adapters.factors_of(trained_adapters.trained(network, layers, 4, 2.0))


@pytest.fixture
def file(factors: dict[str, Factors], tmp_path: Path) -> Path:
    return by_kohya(tmp_path / "mine.safetensors", factors)


@torch.no_grad()
def prediction(network: Any) -> torch.Tensor:
    draws = torch.Generator().manual_seed(0)
    x, hidden = torch.randn(2, 4, 8, 8, generator=draws), torch.randn(2, 16, 12, generator=draws)
    return network.eval()(x, torch.tensor([3, 700]), encoder_hidden_states=hidden).sample


# -- the update


@pytest.mark.parametrize("kind", ["mixed", "float16"])
def test_the_update_is_that_of_the_factors_by_hand(base, factors, tmp_path, kind):
    """W + α/r B A, with an α of its own for each layer: diffusers' loader gives layers of the attention another."""
    alphas = {name: 0.3 + index % 3 for index, name in enumerate(factors)}
    own = {name: dataclasses.replace(each, alpha=alphas[name]) for name, each in factors.items()}
    if kind == "float16":  # as trainers often save it
        own = {
            n: dataclasses.replace(each, a=each.a.half().float(), b=each.b.half().float()) for n, each in own.items()
        }
    file, network = by_kohya(tmp_path / "mine.safetensors", own), unet(base)
    if kind == "float16":
        save_file({name: tensor.half() for name, tensor in load_file(file).items()}, file)
        own = {n: dataclasses.replace(each, alpha=float(torch.tensor(each.alpha).half())) for n, each in own.items()}
    before = prediction(network)
    with torch.no_grad():
        for name, each in own.items():
            network.get_submodule(name).weight += each.update
    expected = prediction(network)
    adapter = read_adapter(file, base)
    torch.testing.assert_close(
        prediction(with_adapter(base, adapter)), expected, rtol=0, atol=2e-6 * expected.abs().max()
    )
    assert (expected - before).abs().max() > 0.1 * before.abs().max()
    for name, each in own.items():  # a layer's speed is that of its training to a factor of √2
        assert 0.7 < adapter.scales.get(name, 1.0) / each.scale < 1.42


def test_powers_of_two_leave_the_factors_as_they_were_trained(base, factors, file):
    network = with_adapter(base, read_adapter(file, base))
    for name, each in factors.items():
        layer: Any = network.get_submodule(name)
        assert layer.scaling["default"] == each.scale
        assert layer.lora_A["default"].weight.equal(each.a)
        assert layer.lora_B["default"].weight.equal(each.b)


def test_one_step_of_training_is_that_of_plain_peft(base, factors, file):
    """Scales change how fast layers learn, so that a folded scale would not repeat the user's training."""
    theirs = trained_adapters.trained(unet(base), factors, 4, 2.0)
    ours = with_adapter(base, read_adapter(file, base))
    for network in (theirs, ours):
        weights = [parameter for parameter in network.parameters() if parameter.requires_grad]
        optimizer = torch.optim.Adam(weights, lr=1e-2)
        optimizer.zero_grad()  # plain peft's has those of its training
        draws = torch.Generator().manual_seed(0)
        x, hidden = torch.randn(2, 4, 8, 8, generator=draws), torch.randn(2, 16, 12, generator=draws)
        network.eval()(x, torch.tensor([3, 700]), encoder_hidden_states=hidden).sample.square().mean().backward()
        optimizer.step()
    moved = prediction(ours)
    assert moved.equal(prediction(theirs))
    assert not moved.equal(prediction(with_adapter(base, read_adapter(file, base))))


def test_layers_are_found_by_their_whole_names(base):
    """``conv_out`` is a layer, and no other layer's name ends so; ``proj_out`` ends many."""
    network = base.network()
    like = next(name for name, _ in network.named_modules() if name.endswith("attn1.to_q"))
    short = like.removeprefix("down_blocks.1.")
    found = adapter_of(fresh(base, {like: 2}, {}, seed=0)).ranks
    assert found == {like: 2}
    with pytest.raises(ValueError, match=r"[Tt]arget"):  # peft's own, which a list of names would not raise
        fresh(base, {short: 2}, {}, seed=0)


@pytest.mark.parametrize("share", [0.6, 0.9])
def test_pruned_ranks_of_a_users_adapter_load_in_diffusers(base, file, tmp_path, share):
    model = TextToImageLoRA.create(base, read_adapter(file, base), PROMPTS, None, 16, seed=0)
    before = {name: layer.scaling["default"] for name, layer in adapted_layers(model.network)}
    prune_ranks(model.network, share)
    assert {name: layer.scaling["default"] for name, layer in adapted_layers(model.network)} == before
    model.save(tmp_path / "pruned")
    plain = StableDiffusionPipeline.from_pretrained(base.folder, safety_checker=None)
    plain.load_lora_weights(tmp_path / "pruned")
    # to rounding: diffusers leaves tensors where the file has them, and products of odd places sum in another order
    torch.testing.assert_close(prediction(plain.unet), prediction(model.network), rtol=0, atol=2e-6)
    again = TextToImageLoRA.load(tmp_path / "pruned", base)
    assert again.fingerprint == model.fingerprint
    assert prediction(again.network).equal(prediction(model.network))
    untrained = adapter_of(model.untrained(1).network)
    assert (untrained.ranks, untrained.scales) == (adapter_of(model.network).ranks, adapter_of(model.network).scales)


def adapted_layers(network: Any) -> list[tuple[str, Any]]:
    return [(name, layer) for name, layer in network.named_modules() if hasattr(layer, "lora_A")]


def test_a_pipeline_without_a_loader_takes_saved_adapters(tmp_path):
    own = Pipeline(tiny_text_pipelines_b.pixart_sigma(tmp_path / "pipeline"), precision="float32")
    model = TextToImageLoRA.create(own, 2, PROMPTS, None, 16, seed=0)
    with torch.no_grad():
        for parameter in model.network.parameters():
            if parameter.requires_grad:
                parameter.normal_()
    model.save(tmp_path / "saved")
    found = read_adapter(tmp_path / "saved", own)
    assert found.fingerprint == adapter_of(model.network).fingerprint
    assert adapter_of(with_adapter(own, found)).fingerprint == found.fingerprint


# -- in a study file


def test_identity_is_that_of_the_content(sd_folder, factors, file, tmp_path):
    moved = shutil.copy(file, tmp_path / "other.safetensors")
    toolkit = by_ai_toolkit(tmp_path / "toolkit.safetensors", factors, "unet")
    nothing = LoRAFamily(str(sd_folder), prompt="x")
    families = [LoRAFamily(str(sd_folder), prompt="x", adapter=str(each)) for each in (file, moved, toolkit)]
    one, again, other = (family.identity() for family in families)
    assert one == again
    assert one != other, "the same update with other scales, which learns at another speed"
    assert str(tmp_path) not in json.dumps(one)
    assert "rank" not in one
    assert nothing.identity()["rank"] == 16
    assert [family.trained for family in (families[0], nothing)] == [True, False]
    start = families[0].start(contributions(), seed=0)
    assert start.fingerprint == families[1].start(contributions(), seed=9).fingerprint
    assert start.fingerprint != families[2].start(contributions(), seed=0).fingerprint


def test_a_rank_beside_an_adapter_must_be_its_own(sd_folder, base, factors, file, tmp_path):
    four = {name: each for name, each in factors.items() if each.rank == 4}
    even = by_kohya(tmp_path / "even.safetensors", four)
    LoRAFamily(str(sd_folder), rank=4, adapter=str(even)).identity()
    for path, rank, message in ((even, 8, "8, but .*even.safetensors has rank 4"), (file, 4, "has ranks from 2 to 4")):
        tiny.refused(
            rf"model\.rank: .*{message}; leave rank out",
            LoRAFamily(str(sd_folder), rank=rank, adapter=str(path)).identity,
        )


@pytest.mark.parametrize("place", ["mine.safetensors", "adapter"])
def test_a_place_beside_the_study_file(sd_folder, file, tmp_path, place, monkeypatch):
    folder = tmp_path / "study"
    if place == "adapter":
        (folder / place).mkdir(parents=True)
        shutil.copy(file, folder / place / "epoch-10.safetensors")
    else:
        folder.mkdir()
        shutil.copy(file, folder / place)
    training = {"steps": 1, "batch_size": 2}
    model = {"family": "lora", "pretrained": str(sd_folder), "prompt": "x", "adapter": place, "train": training}
    study = write_small(folder, {"model": model})
    monkeypatch.chdir(tmp_path)
    family = Study.load(study).prepared.family
    assert family.start(contributions(), seed=0).fingerprint
    # nor is one found in the working directory
    (folder / place).rename(tmp_path / place) if place == "adapter" else (folder / place).unlink()
    gone = re.escape(str(folder / place))
    tiny.refused(f"{gone}: no such file or folder", Study.load(study).prepared.family.start, contributions(), 0)


@pytest.mark.parametrize("family", ["ddpm", "latent"])
def test_other_families_take_no_adapter(file, tmp_path, family):
    model = {"family": family, "preset": "tiny", "adapter": str(file), "train": {"steps": 1}}
    study = write_small(tmp_path / "study", {"model": model})
    with pytest.raises(UserError, match=rf"study\.yaml: model\.adapter: unknown; {family} accepts ") as raised:
        Study.load(study).prepared.family  # noqa: B018
    assert "\n" not in str(raised.value)


# -- what is refused


def changed(file: Path, change: Any) -> Path:
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)
    return file


def put(name: str, *shape: int) -> Any:
    return lambda tensors: tensors.update({name: torch.ones(*shape)})


KOHYA = "lora_unet_" + LAYER.replace(".", "_")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("lora_te_text_model_encoder_layers_0_mlp_fc1.lora_up.weight", 4, 2), "lora_te_.* changes a text encoder"),
        (put("text_encoder.layers.0.lora_A.weight", 4, 2), "text_encoder.* changes a text encoder, which studies keep"),
        (put(f"{KOHYA}.dora_scale", 16), "is of DoRA; plain LoRA is accepted"),
        (put(f"{KOHYA}.hada_w1_a", 16, 2), "is of LoHa; plain"),
        (put(f"{KOHYA}.lokr_w1", 2, 2), "is of LoKr; plain"),
        (put(f"{KOHYA}.lora_mid.weight", 2, 2, 3, 3), "is of LoCon with a Tucker"),
        (put(f"{KOHYA}.diff_b", 16), "is of whole weights beside LoRA"),
        (put(f"{KOHYA}.strange", 16), r"StableDiffusionPipeline does not read it as an adapter \(The following keys"),
        (lambda t: t.pop(f"{KOHYA}.lora_up.weight"), "StableDiffusionPipeline does not read it as an adapter"),
        (lambda t: t.update({f"{KOHYA}.alpha": torch.tensor(-1.0)}), rf"{LAYER} has a scale α/r of -0\.25"),
        (lambda t: t[f"{KOHYA}.lora_up.weight"].fill_(float("nan")), rf"{LAYER} has .* numbers that are not finite"),
        (put(f"{KOHYA}.lora_down.weight", 4, 8), rf"{LAYER} has lora_A \(4, 8\) and lora_B \(16, 4\); for .*/unet"),
        (lambda t: t.clear(), "not an adapter; of its 0 tensors, none has 'lora' in its name"),
    ],
)
def test_what_a_study_would_not_see_whole_is_refused(base, file, change, message):
    tiny.refused(rf"mine\.safetensors: .*{message}", read_adapter, changed(file, change), base)


def test_the_adapter_of_another_base_is_refused(base, factors, file, tmp_path):
    """It says the first layer that does not fit, and what the network has."""
    wider = tiny_pipelines.conditional_unet(block_out_channels=(8, 24), norm_num_groups=4)
    layers = trained_adapters.adaptable(wider, "attentions")
    kind = StableDiffusionPipeline
    other = by_diffusers(tmp_path / "wide.safetensors", kind, "unet", trained_adapters.trained(wider, layers, 4, 4.0))
    message = (
        r"wide\.safetensors: not an adapter of this network: down_blocks\.1\.attentions\.0\S+ has lora_A .* for .*/unet"
    )
    tiny.refused(message, read_adapter, other, base)
    deeper = {name.replace("mid_block", "down_blocks.7"): each for name, each in factors.items()}
    message = r"not an adapter of this network: .*/unet \(UNet2DConditionModel\) has no layer down_blocks\.7"
    tiny.refused(message, read_adapter, by_ai_toolkit(tmp_path / "deep.safetensors", deeper, "unet"), base)
    message = r"transformer\.\S+ is not of this pipeline's unet; an adapter of that alone is accepted"
    tiny.refused(message, read_adapter, by_ai_toolkit(tmp_path / "flux.safetensors", factors, "transformer"), base)
    norm = {"conv_norm_out": Factors(torch.ones(2, 8), torch.ones(8, 2), 2.0)}
    message = "conv_norm_out is a GroupNorm in .*; accepted: linear layers and convolutions"
    tiny.refused(message, read_adapter, by_ai_toolkit(tmp_path / "norm.safetensors", norm, "unet"), base)
    file, nothing = tmp_path / "none.safetensors", (torch.ones(0, 8, 3, 3), torch.ones(4, 0, 1, 1))
    save_file({f"unet.conv_out.lora_{name}.weight": each for name, each in zip("AB", nothing, strict=True)}, file)
    tiny.refused(r"conv_out\.lora_A\.weight has no numbers; an adapter of rank 1", read_adapter, file, base)
    save_file({"unet.conv_out.alpha": torch.ones(2), "unet.lora.weight": torch.ones(2)}, file)
    tiny.refused(r"conv_out\.alpha is no factor of LoRA", read_adapter, file, base)


def test_what_diffusers_loads_nothing_of_is_refused(file, tmp_path):
    """Its loader of Stable Diffusion 3 knows none of sd-scripts' names, and says so in a log alone."""
    own = Pipeline(tiny_text_pipelines.stable_diffusion_3(tmp_path / "pipeline"), precision="float32")
    tiny.refused(r"lora_unet_\S+ is not of this pipeline's transformer", read_adapter, file, own)


def test_dora_and_changed_bases_by_peft_are_refused(base, tmp_path):
    kind, network = StableDiffusionPipeline, trained_adapters.trained(unet(base), [LAYER], 4, 4.0, use_dora=True)
    file = by_diffusers(tmp_path / "dora.safetensors", kind, "unet", network)
    tiny.refused("lora_magnitude_vector is of DoRA", read_adapter, file, base)
    network = trained_adapters.trained(unet(base), [LAYER], 4, 4.0)
    network.peft_config["default"].init_lora_weights = "pissa"
    file = by_diffusers(tmp_path / "pissa.safetensors", kind, "unet", network)
    tiny.refused("init_lora_weights that changes the base; plain LoRA is accepted", read_adapter, file, base)
    network.peft_config["default"].init_lora_weights = True
    for change, message in (
        ({"r": 8}, f"says that {LAYER} has rank 8; its factors have 4"),
        ({"lora_alpha": "x"}, "does not state ranks"),
    ):
        for key, value in change.items():
            setattr(network.peft_config["default"], key, value)
        file = by_diffusers(tmp_path / "wrong.safetensors", kind, "unet", network)
        tiny.refused(rf"wrong\.safetensors: lora_adapter_metadata {message}", read_adapter, file, base)
        network.peft_config["default"].r = 4


def test_files_that_are_no_adapters_are_named(base, file, tmp_path):
    weights = base.folder / "unet" / "diffusion_pytorch_model.safetensors"
    tiny.refused(r"not an adapter; of its \d+ tensors, such as \S+, none has 'lora'", read_adapter, weights, base)
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(file.read_bytes()[:-10])
    tiny.refused(r"damaged\.safetensors: not a safetensors file, or a damaged one", read_adapter, damaged, base)
    folder = tmp_path / "folder"
    tiny.refused(
        r"folder: no such file or folder; an adapter's safetensors file is expected", read_adapter, folder, base
    )
    folder.mkdir()
    tiny.refused(r"folder: not a safetensors file, and no folder with one", read_adapter, folder, base)
    for name in ("mine.bin", "mine.pt", "mine.ckpt"):
        torch.save(load_file(file), folder / name)
        tiny.refused(rf"{name}: pickled, which may run code", read_adapter, folder / name, base)
    tiny.refused(r"mine\.bin: pickled, .* save it as safetensors", read_adapter, folder, base)
    torch.save(load_file(file), tmp_path / "renamed.safetensors")
    tiny.refused(r"renamed\.safetensors: not a safetensors file", read_adapter, tmp_path / "renamed.safetensors", base)
    for epoch in (1, 2):
        shutil.copy(file, folder / f"epoch-{epoch}.safetensors")
    tiny.refused(r"folder: has 2 safetensors files, such as epoch-1\.safetensors; name one", read_adapter, folder, base)
    shutil.copy(file, folder / "pytorch_lora_weights.safetensors")
    assert isinstance(read_adapter(folder, base), Adapter)
