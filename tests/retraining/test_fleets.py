"""Coalitions' models that are trained together, as on a GPU, against the same trained one after another."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from diffcredit.diffusion import Training, training
from diffcredit.diffusion.stepwise import TrainingDiverged
from diffcredit.retraining import contributor_models, fine_tune, from_scratch
from diffcredit.retraining.contributor_models import ContributorModels

from .test_retrainings import ALL, OPTIONS, ground, prepared

SEEDS = list(range(len(ALL)))


def weights(models: Iterator) -> list[torch.Tensor]:
    return [torch.cat([weight.detach().flatten() for weight in model.network.parameters()]) for model in models]


@pytest.fixture
def fleets_of_three(monkeypatch) -> None:
    """The fast path, here without a GPU."""
    monkeypatch.setattr(training, "trains_fast", lambda *_: True)
    for module in (contributor_models, fine_tune, from_scratch):
        monkeypatch.setattr(module, "fleet_size", lambda *_: 3)


@pytest.mark.parametrize("name", ["fine_tune", "sparsified", "from_scratch", "lora"])
def test_together_as_alone(name, tmp_path, monkeypatch, request):
    monkeypatch.setitem(OPTIONS, "lora", {"steps": 3})
    some, seeds = ALL[[0, 3, 5, 7]], SEEDS[:4]
    alone = weights(prepared(name, ground(tmp_path)).models_for(some, seeds))
    request.getfixturevalue("fleets_of_three")
    retraining = prepared(name, ground(tmp_path))
    assert retraining.at_once == 3
    together = [*retraining.models_for(some, seeds)]
    for place, (one, other) in enumerate(zip(alone, weights(iter(together)), strict=True)):
        assert (one - other).norm() < 1e-4 * (one - alone[0]).norm() + 1e-9, some[place]
    assert together[1].made == {"path": "graph", "dtype": "float32", "fleet": 3}
    assert torch.equal(alone[0], weights(iter(together))[0]), "nobody's model is trained by no one"


def test_each_contributor_s_model_together_as_alone(tmp_path, request, monkeypatch):
    monkeypatch.setattr("diffcredit.diffusion.fast.fleet.LOOK_STEPS", 2)

    def kept(folder: str) -> ContributorModels:
        on = ground(tmp_path / folder, progress=lambda *report: reports.append(report))
        return ContributorModels.prepare(on, on.base, Training(steps=3, batch_size=4))

    reports: list[tuple[str, int, int]] = []
    alone = kept("alone")
    request.getfixturevalue("fleets_of_three")
    reports.clear()
    together = kept("together")
    n = len(alone.kept.files)
    assert reports[-1] == ("fine-tuning each contributor", 3 * n, 3 * n)
    assert len(reports) == 2 * -(-n // 3), "two steps at a time, of three models"
    start = weights(iter([alone.start]))[0]
    for index in range(n):
        one, other = weights(iter([alone.model(index), together.model(index)]))
        assert (one - other).norm() < 1e-3 * (one - start).norm()


def test_a_model_that_diverges_is_told_when_its_turn_comes(tmp_path, fleets_of_three, monkeypatch):
    retraining = prepared("fine_tune", ground(tmp_path))
    begin = retraining.begin

    def spoilt(seed: int):
        model = begin(seed)
        if seed == 2:
            with torch.no_grad():
                next(model.network.parameters()).fill_(float("nan"))
        return model

    monkeypatch.setattr(retraining, "begin", spoilt)
    models = retraining.models_for(ALL[1:4], [1, 2, 3])
    next(models)
    with pytest.raises(TrainingDiverged, match=r"loss became infinite or nan at step 1 of 3; a learning rate"):
        next(models)


def test_where_the_fast_path_fails_the_plain_one_does_the_work(tmp_path, fleets_of_three, monkeypatch):
    told = []

    def broken(*_, **__):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(training, "fleet_for", broken)
    monkeypatch.setattr(training, "give_up", lambda session, what, error: told.append((what, str(error))))
    retraining = prepared("fine_tune", ground(tmp_path))
    found = weights(retraining.models_for(ALL[:3], SEEDS[:3]))
    monkeypatch.setattr(training, "trains_fast", lambda *_: False)
    expected = weights(retraining.models_for(ALL[:3], SEEDS[:3]))
    assert all(torch.equal(*both) for both in zip(found, expected, strict=True))
    assert ("training", "no compiler") in told


def test_memory_that_runs_out_with_several_is_told_to_who_can_take_fewer(tmp_path, fleets_of_three, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(training, "fleet_for", full)
    retraining = prepared("fine_tune", ground(tmp_path))
    with pytest.raises(torch.OutOfMemoryError):
        list(retraining.models_for(ALL[1:], SEEDS[1:]))
    (alone,) = weights(retraining.models_for(ALL[1:2], [1]))  # which may be cut into pieces
    monkeypatch.setattr(training, "trains_fast", lambda *_: False)
    assert torch.equal(alone, weights(retraining.models_for(ALL[1:2], [1]))[0])


def test_fleets_only_on_a_gpu(tmp_path):
    retraining = prepared("fine_tune", ground(tmp_path))
    assert retraining.at_once == 1
    (model,) = retraining.models_for(np.array([[True] * 3]), [1])
    assert model.made == {"path": "eager", "dtype": "float32"}
