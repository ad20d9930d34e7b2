"""Soup and each contributor's own model."""

import itertools
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest
import torch

from diffcredit.diffusion import Training, training
from diffcredit.retraining.fine_tune import FineTune
from diffcredit.retraining.soup import ContributorModels, Soup

from . import ridge
from .test_retrainings import context, contributions

PENALTY = 0.3
CONTRIBUTIONS = ridge.drawn((2, 3, 1))
START = np.array([1.0, -2.0, 0.5, 1.5])
SOME = np.array(list(itertools.product([False, True], repeat=3)))[1:]


def thetas(retraining, folder) -> np.ndarray:
    """(7, 4). Every coalition's 1 to 6 rows divide the batch of 60."""
    retraining.prepare(ridge.context(ridge.Ridge(START, PENALTY), CONTRIBUTIONS, folder, batch_size=60))
    return np.array([model.theta for model in retraining.models_for(SOME, range(len(SOME)))])


def test_after_one_step_soup_is_fine_tuning(tmp_path):
    options = {"steps": 1, "learning_rate": 0.2, "schedule": "constant", "average_tail": None}
    np.testing.assert_allclose(thetas(Soup(**options), tmp_path), thetas(FineTune(**options), tmp_path), rtol=1e-12)


def test_soup_is_fine_tuning_to_first_order_in_the_rate(tmp_path):
    """Its error is of second order: half the rate, a quarter of the error."""
    errors = []
    for rate in (0.004, 0.002):
        options = {"steps": 5, "learning_rate": rate, "schedule": "constant", "average_tail": None}
        soup, fine_tuned = (thetas(kind(**options), tmp_path) for kind in (Soup, FineTune))
        assert np.abs(fine_tuned - START).max() > 100 * np.abs(soup - fine_tuned).max()
        errors.append(np.abs(soup - fine_tuned)[SOME.sum(axis=1) > 1].max(axis=1))
    np.testing.assert_allclose(errors[0] / errors[1], 4, rtol=0.1)


# Each contributor's own model

SETTINGS = Training(steps=2, batch_size=4)


def prepared(on) -> ContributorModels:
    return ContributorModels.prepare(on, on.base, SETTINGS)


def test_all_contributors_are_fine_tuned_with_one_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "train", watched := Mock(wraps=training.train))
    on = context(tmp_path)
    models = prepared(on)
    seeds = [call.kwargs["seed"] for call in watched.call_args_list]
    assert len(seeds) == 3
    assert len(set(seeds)) == 1
    alone = FineTune(steps=2, schedule="constant", average_tail=None)
    alone.prepare(on)
    assert alone.settings == SETTINGS
    own = list(alone.models_for(np.eye(3, dtype=bool), seeds))
    for index, expected in enumerate(own):
        assert models.model(index).fingerprint == expected.fingerprint
    # an average is the weighted sum of all weights
    weights = np.array([0.5, 0.2, 0.3])
    for name, tensor in models.average(weights).network.state_dict().items():
        each = [model.network.state_dict()[name].double() for model in own]
        expected = sum(weight * tensor for weight, tensor in zip(weights, each, strict=True))
        torch.testing.assert_close(tensor.double(), expected, rtol=1e-6, atol=1e-7)


def test_a_run_cut_off_goes_on_with_the_next_contributor(tmp_path, monkeypatch):
    reports = []
    on = context(tmp_path, progress=lambda *report: reports.append(report))
    watched = Mock(wraps=training.train, side_effect=[DEFAULT, DEFAULT, KeyboardInterrupt, DEFAULT])
    monkeypatch.setattr(training, "train", watched)
    with pytest.raises(KeyboardInterrupt):
        prepared(on)
    again = prepared(on)
    what = "fine-tuning each contributor"
    assert reports == [(what, step, 6) for step in range(1, 7)]
    assert prepared(on).fingerprint == again.fingerprint
    assert watched.call_count == 4


def test_what_another_study_shares_is_found(tmp_path, monkeypatch):
    first = prepared(context(tmp_path))
    monkeypatch.setattr(training, "train", trained := Mock())
    for change, anew in (({"given": contributions(changed=1)}, 1), ({"seed": 10}, 3), ({"base_seed": 1}, 3)):
        trained.reset_mock()
        other = prepared(context(tmp_path, **change))
        assert trained.call_count == anew
        assert other.fingerprint != first.fingerprint


def test_only_what_is_trained_is_kept(tmp_path):
    on = context(tmp_path)
    on.base.network.conv_in.requires_grad_(False)
    models = prepared(on)
    changed = models.average(np.array([0.5, 0.5, 0.0])).network.state_dict()
    for name, tensor in on.base.network.state_dict().items():
        assert changed[name].equal(tensor) == name.startswith("conv_in"), name
