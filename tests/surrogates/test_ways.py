"""Every surrogate on models that follow labels or captions."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.settings import Sampling
from diffcredit.diffusion.training import train
from diffcredit.retraining.base import RetrainingContext
from diffcredit.retraining.fine_tune import FineTune
from diffcredit.surrogates.base import Material
from diffcredit.surrogates.existing_images import RealImages, Reweighting
from diffcredit.surrogates.pools import Conditional, Pools, Soup
from diffcredit.util.progress import silent
from diffcredit.util.seeds import derive_seed
from diffusion import tiny
from diffusion.ways import TRAINING, WAYS, Ways, given

SAMPLING = Sampling(images=4, steps=2, seed=3)
NAMES = ["dit flow labels", "latent mmdit captions", "unet labels", "lora z_image", "pretrained dit"]
BOB_AND_CEM = np.array([False, True, True])


def material(ways: Ways, name: str, folder: Path) -> Material:
    contributions, base = given(name), ways.base(name)
    retraining = FineTune(steps=2)
    retraining.prepare(
        RetrainingContext(base, contributions, TRAINING, 2, folder, ways.family(name).load, progress=silent)
    )
    return Material(contributions, SAMPLING, folder, silent, lambda: base, lambda: generate(base, SAMPLING), retraining)


@pytest.mark.parametrize("name", NAMES)
def test_pools_and_soup(ways, name, tmp_path):
    """Of models that were fine-tuned on each contributor's images, and of their average."""
    used = material(ways, name, tmp_path)
    models = []
    for rows in used.contributions.groups:
        model = ways.base(name).clone()
        data = model.encode(used.contributions.images, used.contributions.captions).select(rows)
        train(model, data, used.retraining.settings, seed=derive_seed(2, "contributor models"))
        models.append(model)
    pools = Pools()
    pools.prepare(used)
    for index, model in enumerate(models):
        np.testing.assert_array_equal(pools.library[4 * index : 4 * index + 4], generate(model, SAMPLING))
    rows = pools.rows(BOB_AND_CEM)
    assert set(rows // 4) == {1, 2}
    assert (rows % 4 == np.arange(4)).all()  # image j starts from noise j, and follows its text

    soup, average = Soup(), ways.base(name).clone()
    soup.prepare(used)
    with torch.no_grad():
        for key, parameter in average.network.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(sum(model.network.get_parameter(key) for model in models[1:]) / 2)
    assert tiny.nearly_equal(soup.images(BOB_AND_CEM), generate(average, SAMPLING))


@pytest.mark.parametrize("name", NAMES)
def test_images_of_each_contributors_texts(ways, name, tmp_path):
    """The base model's, for the labels or captions that a contributor has."""
    used = material(ways, name, tmp_path)
    texts = WAYS[name].texts
    own = tuple(
        texts[0] if owner == 1 else text
        for owner, text in zip(used.contributions.owner, used.contributions.captions, strict=True)
    )
    used = dataclasses.replace(used, contributions=dataclasses.replace(used.contributions, captions=own))
    surrogate = Conditional()
    surrogate.prepare(used)
    alone = ways.base(name).sample(SAMPLING.seeds, 2, prompts=[texts[0]])
    np.testing.assert_array_equal(surrogate.library[4:8], alone)  # bob has one text
    assert not np.array_equal(surrogate.library[:4], alone)
    assert tuple(ways.base(name).prompts) != (texts[0],)


@pytest.mark.parametrize("name", NAMES[:2])
def test_images_that_are_there_already(ways, name, tmp_path):
    used = material(ways, name, tmp_path)
    reweighting, real = Reweighting(), RealImages()
    for surrogate in (reweighting, real):
        surrogate.prepare(used)
    np.testing.assert_array_equal(reweighting.library, generate(ways.base(name), SAMPLING))
    assert reweighting.images(BOB_AND_CEM).shape == reweighting.library.shape
    np.testing.assert_array_equal(real.images(BOB_AND_CEM), used.contributions.images[4:])
