"""Every way to a coalition's model, on every family, on tiny real models."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import UNet2DConditionModel

from diffcredit.diffusion import Training
from diffcredit.diffusion.ddpm import DDPM, LatentFamily
from diffcredit.diffusion.text_to_image import LoRAFamily
from diffcredit.diffusion.training import train
from diffcredit.errors import UserError
from diffcredit.retraining import RETRAININGS
from diffcredit.retraining.base import RetrainingContext
from diffcredit.retraining.pruning.ranks import has_adapters
from diffcredit.util.plugins import build
from diffcredit.util.progress import silent
from diffusion import trained_adapters
from diffusion.tiny_pipelines import autoencoder_kl, stable_diffusion

from .test_retrainings import contributions

COALITIONS = np.array([[0, 0, 0], [1, 0, 1], [1, 1, 1]], dtype=bool)
SEEDS = [3, 4, 5]
CAPTIONS = tuple(f"emoji {index % 3}" for index in range(7))
TRAINING = Training(steps=1, batch_size=4, learning_rate=1e-3)
SPARSE = {"parameters": 0.5, "multiple": 1, "recover_steps": 1}
OPTIONS: dict[str, dict[str, object]] = {
    "from_scratch": {},
    "sparsified": {"steps": 1, **SPARSE, "importance": "diff-pruning"},
    "gradient_ascent": {},
    "influence": {"time_steps": 2},
    "soup": {"steps": 1},
    "sparse lora": {"steps": 1, "sparse": SPARSE},
    "sparse gradient_ascent": {"sparse": SPARSE},
    "sparse influence": {"time_steps": 2, "sparse": SPARSE},
    "sparse soup": {"steps": 1, "sparse": SPARSE},
}
# test_retrainings has the dense methods on pixels; the latent family differs in its encoding alone
CASES = [
    *[("pixel", method) for method in OPTIONS if method.startswith("sparse ")],
    ("latent", "sparsified"),
    *[("text", method) for method in ("from_scratch", "sparsified", "gradient_ascent", "influence", "soup")],
    *[("own", method) for method in OPTIONS if method != "sparse lora"],
]


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RetrainingContext]:
    folder = tmp_path_factory.mktemp("families")
    autoencoder_kl().save_pretrained(folder / "autoencoder")
    latent = LatentFamily(preset="tiny", autoencoder=str(folder / "autoencoder"))
    text = LoRAFamily(str(stable_diffusion(folder / "pipeline")), rank=4)
    own = LoRAFamily(text.pretrained, adapter=str(_own_adapter(folder)))
    made = {}
    for name, side in (("pixel", 8), ("latent", 16), ("text", 16), ("own", 16)):
        given = dataclasses.replace(contributions(side=side), captions=CAPTIONS)
        if name == "pixel":
            base, load = DDPM.create("tiny", side, seed=0), DDPM.load
        else:
            family = {"latent": latent, "text": text, "own": own}[name]
            base, load = family.start(given, seed=0), family.load
        if name != "own":  # which comes trained
            train(base, base.encode(given.images, given.captions), TRAINING, seed=1)
        made[name] = RetrainingContext(base, given, TRAINING, seed=2, folder=folder / name, load=load, progress=silent)
    return made


def _own_adapter(folder: Path) -> Path:
    """One by plain peft in kohya's format, with two ranks and scales, on linear layers and convolutions."""
    network = UNet2DConditionModel.from_pretrained(folder / "pipeline" / "unet")
    layers = trained_adapters.adaptable(network, "attentions", "resnets")
    factors = trained_adapters.factors_of(trained_adapters.trained(network, layers, 4, 2.0))
    return trained_adapters.by_kohya(folder / "mine.safetensors", factors)


@pytest.mark.parametrize(("family", "method"), CASES)
def test_models_of_coalitions(family, method, contexts, tmp_path, monkeypatch):
    monkeypatch.setattr("diffcredit.retraining.pruning.channels.TIME_STEPS", 3)  # of the gradients of diff-pruning
    context = contexts[family]
    base = context.base.fingerprint
    one, other = (
        build(method.split()[-1], OPTIONS[method], RETRAININGS, where="retraining", beside=Path()) for _ in range(2)
    )
    one.prepare(context)
    random_state = torch.random.get_rng_state()
    models = list(one.models_for(COALITIONS, SEEDS))
    assert torch.random.get_rng_state().equal(random_state)
    found = [model.fingerprint for model in models]
    assert len(set(found)) == len(COALITIONS)
    assert context.base.fingerprint == base
    other.prepare(context)
    (again,) = other.models_for(COALITIONS[[1]], [SEEDS[1]])
    assert again.fingerprint == found[1]
    # all have one shape: that of the base model, or of the sparse one, which is half as large
    shapes = [[tuple(p.shape) for p in model.network.parameters()] for model in models]
    assert all(each == shapes[0] for each in shapes)
    of_model, of_base = (
        sum(parameter.numel() for parameter in model.network.parameters() if parameter.requires_grad)
        for model in (models[0], context.base)
    )
    assert of_model / of_base == (pytest.approx(0.5, abs=0.1) if "spars" in method else 1)
    # they make images, and can be kept
    models[1].save(tmp_path)
    images = models[1].sample([0, 1], 2)
    assert images.shape == (2, *context.contributions.images.shape[1:])
    assert (images != models[0].sample([0, 1], 2)).any()
    loaded = context.load(tmp_path)
    assert loaded.fingerprint == found[1]
    assert (loaded.sample([0, 1], 2) == images).all()


def test_a_text_to_image_model_has_its_adapter_already(contexts):
    context = contexts["text"]
    assert has_adapters(context.base.network)
    lora = build("lora", {}, RETRAININGS, where="retraining", beside=Path())
    with pytest.raises(UserError, match="'fine_tune'"):
        lora.rehearse(context.base, TRAINING, context.contributions)


def test_from_scratch_a_text_to_image_model_learns_a_fresh_adapter(contexts):
    """Whatever the base's adapter had learned."""
    context = contexts["text"]
    results = []
    for base in (context.base, context.base.untrained(7)):
        retraining = build("from_scratch", {}, RETRAININGS, where="retraining", beside=Path())
        retraining.prepare(dataclasses.replace(context, base=base))
        results.append([model.fingerprint for model in retraining.models_for(COALITIONS[1:2], SEEDS[1:2])])
    assert results[0] == results[1]


def _scales(network) -> dict[str, float]:
    return {name: layer.scaling["default"] for name, layer in network.named_modules() if hasattr(layer, "lora_A")}


@pytest.mark.parametrize("method", ["from_scratch", "sparsified"])
def test_coalitions_train_the_layers_of_a_users_adapter_at_its_scales(contexts, method, tmp_path):
    context = contexts["own"]
    retraining = build(method, OPTIONS[method], RETRAININGS, where="retraining", beside=Path())
    retraining.prepare(context)
    before = _scales(context.base.network)
    assert {*before.values()} == {0.5, 1.0}
    models = list(retraining.models_for(COALITIONS, SEEDS))
    assert all(_scales(model.network) == before for model in models)
    frozen = dict(context.base.base.network().named_parameters())
    for name, weight in models[2].network.named_parameters():
        if not weight.requires_grad:
            assert weight is frozen[name.replace(".base_layer", "")]
    nobody = context.base.create(context.base.base, 2, context.base.prompts, None, 16, seed=0)
    assert (models[0].sample([0, 1], 2) == nobody.sample([0, 1], 2)).all(), "the pipeline without the adapter"
    models[1].save(tmp_path)
    assert _scales(context.load(tmp_path).network) == before
