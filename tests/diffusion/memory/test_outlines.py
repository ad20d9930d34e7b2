"""Models without numbers have the bytes and shapes of real ones."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from diffcredit.diffusion.captions import CaptionEncoder
from diffcredit.diffusion.ddpm import LatentFamily, PixelFamily
from diffcredit.diffusion.memory.outlines import condition_of, encoders_of, outline_of
from diffcredit.diffusion.model import Family
from diffcredit.diffusion.text_to_image import LoRAFamily
from diffcredit.diffusion.texts import TextEncoders

from .. import tiny_pipelines, tiny_text_pipelines
from ..test_frozen_bases import CAPTIONS
from ..test_frozen_bases import CASES as PIPELINES
from ..tiny_pipelines import contributions

CASES = {**PIPELINES, "sd3_without_t5": partial(tiny_text_pipelines.stable_diffusion_3, t5=False)}


@pytest.fixture(scope="module", params=CASES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return CASES[request.param](tmp_path_factory.mktemp(request.param) / "pipeline")


def described(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, tuple[object, ...]]:
    return {name: (tuple(each.shape), each.dtype, each.nbytes, each.requires_grad) for name, each in tensors}


def same_but_for_numbers(one: nn.Module, outline: nn.Module) -> None:
    """Parameters and buffers, and what is trained."""
    for what in ("named_parameters", "named_buffers"):
        assert described(getattr(one, what)()) == described(getattr(outline, what)())
    assert {each.device.type for each in [*outline.parameters(), *outline.buffers()]} == {"meta"}


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_adapters_on_pipelines(folder, precision, monkeypatch):
    side = 32 if any(name in str(folder) for name in ("sana", "qwen", "z_image")) else 16
    given, family = contributions(side, CAPTIONS), LoRAFamily(str(folder), rank=3, base=precision)
    with monkeypatch.context() as patched:
        patched.setattr("diffcredit.diffusion.pipeline.load_pretrained", None)
        patched.setattr("diffcredit.diffusion.texts.load_pretrained", None)
        outline = outline_of(family, given)
        condition, encoders = condition_of(outline), encoders_of(outline)
    model = family.start(given, seed=0)
    same_but_for_numbers(model.network, outline.network)
    assert (outline.shape, outline.computes) == (model.shape, model.computes)
    real = model.conditioner.embed(["a cat"], model.pixels)
    assert {name: (each.shape, each.dtype) for name, each in condition.items()} == {
        name: (each.shape[1:], each.dtype) for name, each in real.items()
    }
    texts = model.conditioner
    assert isinstance(texts, TextEncoders)
    own = [each for each in texts._load().components.values() if isinstance(each, nn.Module)]
    assert len(own) == len(encoders) > 0
    for one, other in zip(own, encoders, strict=True):
        same_but_for_numbers(one, other.requires_grad_(False))


@pytest.fixture(scope="module")
def text_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    config = BertConfig(vocab_size=99, hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    BertModel(config).save_pretrained(folder)
    return folder


FAMILIES: dict[str, Callable[[Path, Path], Family]] = {
    "pixels": lambda autoencoder, texts: PixelFamily(preset="tiny"),
    "labels": lambda autoencoder, texts: PixelFamily(preset="dit-tiny", objective="flow", conditions="labels"),
    "latents": lambda autoencoder, texts: LatentFamily(preset="tiny", autoencoder=str(autoencoder)),
    "captions": lambda autoencoder, texts: PixelFamily(
        preset="mmdit-tiny", objective="flow", conditions="captions", text_encoder=str(texts)
    ),
}


@pytest.mark.parametrize("kind", FAMILIES)
def test_networks_that_are_trained_whole(kind, text_encoder, tmp_path):
    autoencoder = tmp_path / "vae"
    tiny_pipelines.autoencoder_kl().save_pretrained(autoencoder)
    given, family = contributions(16, CAPTIONS), FAMILIES[kind](autoencoder, text_encoder)
    outline, model = outline_of(family, given), family.start(given, 0)
    same_but_for_numbers(model.network, outline.network)
    condition = condition_of(outline)
    if kind == "captions":
        (encoder,) = encoders_of(outline)
        assert isinstance(model.conditioner, CaptionEncoder)
        same_but_for_numbers(model.conditioner._encoder, encoder.requires_grad_(False))
        assert {name: tuple(each.shape) for name, each in condition.items()} == {
            "encoder_hidden_states": (32, 12),
            "pooled_projections": (12,),
        }
    else:
        assert encoders_of(outline) == []
        assert list(condition) == (["class_labels"] if kind == "labels" else [])


def test_a_family_of_another_make_has_none(monkeypatch):
    class Own(PixelFamily):
        def start(self, given, seed):
            return object()

    assert outline_of(Own(preset="tiny"), contributions(16)) is None
