from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest

from diffcredit.baselines import Evidence, baseline_credits
from diffcredit.baselines.conditional import ConditionalShapley
from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import UserError
from diffcredit.surrogates.pools import captions_of, shared_out
from surrogates.made_up import COUNTS
from surrogates.test_conditional import Followed, given


class Contrast:
    """The standard deviation of the images' brightness: no sum over members."""

    name = "contrast"

    def measure(self, images):
        return float(images[:, 0, 0, 0].std())


OF_MODEL = SimpleNamespace(name="of_model", measure_model=lambda model: 0.0)
ORDERED = SimpleNamespace(name="ordered", ordered=True, measure=lambda images: 0.0)


def evidence(prop, model=None, **more):
    images = given().images[:2]
    return Evidence(given(), images, prop, load_model=lambda: model or Followed(), sampling=Sampling(20, 1), **more)


def by_permutations():
    """The Shapley value of G with G(∅) = 0, from its definition."""
    alone = []
    for captions in captions_of(Followed(), given()):
        model = Followed(prompts=tuple(captions))
        alone.append(model.sample(range(20), 1, 1, "", None)[:, 0, 0, 0].astype(float))

    def game(members):
        if not members:
            return 0.0
        owners = shared_out(np.isin(np.arange(4), list(members)), np.array(COUNTS), 20)
        return np.array([alone[owner][seed] for seed, owner in enumerate(owners)]).std()

    credits, orders = np.zeros(4), list(permutations(range(4)))
    for order in orders:
        for place, joins in enumerate(order):
            credits[joins] += (game(order[: place + 1]) - game(order[:place])) / len(orders)
    return credits


def test_the_shapley_value_of_the_images_of_the_members_captions(tmp_path):
    (found,) = baseline_credits(ConditionalShapley(), evidence(Contrast(), folder=tmp_path))
    np.testing.assert_allclose(found.credits, by_permutations(), rtol=1e-9)
    assert found.name == "conditional_sampling"
    assert len(list(tmp_path.iterdir())) == 4  # the images, and nothing else


def test_an_estimate_where_there_are_too_many_coalitions():
    exact = ConditionalShapley().credits(evidence(Contrast()))
    estimated = ConditionalShapley(coalitions=12).credits(evidence(Contrast()))
    assert np.corrcoef(exact, estimated)[0, 1] > 0.8
    assert estimated.sum() == pytest.approx(exact.sum())


def test_refusals():
    for problem, seen in (
        ("the model follows no text", evidence(Contrast(), model=Followed(prompts=()))),
        ("'of_model' measures the model itself", evidence(OF_MODEL)),
        ("'ordered' measures .* the order of their prompts", evidence(ORDERED)),
        ("needs the property", evidence(None)),
        ("needs the base model", Evidence(given(), given().images, Contrast(), sampling=Sampling(20, 1))),
    ):
        with pytest.raises(UserError, match=problem):
            ConditionalShapley().credits(seen)
