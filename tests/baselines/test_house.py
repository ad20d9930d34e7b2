"""Baselines where there are house images: every method sees them, and nobody is credited for them."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from diffcredit.baselines import BASELINES, Evidence, baseline_credits
from diffcredit.baselines.base import Scoring
from diffcredit.contributions import HOUSE
from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.util.plugins import build

from .made_up import contributions, generated, tiny_model

GRADIENTS: dict[str, Any] = {"time_steps": 1, "dimensions": 16, "layers": ["conv_out"]}
PROBES: dict[str, Any] = {"time_steps": 1, "layers": ["conv_out"]}
OPTIONS: dict[str, dict[str, Any]] = {
    "feature_similarity": {"features": "colours"},
    "cluster_distance": {"features": "colours", "clusters": 2},
    "influence_diagonal": PROBES,
    "influence_kronecker": PROBES,
    **dict.fromkeys(
        ["gradient_similarity", "trak", "d_trak", "relative_influence", "renormalised_influence"], GRADIENTS
    ),
    "journey_trak": GRADIENTS,
    "das": GRADIENTS,
}
BRIGHTNESS = SimpleNamespace(
    name="brightness", measure=lambda images: float(images.mean()), of_each=lambda images: images.mean(axis=(1, 2, 3))
)
TRAINING = Training(steps=4, batch_size=6)


# a random ranking depends on the number of contributors, conditional sampling plays another game without them
@pytest.mark.parametrize("name", sorted(BASELINES.keys() - {"random_ranking", "conditional_sampling"}))
def test_the_others_scores_are_as_if_the_house_were_a_contributor(name, trained):
    ordinary = contributions()
    owner = np.where(ordinary.owner == 3, HOUSE, ordinary.owner)
    house = dataclasses.replace(ordinary, owner=owner, contributors=ordinary.contributors[:3])
    baseline = build(name, OPTIONS.get(name, {}), BASELINES, where="here", beside=None)
    seen = Evidence(
        ordinary,
        generated(),
        BRIGHTNESS,
        load_model=lambda: trained,
        sampling=Sampling(images=6, steps=2),
        training=TRAINING,
        start=lambda: (tiny_model(), 0),
    )
    theirs = baseline_credits(baseline, seen)
    mine = baseline_credits(baseline, dataclasses.replace(seen, contributions=house))
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one.credits, other.credits[:3], rtol=1e-9, err_msg=one.name)
    if isinstance(baseline, Scoring):
        scores = baseline.scores(dataclasses.replace(seen, contributions=house))
        assert scores.shape == (20,)
        ways = {"sum": np.sum, "mean": np.mean, "max": np.max}
        for one in mine:
            np.testing.assert_allclose(one.credits, [ways[one.how](scores[ordinary.owner == i]) for i in range(3)])
