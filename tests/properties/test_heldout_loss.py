import json

import numpy as np
import pytest
import torch

from diffcredit.contributions import Contributions
from diffcredit.diffusion.ddpm import DDPM, LatentDiffusion
from diffcredit.diffusion.first_stage import first_stage
from diffcredit.diffusion.pipeline import pipeline
from diffcredit.diffusion.text_to_image import TextToImageLoRA
from diffcredit.errors import UserError
from diffcredit.properties import Context, heldout_loss
from diffcredit.properties.heldout_loss import HeldoutLoss
from diffcredit.util.artifacts import read_arrays, write_arrays
from diffusion import tiny_pipelines


@pytest.fixture(scope="module")
def model() -> DDPM:
    return DDPM.create("tiny", 8, 0)


@pytest.fixture(scope="module")
def latent(tmp_path_factory) -> LatentDiffusion:
    folder = tmp_path_factory.mktemp("autoencoder")
    tiny_pipelines.autoencoder_kl().save_pretrained(folder)
    return LatentDiffusion.create("tiny", 16, 0, first_stage(str(folder)))


@pytest.fixture(scope="module")
def text_to_image(tmp_path_factory) -> TextToImageLoRA:
    base = pipeline(str(tiny_pipelines.stable_diffusion(tmp_path_factory.mktemp("text") / "to-image")))
    return TextToImageLoRA.create(base, 2, ["a cat"], None, 16, 0)


def pictures(count: int, side: int = 8) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def context(heldout: np.ndarray, captions: tuple[str, ...] | None = None) -> Context:
    training = pictures(2, heldout.shape[1])
    texts = {} if captions is None else {"captions": ("a cat", "a dog"), "heldout_captions": captions}
    return Context(training, Contributions(training, np.array([0, 1]), ("a", "b"), ("1", "2"), heldout, **texts))


def fitted(heldout: np.ndarray, captions: tuple[str, ...] | None = None, **options) -> HeldoutLoss:
    prop = HeldoutLoss(**options)
    prop.restore(prop.fit(context(heldout, captions)))
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
    prop = fitted(pictures(4), time_steps=2)
    value = prop.measure_model(model)
    torch.manual_seed(77)
    torch.rand(5)
    assert prop.measure_model(model.clone()) == value
    assert fitted(pictures(4), time_steps=2, batch_size=3).measure_model(model) == pytest.approx(value, rel=1e-5)
    assert fitted(pictures(4), time_steps=2, seed=1).measure_model(model) != value
    assert prop.measure_model(model.untrained(4)) != value


def test_a_study_without_heldout_images_is_refused():
    with pytest.raises(UserError, match=r"heldout_loss: .*contributions\.holdout"):
        HeldoutLoss().fit(context(pictures(0)))


def test_images_go_through_the_autoencoder_once(latent, monkeypatch):
    prop = fitted(pictures(4, 16), time_steps=2)
    asked, encode = [], LatentDiffusion.encode
    monkeypatch.setattr(
        LatentDiffusion,
        "encode",
        lambda self, *arguments, **options: asked.append(options) or encode(self, *arguments, **options),
    )
    first, other = prop.measure_model(latent), prop.measure_model(latent.untrained(1))
    assert prop.measure_model(latent) == first != other
    assert asked == [{"mirrored": False}]
    assert fitted(pictures(4, 16), time_steps=2).measure_model(latent.untrained(1)) == other
    assert len(asked) == 2


def test_models_that_see_something_else_do_not_share_what_they_see(latent, tmp_path):
    tiny_pipelines.autoencoder_kl(seed=7).save_pretrained(tmp_path)
    other = LatentDiffusion(latent.network, latent.config, stage=first_stage(str(tmp_path)))
    pixels = DDPM.create("tiny", 16, 0)
    prop, models = fitted(pictures(4, 16), time_steps=2), (latent, other, pixels)
    values = [prop.measure_model(model) for model in models]
    assert values == [fitted(pictures(4, 16), time_steps=2).measure_model(model) for model in models]
    assert len(set(values)) == 3


def test_held_out_images_have_captions_of_their_own(text_to_image, tmp_path):
    captions, images = ("a dög", "", "two cats"), pictures(3, 16)
    prop = HeldoutLoss(time_steps=2)
    file = tmp_path / "state.safetensors"
    write_arrays(file, prop.fit(context(images, captions)))
    prop.restore(read_arrays(file))
    value = prop.measure_model(text_to_image)

    x = text_to_image.base.stage.encode(images, "cpu")
    condition = text_to_image.base.conditioner.embed(captions, text_to_image.pixels)
    a = torch.from_numpy(np.cumprod(1 - np.linspace(np.sqrt(0.00085), np.sqrt(0.012), 1000) ** 2))
    generator, errors = torch.Generator().manual_seed(0), []
    for t in (250, 750):
        noise = torch.randn(x.shape, generator=generator)
        x_t = (a[t].sqrt() * x + (1 - a[t]).sqrt() * noise).float()
        with torch.no_grad():
            errors.append(text_to_image.predict(x_t, torch.full((3,), t), condition) - noise)
    assert value == pytest.approx(torch.cat(errors).double().square().mean().item(), rel=1e-4)
    assert fitted(images, captions[::-1], time_steps=2).measure_model(text_to_image) != value


def test_what_was_kept_without_captions_is_still_read(model):
    prop = HeldoutLoss(time_steps=2)
    prop.restore({"images": pictures(3)})
    assert prop.measure_model(model) == fitted(pictures(3), time_steps=2).measure_model(model)
    assert set(HeldoutLoss().fit(context(pictures(3)))) == {"images"}
    state = HeldoutLoss().fit(context(pictures(1), ("ö",)))
    assert state["captions"].dtype == np.uint8
    assert json.loads(bytes(state["captions"])) == ["ö"]


class Drawn:
    """Counts the draws of a mean over time steps, and asks nothing else of the noises."""

    def __init__(self, monkeypatch) -> None:
        self.count, randn = 0, torch.randn

        def counted(*arguments, **options):
            self.count += 1
            return randn(*arguments, **options)

        monkeypatch.setattr(torch, "randn", counted)


@pytest.mark.parametrize("fits", [True, False])
def test_noises_that_wait_for_the_next_model_change_no_value(model, monkeypatch, fits):
    monkeypatch.setattr(heldout_loss, "MOST_KEPT", 4 * 2 * 3 * 3 * 8 * 8 - (not fits))
    models = [model, model.untrained(4), model]
    alone = [fitted(pictures(3), time_steps=2).measure_model(each) for each in models]
    prop, drawn = fitted(pictures(3), time_steps=2), Drawn(monkeypatch)
    assert [prop.measure_model(each) for each in models] == alone
    assert drawn.count == (2 if fits else 6)
