import dataclasses
import shutil
from functools import cache

import numpy as np
import pytest
import torch

from diffcredit.baselines import Evidence, aggregate
from diffcredit.baselines.in_run import InRunShapley
from diffcredit.diffusion.draws import draw
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.training import train
from diffcredit.errors import DiffcreditError, UserError
from diffcredit.util.seeds import derive_seed

from .made_up import contributions, generated, near_copies, tiny_model

SEED = 11
SGD = Training(steps=3, batch_size=6, learning_rate=0.05, schedule="linear", optimizer="sgd", gradient_clip=None)


@cache
def base(settings):
    model = tiny_model()
    train(model, model.encode(contributions().images, mirrored=settings.flip), settings, seed=SEED)
    return model


def evidence(settings, shown=None, given=None, **more):
    model = base(settings)
    return Evidence(
        given or contributions(),
        generated() if shown is None else shown,
        load_model=lambda: model,
        training=settings,
        start=lambda: (tiny_model(), SEED),
        **more,
    )


def gradient(model, loss):
    found = torch.autograd.grad(loss, list(model.network.parameters()))
    return torch.cat([each.flatten() for each in found]).double()


def by_hand(settings, shown, every):
    """The training written out: θ ← θ − η_k/B Σ_j ∇ℓ_j, with the products on the way."""
    given, model = contributions(), tiny_model()
    data, validation = model.encode(given.images), model.encode(shown, mirrored=False)
    seed, unmirrored = derive_seed(SEED, "in-run validation"), dataclasses.replace(settings, flip=False)
    scores = np.zeros(len(given.images))
    for step in range(settings.steps):
        rate = settings.learning_rate * (1 - step / settings.steps)
        batch, t, noise = draw(data, step, settings, SEED, 1000)
        losses = model.loss(batch, t, noise)
        if settings.min_snr is not None:
            losses = losses * model.objective.min_snr_weights(t, settings.min_snr)
        if step % every == 0:
            against = gradient(model, model.loss(*draw(validation, step, unmirrored, seed, 1000)).mean())
            for place, row in enumerate(batch.rows.tolist()):
                alone = model.loss(*(part(each, place) for each in (batch, t, noise))).sum()
                weight = losses[place].item() / alone.item()
                scores[row] += every * rate / 6 * weight * float(against @ gradient(model, alone))
        whole = torch.autograd.grad(losses.mean(), list(model.network.parameters()))
        with torch.no_grad():
            for weight, each in zip(model.network.parameters(), whole, strict=True):
                weight -= rate * each
    return scores


def part(drawn, place):
    return drawn[place : place + 1] if isinstance(drawn, torch.Tensor) else drawn.select(torch.tensor([place]))


@pytest.mark.parametrize(("every", "min_snr"), [(1, None), (2, 3.0)])
def test_by_hand(every, min_snr):
    settings, shown = dataclasses.replace(SGD, min_snr=min_snr), generated(4)
    baseline = InRunShapley(every=every)
    scores = baseline.scores(evidence(settings, shown))
    expected = by_hand(settings, shown, every)
    assert (expected != 0).sum() >= 6
    np.testing.assert_allclose(scores, expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max())
    assert baseline.chosen == {"distance": 0.0}


@pytest.mark.parametrize(
    "settings",
    [
        Training(steps=2, batch_size=4, learning_rate=1e-3, ema=0.9),
        Training(steps=2, batch_size=4, learning_rate=1e-3, gradient_checkpointing=True, micro_batch=3),
    ],
)
def test_the_training_is_replayed_bit_for_bit(settings):
    baseline = InRunShapley(every=1)
    scores = baseline.scores(evidence(settings))
    assert baseline.chosen == {"distance": 0.0}
    assert np.isfinite(scores).all()
    assert scores.shape == (20,)


def test_another_run_than_the_base_models_shows():
    short = dataclasses.replace(SGD, steps=1)
    seen = dataclasses.replace(evidence(short), start=lambda: (tiny_model(), SEED + 1))
    baseline = InRunShapley()
    baseline.scores(seen)
    assert baseline.chosen["distance"] > 1e-4


@pytest.mark.slow  # two replays of 96 steps
def test_contributors_gain_where_their_images_are_nearly_copied():
    """Early in a training everybody helps; the noises are the same whoever's images are copied."""
    given = contributions()
    settings = Training(steps=96, batch_size=10, learning_rate=5e-3, flip=False)
    seen = evidence(settings)
    copied = {}
    for favourite in (1, 2):
        scores = InRunShapley(every=3).scores(dataclasses.replace(seen, generated=near_copies(given, favourite)))
        copied[favourite] = aggregate(scores, given, "mean")
    assert copied[1][1] > 1.05 * copied[2][1] > 0
    assert copied[2][2] > 1.05 * copied[1][2] > 0


def test_held_out_images_may_be_what_counts():
    given = dataclasses.replace(contributions(), heldout=generated(4))  # not trained on: the base model is the same
    heldout = InRunShapley("heldout").scores(evidence(SGD, generated(2, seed=8), given))
    np.testing.assert_allclose(heldout, InRunShapley().scores(evidence(SGD, generated(4), given)), rtol=1e-6)


def test_what_is_dear_is_kept(tmp_path):
    told = []
    seen = evidence(SGD, folder=tmp_path, progress=lambda *report: told.append(report))
    scores = InRunShapley().scores(seen)
    assert told == [("replaying the base model's training", step, 3) for step in range(1, 4)]
    np.testing.assert_array_equal(InRunShapley().scores(seen), scores)
    assert len(told) == 3
    InRunShapley(every=3).scores(seen)
    assert len(told) == 6


class Stop(BaseException):
    """As Ctrl-C or a kill would."""


def interrupted(folder, cut):
    """Replays the training until step ``cut``."""

    def stop(what, done, total):
        if done == cut:
            raise Stop

    with pytest.raises(Stop):
        InRunShapley().scores(evidence(SGD, folder=folder, progress=stop))


@pytest.fixture
def checkpoints(monkeypatch):
    monkeypatch.setattr("diffcredit.diffusion.checkpoints.CHECKPOINT_SECONDS", -1)  # after each step


def test_an_interrupted_replay_continues_bit_for_bit(tmp_path, checkpoints):
    cut, whole = 2, InRunShapley().scores(evidence(SGD))
    interrupted(tmp_path, cut)
    again, told = InRunShapley(), []
    found = again.scores(evidence(SGD, folder=tmp_path, progress=lambda what, done, total: told.append(done)))
    np.testing.assert_array_equal(found, whole)
    assert told == list(range(cut, 4))  # the interrupted step had not been written
    assert again.chosen == {"distance": 0.0}
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]  # nothing else is left behind


def test_a_damaged_replay_names_itself(tmp_path, checkpoints):
    interrupted(tmp_path / "whole", 2)
    for damage in (
        lambda folder: (folder / "rows.npy").write_bytes((folder / "rows.npy").read_bytes()[:100]),
        lambda folder: (folder / "values.npy").write_bytes((folder / "values.npy").read_bytes()[:100]),
        lambda folder: np.save(folder / "rows.npy", np.full((2, 6), -1)),  # as after a power cut
    ):
        place = shutil.copytree(tmp_path / "whole", tmp_path / "damaged", dirs_exist_ok=True)
        (folder,) = place.iterdir()
        damage(folder)
        with pytest.raises(DiffcreditError, match=f"{folder}: damaged; remove it"):
            InRunShapley().scores(evidence(SGD, folder=place))


def test_refusals():
    seen = evidence(SGD)
    for problem, method, lacking in (
        ("a pretrained model has none", InRunShapley(), dataclasses.replace(seen, start=None)),
        ("validation: heldout, but no image was held out", InRunShapley("heldout"), seen),
        (r"of shape \(4, 4, 3\)", InRunShapley(), dataclasses.replace(seen, generated=generated(size=4))),
    ):
        with pytest.raises(UserError, match=problem):
            method.scores(lacking)
