"""The gradients that influence is made of, on a tiny real model."""

import dataclasses

import numpy as np
import pytest
import torch

from diffcredit.retraining import influence
from diffcredit.retraining.influence import GradientRows

from .test_retrainings import OWNER, contributions, ground

TIME_STEPS = 3


def prepared(folder, batches: int = 1, **training) -> GradientRows:
    on = ground(folder)
    on = dataclasses.replace(on, training=dataclasses.replace(on.training, **training))
    return GradientRows.prepare(on, on.base, batches, TIME_STEPS)


def matrix(rows: GradientRows) -> np.ndarray:
    """G (N, d)."""
    return np.stack([rows.combined(row).numpy() for row in np.eye(len(rows.owner))])


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> GradientRows:
    return prepared(tmp_path_factory.mktemp("rows"))


@pytest.mark.parametrize("min_snr", [None, 0.5])
def test_a_row_is_the_gradient_of_a_contributors_mean_loss(min_snr, tmp_path, monkeypatch):
    """At the middles of the thirds of all time steps, each with a noise of its own, weighted as in training."""
    on = ground(tmp_path)
    seen = []
    loss = type(on.base).loss
    monkeypatch.setattr(type(on.base), "loss", lambda *a: (seen.append(a[1:]), loss(*a))[1])
    rows = prepared(tmp_path, min_snr=min_snr)
    monkeypatch.undo()
    places = torch.cat([batch.rows for batch, _, _ in seen])
    t, noise = (torch.cat([call[index] for call in seen]) for index in (1, 2))
    assert sorted(zip(places.tolist(), t.tolist(), strict=True)) == [
        (place, time) for place in range(len(OWNER)) for time in (166, 500, 833)
    ]
    assert len(noise.flatten(1).unique(dim=0)) == len(OWNER) * TIME_STEPS
    assert abs(noise.mean()) < 0.05
    assert abs(noise.std() - 1) < 0.05
    data = on.base.encode(contributions().images)
    mine = OWNER[places.numpy()] == 1
    expected = on.base.clone()
    signal = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), dim=0)[t[mine]]
    snr = signal / (1 - signal)
    weights = torch.ones_like(snr) if min_snr is None else snr.clamp(max=min_snr) / snr
    assert (min_snr is None) == bool((weights == 1).all())
    (weights * expected.loss(data.select(places[mine]), t[mine], noise[mine])).mean().backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in expected.network.parameters()])
    np.testing.assert_allclose(matrix(rows)[1], gradient.numpy(), rtol=1e-3, atol=1e-5)


def test_mini_batches_of_one_contributor_average_to_the_whole(rows, tmp_path):
    """The three contributors have 2, 3 and 2 images."""
    split = prepared(tmp_path, batches=2)
    assert split.owner.tolist() == [0, 0, 1, 1, 2, 2]
    assert split.sizes.tolist() == [1, 1, 2, 1, 1, 1]
    g = matrix(split)
    for contributor, whole in enumerate(matrix(rows)):
        own = split.owner == contributor
        mean = np.average(g[own], axis=0, weights=split.sizes[own])
        np.testing.assert_allclose(mean, whole, rtol=1e-3, atol=1e-5)


def test_the_gram_matrix_and_combinations_do_not_depend_on_how_much_is_read_at_once(rows, tmp_path, monkeypatch):
    g = matrix(rows).astype(np.float64)
    np.testing.assert_allclose(rows.gram, g @ g.T, rtol=1e-10)
    monkeypatch.setattr(influence, "NUMBERS_AT_ONCE", 30_000)
    pieces = prepared(tmp_path)
    np.testing.assert_allclose(pieces.gram, rows.gram, rtol=1e-10)
    weights = np.array([0.3, -2.0, 1.1])
    np.testing.assert_allclose(pieces.combined(weights).numpy(), weights @ g, rtol=1e-5, atol=1e-7)


def test_how_many_samples_are_in_memory_changes_rounding_only(rows, tmp_path):
    np.testing.assert_allclose(matrix(prepared(tmp_path, batch_size=100)), matrix(rows), rtol=1e-3, atol=1e-5)
