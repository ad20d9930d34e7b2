"""Every way to a coalition's model, on every family, on tiny real models."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from diffcredit.contributions import Contributions
from diffcredit.diffusion import Training
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.latent import LatentFamily
from diffcredit.diffusion.model import DiffusionModel, Images
from diffcredit.diffusion.text_to_image import LoRAFamily
from diffcredit.diffusion.training import train
from diffcredit.errors import UserError
from diffcredit.retraining import RETRAININGS
from diffcredit.retraining.base import RetrainingContext
from diffcredit.retraining.pruning.ranks import has_adapters
from diffcredit.util.plugins import build
from diffcredit.util.progress import silent
from diffusion.tiny_pipelines import autoencoder_kl, stable_diffusion

COALITIONS = np.array([[0, 0, 0], [0, 1, 0], [1, 0, 1], [1, 1, 1]], dtype=bool)
SEEDS = [3, 4, 5, 6]
TRAINING = Training(steps=2, batch_size=4, learning_rate=1e-3)
SPARSE = {"parameters": 0.5, "multiple": 1, "recover_steps": 1}
OPTIONS: dict[str, dict[str, object]] = {
    "from_scratch": {},
    "fine_tune": {"steps": 2},
    "sparsified": {"steps": 2, **SPARSE},
    "lora": {"steps": 2},
    "gradient_ascent": {},
    "influence": {"time_steps": 2},
    "soup": {"steps": 2},
    "sparse lora": {"steps": 2, "sparse": SPARSE},
    "sparse gradient_ascent": {"sparse": SPARSE},
    "sparse influence": {"time_steps": 2, "sparse": SPARSE},
    "sparse soup": {"steps": 2, "sparse": SPARSE},
}
# test_retrainings has the dense methods on pixels; the latent family differs in its encoding alone
METHODS = {
    "pixel": [method for method in OPTIONS if method.startswith("sparse ")],
    "latent": ["from_scratch", "sparsified"],
    "text": ["from_scratch", "fine_tune", "sparsified", "gradient_ascent", "influence", "soup", "sparse soup"],
}
CASES = [(family, method) for family, methods in METHODS.items() for method in methods]


@dataclass(frozen=True)
class Made:
    """What a retraining made of :data:`COALITIONS`."""

    ground: RetrainingContext
    base: str
    models: list[DiffusionModel]
    again: list[str]
    """The fingerprints of the third and the second, made anew in this order."""
    images: list[Images]
    random_state_kept: bool


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RetrainingContext]:
    folder = tmp_path_factory.mktemp("families")
    autoencoder_kl().save_pretrained(folder / "autoencoder")
    latent = LatentFamily(preset="tiny", autoencoder=str(folder / "autoencoder"))
    text = LoRAFamily(str(stable_diffusion(folder / "pipeline")), rank=4)
    made = {}
    for name, side in (("pixel", 8), ("latent", 16), ("text", 16)):
        given = _contributions(side)
        if name == "pixel":
            base, load = DDPM.create("tiny", side, seed=0), DDPM.load
        else:
            family = latent if name == "latent" else text
            base, load = family.start(given, seed=0), family.load
        train(base, base.encode(given.images, given.captions), TRAINING, seed=1)
        made[name] = RetrainingContext(base, given, TRAINING, seed=2, folder=folder / name, load=load, progress=silent)
    return made


def _contributions(side: int) -> Contributions:
    images = np.random.default_rng(0).integers(0, 256, (7, side, side, 3), dtype=np.uint8)
    captions = tuple(f"emoji {index % 3}" for index in range(7))
    owner = np.array([0, 0, 1, 1, 1, 2, 2])
    return Contributions(images, owner, ("a", "b", "c"), tuple("1234567"), images[:0], captions=captions)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(case).replace(" ", "-"))
def made(request, grounds) -> Made:
    family, method = request.param
    ground = grounds[family]
    base = ground.base.fingerprint
    one, other = (
        build(method.split()[-1], OPTIONS[method], RETRAININGS, where="retraining", beside=Path()) for _ in range(2)
    )
    one.prepare(ground)
    random_state = torch.random.get_rng_state()
    models = list(one.models_for(COALITIONS, SEEDS))
    kept = torch.random.get_rng_state().equal(random_state)
    other.prepare(ground)
    again = [model.fingerprint for model in other.models_for(COALITIONS[[2, 1]], [SEEDS[2], SEEDS[1]])]
    images = [model.sample([0, 1], 2) for model in models]
    return Made(ground, base, models, again, images, kept)


def test_coalitions_differ_and_follow_from_their_seeds(made: Made):
    found = [model.fingerprint for model in made.models]
    assert len(set(found)) == len(COALITIONS)
    assert made.again == [found[2], found[1]]
    assert made.ground.base.fingerprint == made.base
    assert made.random_state_kept


def test_models_make_images(made: Made):
    side = made.ground.contributions.images.shape[1]
    for images in made.images:
        assert images.shape == (2, side, side, 3)
        assert images.dtype == np.uint8
    nobody, *others = made.images
    assert any((nobody != images).any() for images in others)


def test_models_can_be_kept(made: Made, tmp_path):
    model = made.models[2]
    model.save(tmp_path)
    found = made.ground.load(tmp_path)
    assert found.fingerprint == model.fingerprint
    assert (found.sample([0, 1], 2) == made.images[2]).all()


def test_all_models_have_one_shape(made: Made, request):
    """That of the base model, or of the sparse one, which is half as large."""
    shapes = [[tuple(p.shape) for p in model.network.parameters()] for model in made.models]
    assert all(each == shapes[0] for each in shapes)
    size, full = (_trained(model) for model in (made.models[0], made.ground.base))
    sparse = "spars" in request.node.callspec.id
    assert size / full == (pytest.approx(0.5, abs=0.1) if sparse else 1)


def _trained(model: DiffusionModel) -> int:
    return sum(parameter.numel() for parameter in model.network.parameters() if parameter.requires_grad)


def test_a_text_to_image_model_has_its_adapter_already(grounds):
    ground = grounds["text"]
    assert has_adapters(ground.base.network)
    lora = build("lora", {}, RETRAININGS, where="retraining", beside=Path())
    with pytest.raises(UserError, match="'fine_tune'"):
        lora.rehearse(ground.base, TRAINING, ground.contributions)


def test_from_scratch_a_text_to_image_model_learns_a_fresh_adapter(grounds):
    """Whatever the base's adapter had learned."""
    ground = grounds["text"]
    blank = ground.base.untrained(7)
    results = []
    for base in (ground.base, blank):
        retraining = build("from_scratch", {}, RETRAININGS, where="retraining", beside=Path())
        retraining.prepare(dataclasses.replace(ground, base=base))
        results.append([model.fingerprint for model in retraining.models_for(COALITIONS[1:3], SEEDS[1:3])])
    assert results[0] == results[1]


@pytest.mark.parametrize("family", ["pixel", "latent", "text"])
def test_encodings_are_computed_once(family, grounds, monkeypatch):
    """However many coalitions there are."""
    ground = grounds[family]
    calls = []
    kind = type(ground.base)
    encode = kind.encode
    monkeypatch.setattr(kind, "encode", lambda self, *a, **more: (calls.append(1), encode(self, *a, **more))[1])
    retraining = build("fine_tune", {"steps": 1}, RETRAININGS, where="retraining", beside=Path())
    retraining.prepare(ground)
    list(retraining.models_for(COALITIONS, SEEDS))
    assert len(calls) <= 1
