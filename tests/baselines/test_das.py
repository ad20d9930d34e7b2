"""DAS against dense algebra, and its residuals against the model's errors computed by hand."""

import numpy as np
import pytest
import torch

from diffcredit.baselines import das
from diffcredit.baselines.base import Evidence
from diffcredit.baselines.das import DAS, mean_residuals, root_errors
from diffcredit.baselines.gradients import GradientSettings, per_image
from diffcredit.baselines.gradients import rows as rows_module
from diffcredit.diffusion.ddpm import DDPM

from . import made_up

SETTINGS = GradientSettings("loss", time_steps=3, seed=4)


@pytest.fixture(scope="module")
def model():
    return DDPM.create("tiny", 8, 0)


def evidence(model, **others):
    given = made_up.contributions()
    return Evidence(given, given.images[:2], load_model=lambda: model, **others)


def test_scores_are_squared_output_changes_averaged_over_queries(monkeypatch):
    generator = np.random.default_rng(0)
    phi, queries = generator.standard_normal((20, 6)), generator.standard_normal((5, 6))
    errors = generator.random((20, 3)) + 0.1
    rows = {"training": phi, "generated": queries}
    asked = {}

    def gradient_rows(evidence, settings, of, method, replicate):
        asked[of] = settings.kind
        return rows[of]

    monkeypatch.setattr(rows_module, "gradient_rows", gradient_rows)
    monkeypatch.setattr(das, "root_errors", lambda evidence, settings, method, replicate: errors)
    monkeypatch.setattr(das, "QUERIES", 2)  # the five come in three parts
    found = DAS(lam=0.3, dimensions=6)
    inverse = np.linalg.inv(phi.T @ phi + 0.3 * np.eye(6))
    expected = np.empty(20)
    for j in range(20):
        residual = np.mean([error / np.sqrt(np.sum(errors[j] ** 2)) for error in errors[j]])
        expected[j] = np.mean([(g @ inverse @ phi[j] * residual) ** 2 for g in queries])
    np.testing.assert_allclose(found.scores(evidence(None)), expected, rtol=1e-9)
    assert asked == {"training": "prediction_mean", "generated": "prediction_mean"}
    assert found.chosen == {"lambda": 0.3}


def test_residuals_tell_how_evenly_errors_spread():
    errors = np.array([[2.0, 2.0, 2.0, 2.0], [7.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(mean_residuals(errors), [0.5, 0.25, 0.0])


def test_root_errors_are_those_of_the_predictions(model, monkeypatch):
    monkeypatch.setitem(das.IMAGES_AT_ONCE, "cpu", 7)  # 20 images in three parts
    looked_at = evidence(model)
    found = root_errors(looked_at, SETTINGS, "das")
    betas = np.linspace(1e-4, 0.02, 1000)
    kept = np.cumprod(1 - betas)
    for image in (0, 9, 19):
        pixels = looked_at.contributions.images[image]
        identity = per_image.digests(pixels[None])
        noise = per_image.noises(identity, 3, (3, 8, 8), 4)[0]
        for j, t in enumerate((166, 500, 833)):
            x = torch.tensor(pixels).permute(2, 0, 1) / 127.5 - 1
            x_t = np.sqrt(kept[t]) * x + np.sqrt(1 - kept[t]) * noise[j]
            with torch.no_grad():
                predicted = model.network(x_t[None].float(), torch.tensor([t])).sample[0]
            expected = np.sqrt(np.mean((predicted - noise[j]).numpy() ** 2))
            assert found[image, j] == pytest.approx(expected, rel=1e-4)


def test_root_errors_of_a_replicate_are_its_own(model, tmp_path):
    other = DDPM.create("tiny", 8, 1)
    looked_at = evidence(model, folder=tmp_path, replicate={1: other}.__getitem__)
    root_errors(looked_at, SETTINGS, "das")
    found = root_errors(looked_at, SETTINGS, "das", 1)
    np.testing.assert_array_equal(found, root_errors(evidence(other), SETTINGS, "das"))
    assert (found != root_errors(looked_at, SETTINGS, "das")).any()


def test_root_errors_are_kept(model, tmp_path):
    told = []
    looked_at = evidence(model, folder=tmp_path, progress=lambda what, done, total: told.append((done, total)))
    first = root_errors(looked_at, SETTINGS, "das")
    assert told[-1] == (20, 20)
    told.clear()
    np.testing.assert_array_equal(root_errors(looked_at, SETTINGS, "das"), first)
    assert not told
    other = root_errors(looked_at, GradientSettings("loss", time_steps=3, seed=5), "das")
    assert (other != first).any()
