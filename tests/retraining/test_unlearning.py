"""Gradient ascent and influence, against their formulae on ridge regression."""

import dataclasses
import itertools
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from diffcredit.retraining import unlearning
from diffcredit.retraining.unlearning import GradientAscent, GradientRows, Influence

from . import ridge
from .test_retrainings import OWNER, context, contributions

PENALTY = 0.3
COUNTS = (2, 3, 1)
CONTRIBUTIONS = ridge.drawn(COUNTS)
THETA = np.array([0.6, -0.4, 0.9, 0.2])


def made(retraining, theta, folder, contributions=CONTRIBUTIONS, penalty=PENALTY, batch_size=60):
    """The models of every coalition of somebody."""
    retraining.prepare(ridge.context(ridge.Ridge(theta, penalty), contributions, folder, batch_size=batch_size))
    coalitions = np.array(list(itertools.product([False, True], repeat=contributions.n)))[1:]
    return coalitions, [model.theta for model in retraining.models_for(coalitions, range(len(coalitions)))]


# Gradient ascent


def test_one_step_of_ascent_is_along_the_removed_images_gradient(tmp_path):
    rate, clipped = 0.01, []
    for coalition, theta in zip(*made(GradientAscent(learning_rate=rate, steps=1), THETA, tmp_path), strict=True):
        if coalition.all():
            assert (theta == THETA).all(), "there is nothing to unlearn"
            continue
        x, y = ridge.rows(CONTRIBUTIONS, ~coalition)
        along = ridge.gradient(THETA, x, y, PENALTY)
        clipped.append(np.linalg.norm(along) > 1)
        np.testing.assert_allclose(theta, THETA + rate * along / max(1, np.linalg.norm(along)), rtol=1e-6)
    assert any(clipped)
    assert not all(clipped)


@pytest.mark.parametrize(("batch_size", "steps"), [(60, 1), (2, 2), (1, 4)])
def test_ascent_passes_once_over_the_removed_images(batch_size, steps, tmp_path):
    """Of the coalition of those with two of six images, the other four in batches."""
    retraining = GradientAscent(batch_size=batch_size)
    base = ridge.context(ridge.Ridge(THETA, PENALTY), CONTRIBUTIONS, tmp_path, batch_size=7).training
    settings = retraining.training(base, removed=4)
    assert (settings.steps, settings.batch_size) == (steps, batch_size)
    assert (settings.learning_rate, settings.schedule, settings.gradient_clip) == (1e-5, "constant", 1.0)
    assert (settings.warmup_steps, settings.ema, settings.average_tail) == (0, None, None)


# Influence


def fisher(theta, *, damping: float, batches: int):
    """F (4, 4), written out."""
    x, y = ridge.rows(CONTRIBUTIONS)
    of = [np.flatnonzero(owner == CONTRIBUTIONS.owner) for owner in range(len(COUNTS))]
    parts = [images[first::batches] for images in of for first in range(min(batches, len(images)))]
    g = np.stack([ridge.gradient(theta, x[part], y[part], PENALTY) for part in parts])
    undamped = g.T @ g / len(g)
    return undamped + damping * (g**2).sum(axis=1).mean() * np.eye(ridge.FEATURES)


@pytest.mark.parametrize(("damping", "batches"), [(0.01, 1), (10.0, 2)])
def test_influence_is_the_dense_formula(batches, damping, tmp_path, monkeypatch):
    monkeypatch.setattr(unlearning, "NUMBERS_AT_ONCE", 2)  # one column of G at a time
    retraining = Influence(damping=damping, batches=batches, time_steps=2)
    for coalition, theta in zip(*made(retraining, THETA, tmp_path), strict=True):
        everybodys = ridge.gradient(THETA, *ridge.rows(CONTRIBUTIONS), PENALTY)
        own = ridge.gradient(THETA, *ridge.rows(CONTRIBUTIONS, coalition), PENALTY)
        expected = np.linalg.solve(fisher(THETA, damping=damping, batches=batches), everybodys - own)
        np.testing.assert_allclose(theta - THETA, expected, rtol=2e-4, atol=1e-7)


def test_at_the_optimum_influence_is_the_removed_images_share(tmp_path):
    """θ* + F⁻¹ 1/m_S Σ_{j∉S} ∇ℓ_j."""
    best = ridge.optimum(*ridge.rows(CONTRIBUTIONS), PENALTY)
    for coalition, theta in zip(*made(Influence(damping=1.0), best, tmp_path), strict=True):
        if coalition.all():
            assert (theta == best).all()
            continue
        x, y = ridge.rows(CONTRIBUTIONS, ~coalition)
        removed = len(y) * ridge.gradient(best, x, y, PENALTY) / (len(CONTRIBUTIONS.images) - len(y))
        expected = np.linalg.solve(fisher(best, damping=1.0, batches=1), removed)
        np.testing.assert_allclose(theta - best, expected, rtol=2e-4, atol=1e-7)


def test_where_the_fisher_matrix_is_the_curvature_influence_is_retraining(tmp_path):
    """Four contributors with the rows e_1 … e_4 each, whose residuals at θ* are ±1 and cancel over all of them.

    Then every row's gradient is ±e_k, so F = 1/16 Σ g gᵀ = I/4 = the curvature of any coalition's loss, and the loss
    is quadratic: Newton's one step arrives.
    """
    best = np.array([1.0, -0.5, 0.25, 0.75])
    signs = np.array([[1, 1, -1, 1], [-1, -1, 1, -1], [1, -1, -1, -1], [-1, 1, 1, 1]])
    x, y = np.tile(np.eye(4), (4, 1)), (best + signs).ravel()
    contributions = ridge.given(x, y, np.repeat(range(4), 4).tolist())
    np.testing.assert_allclose(ridge.optimum(x, y, 0.0), best)
    retraining = Influence(damping=1e-7, batches=4, time_steps=1)
    for coalition, theta in zip(*made(retraining, best, tmp_path, contributions, penalty=0.0), strict=True):
        exact = ridge.optimum(*ridge.rows(contributions, coalition), 0.0)
        np.testing.assert_allclose(theta, exact, atol=1e-5)


def test_gradients_are_kept_and_found_again(tmp_path, monkeypatch):
    _, before = made(Influence(), THETA, tmp_path)

    with monkeypatch.context() as patched:
        patched.setattr(unlearning.Probe, "gradient", Mock(side_effect=AssertionError("a gradient is computed again")))
        _, again = made(Influence(damping=1000.0), THETA, tmp_path)
        assert np.array_equal(before, again)
        with pytest.raises(AssertionError, match="computed again"):
            made(Influence(), 2 * THETA, tmp_path)


# The gradients that influence is made of, on a tiny real model

TIME_STEPS = 3


def rows_of(folder, batches: int = 1, **training) -> GradientRows:
    on = context(folder)
    on = dataclasses.replace(on, training=dataclasses.replace(on.training, **training))
    return GradientRows.prepare(on, on.base, batches, TIME_STEPS)


def matrix(rows: GradientRows) -> np.ndarray:
    """G (N, d)."""
    return np.stack([rows.combined(row).numpy() for row in np.eye(len(rows.owner))])


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> GradientRows:
    return rows_of(tmp_path_factory.mktemp("rows"))


def test_a_row_is_the_gradient_of_a_contributors_mean_loss(tmp_path, monkeypatch):
    """At the middles of the thirds of all time steps, each with a noise of its own, weighted as in training."""
    on = context(tmp_path)
    seen = []
    loss = type(on.base).loss
    monkeypatch.setattr(type(on.base), "loss", lambda *a: (seen.append(a[1:]), loss(*a))[1])
    rows = rows_of(tmp_path, min_snr=0.5)
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
    weights = snr.clamp(max=0.5) / snr
    assert not (weights == 1).all()
    (weights * expected.loss(data.select(places[mine]), t[mine], noise[mine])).mean().backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in expected.network.parameters()])
    np.testing.assert_allclose(matrix(rows)[1], gradient.numpy(), rtol=1e-3, atol=1e-5)


def test_mini_batches_of_one_contributor_average_to_the_whole(rows, tmp_path):
    """The three contributors have 2, 3 and 2 images."""
    split = rows_of(tmp_path, batches=2)
    assert split.owner.tolist() == [0, 0, 1, 1, 2, 2]
    assert split.sizes.tolist() == [1, 1, 2, 1, 1, 1]
    g = matrix(split)
    for contributor, whole in enumerate(matrix(rows)):
        own = split.owner == contributor
        mean = np.average(g[own], axis=0, weights=split.sizes[own])
        np.testing.assert_allclose(mean, whole, rtol=1e-3, atol=1e-5)


def test_how_much_is_computed_and_read_at_once_changes_rounding_only(rows, tmp_path, monkeypatch):
    g = matrix(rows).astype(np.float64)
    np.testing.assert_allclose(rows.gram, g @ g.T, rtol=1e-10)
    monkeypatch.setattr(unlearning, "NUMBERS_AT_ONCE", 30_000)
    pieces = rows_of(tmp_path, batch_size=100)
    np.testing.assert_allclose(pieces.gram, rows.gram, rtol=1e-3)
    weights = np.array([0.3, -2.0, 1.1])
    np.testing.assert_allclose(pieces.combined(weights).numpy(), weights @ g, rtol=1e-3, atol=1e-5)
