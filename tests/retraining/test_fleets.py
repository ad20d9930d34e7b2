"""Coalitions' models that are trained together, as on a GPU, against the same trained one after another."""

import dataclasses
from collections.abc import Iterable
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from diffcredit.contributions import HOUSE
from diffcredit.diffusion import Training, training
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.stepwise import TrainingDiverged
from diffcredit.retraining import fine_tune, soup
from diffcredit.retraining.soup import ContributorModels

from .test_retrainings import SEEDS, SOME, context, contributions, prepared


def weights(models: Iterable[DiffusionModel]) -> list[torch.Tensor]:
    return [torch.cat([weight.detach().flatten() for weight in model.network.parameters()]) for model in models]


@pytest.fixture
def fleets_of_three(monkeypatch) -> None:
    """The fast path, here without a GPU."""
    monkeypatch.setattr(training, "trains_fast", lambda *_: True)
    for module in (fine_tune, soup):
        monkeypatch.setattr(module, "fleet_size", lambda *_: 3)


@pytest.mark.parametrize("name", ["sparsified", "from_scratch", "lora"])
def test_together_as_alone(name, tmp_path, request):
    retraining = prepared(name, context(tmp_path))
    assert retraining.at_once == 1, "fleets only on a GPU"
    alone = [*retraining.models_for(SOME, SEEDS)]
    assert alone[1].made == {"path": "eager", "dtype": "float32"}
    request.getfixturevalue("fleets_of_three")
    retraining = prepared(name, context(tmp_path))
    assert retraining.at_once == 3
    together = [*retraining.models_for(SOME, SEEDS)]
    assert together[1].made == {"path": "graph", "dtype": "float32", "fleet": 3}
    nobody, *expected = weights(alone)
    same, *found = weights(together)
    assert torch.equal(same, nobody), "nobody's model is trained by no one"
    for one, other in zip(expected, found, strict=True):
        assert (one - other).norm() < 1e-4 * (one - nobody).norm() + 1e-9


def test_nobodys_model_is_trained_in_a_fleet_where_there_are_house_images(tmp_path, request):
    given, coalitions = contributions(), np.array([[True, False], [False, False], [False, True]])
    ours = dataclasses.replace(given, owner=np.where(given.owner == 2, HOUSE, given.owner), contributors=("a", "b"))
    alone = prepared("fine_tune", context(tmp_path, given))
    expected = weights(alone.models_for(np.hstack([coalitions, np.ones((3, 1), dtype=bool)]), SEEDS[:3]))
    request.getfixturevalue("fleets_of_three")
    together = [*prepared("fine_tune", context(tmp_path, ours)).models_for(coalitions, SEEDS[:3])]
    assert [model.made["fleet"] for model in together] == [3] * 3
    (start,) = weights([alone.start])
    for one, other in zip(expected, weights(together), strict=True):
        assert (one - other).norm() < 1e-3 * (one - start).norm()


def test_each_contributors_model_together_as_alone(tmp_path, request, monkeypatch):
    monkeypatch.setattr("diffcredit.diffusion.fast.fleet.LOOK_STEPS", 2)

    def kept(folder: str) -> ContributorModels:
        on = context(tmp_path / folder, progress=lambda *report: reports.append(report))
        return ContributorModels.prepare(on, on.base, Training(steps=3, batch_size=4))

    reports: list[tuple[str, int, int]] = []
    alone = kept("alone")
    request.getfixturevalue("fleets_of_three")
    reports.clear()
    together = kept("together")
    assert reports == [("fine-tuning each contributor", done, 9) for done in (6, 9)], "two steps of three models"
    (start,) = weights([alone.start])
    for index in range(3):
        one, other = weights([alone.model(index), together.model(index)])
        assert (one - other).norm() < 1e-3 * (one - start).norm()


def test_a_model_that_diverges_is_told_when_its_turn_comes(tmp_path, fleets_of_three, monkeypatch):
    retraining = prepared("fine_tune", context(tmp_path))
    begin = retraining.begin

    def spoilt(seed: int) -> DiffusionModel:
        model = begin(seed)
        if seed == 2:
            with torch.no_grad():
                next(model.network.parameters()).fill_(float("nan"))
        return model

    monkeypatch.setattr(retraining, "begin", spoilt)
    models = retraining.models_for(SOME[2:], [1, 2])
    next(models)
    with pytest.raises(TrainingDiverged, match=r"loss became infinite or nan at step 1 of 2; a learning rate"):
        next(models)


@pytest.mark.parametrize("error", [RuntimeError("no compiler"), torch.OutOfMemoryError("CUDA out of memory")])
def test_where_the_fast_path_fails_the_plain_one_does_the_work(error, tmp_path, fleets_of_three, monkeypatch):
    told = []
    monkeypatch.setattr(training, "fleet_for", Mock(side_effect=error))
    monkeypatch.setattr(training, "give_up", lambda session, what, error: told.append((what, str(error))))
    retraining = prepared("fine_tune", context(tmp_path))
    out_of_memory = isinstance(error, torch.OutOfMemoryError)
    if out_of_memory:  # whoever asked for several can take fewer
        with pytest.raises(torch.OutOfMemoryError):
            list(retraining.models_for(SOME[2:], SEEDS[2:]))
    (found,) = weights(retraining.models_for(SOME[2:3], SEEDS[2:3]))
    monkeypatch.setattr(training, "trains_fast", lambda *_: False)
    (expected,) = weights(retraining.models_for(SOME[2:3], SEEDS[2:3]))
    assert torch.equal(found, expected)
    assert told == ([] if out_of_memory else [("training", "no compiler")])
