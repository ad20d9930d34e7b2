import numpy as np
import pytest
import torch

from diffcredit.contributions import Contributions
from diffcredit.diffusion import Training
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.training import train
from diffcredit.errors import UserError
from diffcredit.properties import Context
from diffcredit.properties.heldout_loss import HeldoutLoss


@pytest.fixture(scope="module")
def model() -> DDPM:
    return DDPM.create("tiny", 8, 0)


def pictures(count: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)


def context(heldout: np.ndarray) -> Context:
    training = pictures(2)
    return Context(training, Contributions(training, np.array([0, 1]), ("a", "b"), ("1", "2"), heldout))


def fitted(heldout: np.ndarray, **options) -> HeldoutLoss:
    prop = HeldoutLoss(**options)
    prop.restore(prop.fit(context(heldout)))
    return prop


def test_is_the_mean_of_the_denoising_error(model, monkeypatch):
    """The noises are read off what the model is asked; all else is computed anew."""
    heldout, asked = pictures(5), []
    prop = fitted(heldout, time_steps=4, batch_size=2)
    forward = model.network.forward
    monkeypatch.setattr(model.network, "forward", lambda x, t: asked.append((x, t)) or forward(x, t))
    value = prop.measure_model(model)

    x = heldout.transpose(0, 3, 1, 2) / 127.5 - 1
    alpha_bar = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000))
    seen, errors = {}, []
    for x_t, t in asked:
        (step,) = set(t.tolist())
        rows = range(len(seen.setdefault(step, [])), len(seen[step]) + len(x_t))
        noise = (x_t.double().numpy() - np.sqrt(alpha_bar[step]) * x[rows]) / np.sqrt(1 - alpha_bar[step])
        seen[step].extend(noise)
        with torch.no_grad():
            predicted = forward(x_t, t).sample.double().numpy()
        errors.extend(((predicted - noise) ** 2).mean(axis=(1, 2, 3)))
    # the middles of four quarters of 1000 steps, each with every image once
    assert {step: len(noises) for step, noises in seen.items()} == {125: 5, 375: 5, 625: 5, 875: 5}
    assert value == pytest.approx(np.mean(errors), rel=1e-4)
    noises = np.array(list(seen.values()))
    assert noises.mean() == pytest.approx(0, abs=0.08)
    assert noises.std() == pytest.approx(1, abs=0.08)
    flat = noises.reshape(20, -1)
    assert np.abs(np.corrcoef(flat) - np.eye(20)).max() < 0.5, "no noise is used twice"


def test_only_models_differ(model):
    prop = fitted(pictures(6), time_steps=3)
    value = prop.measure_model(model)
    torch.manual_seed(77)
    torch.rand(5)
    assert prop.measure_model(model) == value
    assert fitted(pictures(6), time_steps=3).measure_model(model.clone()) == value
    assert fitted(pictures(6), time_steps=3, batch_size=4).measure_model(model) == pytest.approx(value, rel=1e-5)
    assert fitted(pictures(6), time_steps=3, seed=1).measure_model(model) != value
    assert prop.measure_model(model.untrained(4)) != value


def test_a_model_of_noise_itself_has_a_loss_near_one(model):
    silent = model.clone()
    with torch.no_grad():
        silent.network.conv_out.weight.zero_()
        silent.network.conv_out.bias.zero_()
    # it predicts 0, so the loss is the mean square of the noises
    assert fitted(pictures(6)).measure_model(silent) == pytest.approx(1, abs=0.05)


def test_is_lower_for_a_model_trained_on_these_images(model):
    heldout = pictures(4)
    prop, trained = fitted(heldout), model.clone()
    train(trained, trained.encode(heldout), Training(steps=40, batch_size=8, learning_rate=2e-3), seed=0)
    assert prop.measure_model(trained) < 0.8 * prop.measure_model(model)


def test_a_study_without_heldout_images_is_refused():
    with pytest.raises(UserError, match=r"heldout_loss: .*contributions\.holdout"):
        HeldoutLoss().fit(context(pictures(0)))
