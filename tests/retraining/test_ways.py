"""Every way to a coalition's model on every kind of model: transformers, flow matching, labels, captions, adapters."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diffcredit.diffusion.training import train
from diffcredit.retraining import RETRAININGS
from diffcredit.retraining.base import RetrainingContext
from diffcredit.retraining.fine_tune import FineTune
from diffcredit.retraining.lora import LoRA
from diffcredit.retraining.pruning import Sparsity
from diffcredit.retraining.soup import Soup
from diffcredit.util.plugins import build
from diffcredit.util.progress import silent
from diffusion import tiny
from diffusion.ways import TRAINING, WAYS, WHOLE, Ways, given

COALITIONS = np.array([[0, 0, 0], [1, 0, 1], [1, 1, 1]], dtype=bool)
SEEDS = [3, 4, 5]
SPARSE = {"parameters": 0.6, "recover_steps": 1}
METHODS: dict[str, dict[str, Any]] = {
    "from_scratch": {},
    "fine_tune": {"steps": 1},
    "sparsified": {"steps": 1, **SPARSE},
    "sparsified taylor": {"steps": 1, **SPARSE, "importance": "taylor"},
    "sparsified reinitialised": {"steps": 1, **SPARSE, "importance": "reinitialised"},
    "sparsified depth": {"steps": 1, **SPARSE, "depth": 0.75},
    "lora": {"steps": 1},
    "lora sparse": {"steps": 1, "sparse": SPARSE},
    "gradient_ascent": {},
    "influence": {"time_steps": 2},
    "soup": {"steps": 1},
    "soup sparse": {"steps": 1, "sparse": SPARSE},
}
OF_WHOLE = ("lora", "lora sparse", "sparsified depth")  # refused for adapters
QUICK = {
    *(("dit flow labels", method) for method in METHODS if method != "lora sparse"),
    ("dit noise", "sparsified"),
    ("unet labels", "sparsified taylor"),
    ("unet labels", "lora sparse"),
    ("unet labels", "soup"),
    ("latent dit labels", "sparsified"),
    ("latent mmdit captions", "sparsified depth"),
    ("latent mmdit captions", "lora"),
    ("latent mmdit captions", "influence"),
    ("lora sd3", "sparsified"),
    ("lora z_image", "gradient_ascent"),
    ("lora pixart", "soup sparse"),
    ("lora qwen", "influence"),
    ("lora dit", "from_scratch"),
    ("lora dit", "sparsified"),
    ("pretrained dit", "sparsified reinitialised"),
    ("pretrained dit", "lora"),
    ("pretrained unet", "sparsified"),
}
CASES = [
    pytest.param(name, method, marks=() if (name, method) in QUICK else pytest.mark.slow, id=f"{name}-{method}")
    for name in WAYS
    for method in METHODS
    if (name in WHOLE or method not in OF_WHOLE) and not (method == "sparsified depth" and "unet" in name)
]


def context(ways: Ways, name: str, folder: Path) -> RetrainingContext:
    return RetrainingContext(
        ways.base(name), given(name), TRAINING, seed=2, folder=folder, load=ways.family(name).load, progress=silent
    )


@pytest.mark.parametrize(("name", "method"), CASES)
def test_models_of_coalitions(ways, name, method, tmp_path, monkeypatch):
    monkeypatch.setattr("diffcredit.retraining.pruning.channels.TIME_STEPS", 2)
    used = context(ways, name, tmp_path)
    base, random_state = used.base.fingerprint, torch.random.get_rng_state()
    one, other = (
        build(method.split()[0], METHODS[method], RETRAININGS, where="retraining", beside=Path()) for _ in range(2)
    )
    rehearsal = one.rehearse(used.base, TRAINING, used.contributions)
    one.prepare(used)
    models = list(one.models_for(COALITIONS, SEEDS))
    assert torch.random.get_rng_state().equal(random_state)
    found = [model.fingerprint for model in models]
    assert len(set(found)) == len(COALITIONS)
    assert found[0] == used.untrained(one.start).fingerprint
    assert used.base.fingerprint == base

    # another worker, which finds what was prepared, in another order
    other.prepare(used)
    again = [model.fingerprint for model in other.models_for(COALITIONS[::-1], SEEDS[::-1])]
    assert again[::-1] == found

    # what was saved makes the same images, bit for bit
    models[1].save(tmp_path / "saved")
    loaded = used.load(tmp_path / "saved")
    assert loaded.fingerprint == found[1]
    images = models[1].sample([0, 1], 2)
    assert (loaded.sample([0, 1], 2) == images).all()
    assert images.shape == (2, WAYS[name].side, WAYS[name].side, 3)

    def trained(model: Any) -> int:
        return sum(each.numel() for each in model.network.parameters() if each.requires_grad)

    if method.startswith(("sparsified", "soup sparse")):  # of "lora sparse", an adapter is trained
        assert trained(rehearsal.model) == pytest.approx(trained(models[1]), rel=0.05)
        assert trained(models[1]) == pytest.approx(0.6 * trained(used.base), rel=0.05)


@pytest.mark.parametrize("name", ["dit flow labels", "latent mmdit captions", "lora sd3"])
def test_fine_tuning_trains_on_the_coalitions_images_alone(ways, name, tmp_path):
    used = context(ways, name, tmp_path)
    method = FineTune(steps=2)
    method.prepare(used)
    (model,) = method.models_for(COALITIONS[1:2], [7])
    rows = used.contributions.owner != 1
    alone = dataclasses.replace(
        used.contributions,
        images=used.contributions.images[rows],
        owner=used.contributions.owner[rows],
        names=tuple(np.array(used.contributions.names)[rows]),
        captions=tuple(np.array(used.contributions.captions)[rows].tolist()),
    )
    expected = used.base.clone()
    data = expected.encode(alone.images, alone.captions)
    data = dataclasses.replace(data, rows=torch.from_numpy(np.flatnonzero(rows)))  # their places among all images
    train(expected, data, method.training(TRAINING), seed=7)
    assert tiny.same(tiny.weights(model), tiny.weights(expected))


@pytest.mark.parametrize("name", ["dit flow labels", "latent mmdit captions", "unet labels"])
@pytest.mark.parametrize("sparse", [None, Sparsity(**SPARSE)], ids=["whole", "sparse"])
def test_an_adapter_that_was_added_to_the_weights_predicts_what_it_did(ways, name, sparse, tmp_path):
    used = context(ways, name, tmp_path)
    method = LoRA(steps=1, dropout=0.0, sparse=sparse)
    method.prepare(used)
    adapted = method.begin(3)
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in adapted.network.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=draws), alpha=0.1)
    merged = method.end(adapted)
    batch = used.base.encode(used.contributions.images[:3], used.contributions.captions[:3])
    t = torch.tensor([900, 500, 20])
    with torch.no_grad():
        before, with_adapter, without = (
            model.predict(batch.x, t, batch.condition) for model in (method.start, adapted, merged)
        )
    assert (with_adapter - before).abs().max() > 0.01
    torch.testing.assert_close(without, with_adapter, rtol=0, atol=1e-5)
    # queries, keys and values alone were changed
    changed = {key for key, weight in tiny.weights(merged).items() if not weight.equal(tiny.weights(method.start)[key])}
    assert changed
    assert all(key.endswith(("to_q.weight", "to_k.weight", "to_v.weight")) for key in changed)


@pytest.mark.parametrize("name", ["dit flow labels", "lora dit"])
def test_a_soup_is_the_average_by_numbers_of_images(ways, name, tmp_path):
    used = context(ways, name, tmp_path)
    method = Soup(steps=1)
    method.prepare(used)
    (model,) = method.models_for(COALITIONS[1:2], [7])
    one, other = (tiny.weights(method.contributor_models.model(index)) for index in (0, 2))  # of 4 and of 3 images
    for key, weight in tiny.weights(model).items():
        torch.testing.assert_close(weight, (4 * one[key] + 3 * other[key]) / 7)
    assert not tiny.same(one, other)
