import numpy as np
import pytest
import torch
from diffusers import DDIMPipeline, DDIMScheduler, PNDMPipeline, PNDMScheduler

from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.noise import NoiseSchedule
from diffcredit.errors import UserError

from . import tiny, tiny_pipelines

T = 1000
STEPS = np.array([0, 1, 250, 700, T - 1])
LINEAR = {"num_train_timesteps": T, "beta_start": 1e-4, "beta_end": 0.02, "beta_schedule": "linear"}
SCALED = {"num_train_timesteps": T, "beta_start": 0.0015, "beta_end": 0.0195, "beta_schedule": "scaled_linear"}


def alpha_bar(config: dict) -> np.ndarray:
    """ᾱ_t in float64, by the definitions of Ho et al. and Rombach et al."""
    if config["beta_schedule"] == "linear":
        betas = np.linspace(config["beta_start"], config["beta_end"], T)
    else:
        betas = np.linspace(np.sqrt(config["beta_start"]), np.sqrt(config["beta_end"]), T) ** 2
    return np.cumprod(1 - betas)


def draws() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, noise = torch.randn(2, len(STEPS), 3, 4, 4, generator=generator)
    return x, noise


@pytest.mark.parametrize("config", [LINEAR, SCALED])
def test_noise_is_added_as_in_the_closed_form(config):
    schedule, (x, noise) = NoiseSchedule(config), draws()
    assert schedule.time_steps == T
    a = alpha_bar(config)[STEPS][:, None, None, None]
    expected = np.sqrt(a) * x.double().numpy() + np.sqrt(1 - a) * noise.double().numpy()
    noisy = schedule.add_noise(x, noise, torch.from_numpy(STEPS))
    np.testing.assert_allclose(noisy.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", [LINEAR, SCALED])
@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_targets_are_those_of_the_closed_form(config, prediction):
    schedule, (x, noise) = NoiseSchedule(config | {"prediction_type": prediction}), draws()
    a = alpha_bar(config)[STEPS][:, None, None, None]
    x64, noise64 = x.double().numpy(), noise.double().numpy()
    expected = {
        "epsilon": noise64,
        "sample": x64,
        "v_prediction": np.sqrt(a) * noise64 - np.sqrt(1 - a) * x64,
    }[prediction]
    target = schedule.target(x, noise, torch.from_numpy(STEPS))
    np.testing.assert_allclose(target.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gamma", [1.0, 5.0])
@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_min_snr_weights_are_those_of_hang_et_al(prediction, gamma):
    schedule = NoiseSchedule(LINEAR | {"prediction_type": prediction})
    a = alpha_bar(LINEAR)[STEPS]
    snr = a / (1 - a)
    assert snr.min() < gamma < snr.max()
    expected = {
        "epsilon": np.minimum(snr, gamma) / snr,
        "sample": np.minimum(snr, gamma),
        "v_prediction": np.minimum(snr, gamma) / (snr + 1),
    }[prediction]
    weights = schedule.min_snr_weights(torch.from_numpy(STEPS), gamma)
    np.testing.assert_allclose(weights.numpy(), expected, rtol=2e-3)  # 1 − ᾱ_0 has four digits in float32


@pytest.mark.parametrize(("prediction", "limit"), [("epsilon", 1), ("sample", 0), ("v_prediction", 0)])
def test_min_snr_weights_where_nothing_is_left_of_the_image(prediction, limit):
    config = LINEAR | {"prediction_type": prediction, "rescale_betas_zero_snr": True}
    assert NoiseSchedule(config).min_snr_weights(torch.tensor([T - 1]), 5.0).item() == pytest.approx(limit, abs=1e-6)


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_loss_is_the_mean_square_of_the_prediction_from_its_target(prediction):
    network = tiny_pipelines.unet(size=tiny.SIDE)
    config = {"sample_size": tiny.SIDE, "in_channels": 3, "out_channels": 3}
    model = DDPM(network, config, NoiseSchedule(LINEAR | {"prediction_type": prediction}))
    data, noise = model.encode(tiny.images(len(STEPS))), draws()[1].repeat(1, 1, 2, 2)
    t = torch.from_numpy(STEPS)
    a = torch.from_numpy(alpha_bar(LINEAR)[STEPS])[:, None, None, None]
    x, e = data.x.double(), noise.double()
    target = {"epsilon": e, "sample": x, "v_prediction": a.sqrt() * e - (1 - a).sqrt() * x}[prediction]
    with torch.no_grad():
        predicted = network((a.sqrt() * x + (1 - a).sqrt() * e).float(), t).sample.double()
        losses = model.loss(data, t, noise)
    np.testing.assert_allclose(losses.numpy(), (predicted - target).square().mean(dim=(1, 2, 3)).numpy(), rtol=1e-4)


@pytest.mark.parametrize(
    ("scheduler", "prediction"),
    [("ddim", "epsilon"), ("ddim", "sample"), ("ddim", "v_prediction"), ("pndm", "epsilon"), ("pndm", "v_prediction")],
)
def test_samples_are_those_of_diffusers_pipelines(scheduler, prediction):
    config = LINEAR | {"prediction_type": prediction}
    network = tiny_pipelines.unet(size=tiny.SIDE)
    model = DDPM(network, {"sample_size": tiny.SIDE, "in_channels": 3, "out_channels": 3}, NoiseSchedule(config))
    seeds = [0, 5, 17]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    if scheduler == "ddim":
        pipeline = DDIMPipeline(network, DDIMScheduler(**config, clip_sample=True))
    else:
        pipeline = PNDMPipeline(network, PNDMScheduler(**config, skip_prk_steps=True))
    pipeline.set_progress_bar_config(disable=True)
    theirs = pipeline(len(seeds), generator=generators, num_inference_steps=6, output_type="np").images
    ours = model.sample(seeds, 6, scheduler=scheduler)
    assert ours.std() > 10, "images that are all alike would agree with anything"
    assert np.abs(ours - (theirs * 255).round()).max() <= 1


def test_samplers_follow_the_spacing_of_their_schedule():
    config = LINEAR | {"timestep_spacing": "trailing", "steps_offset": 1, "set_alpha_to_one": False}
    for name, theirs in (("ddim", DDIMScheduler(**config)), ("pndm", PNDMScheduler(**config, skip_prk_steps=True))):
        theirs.set_timesteps(7)
        assert NoiseSchedule(config).sampler(name, 7).timesteps.tolist() == theirs.timesteps.tolist()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"prediction_type": "flow_prediction"}, "prediction_type: 'flow_prediction'; accepted: epsilon"),
        ({"beta_schedule": "sigmoid"}, "not a noise schedule .*sigmoid"),
    ],
)
def test_an_unknown_schedule_is_refused(config, message):
    with pytest.raises(UserError, match=message):
        NoiseSchedule(LINEAR | config)


@pytest.mark.parametrize(
    ("config", "name", "steps", "message"),
    [
        ({}, "euler", 5, "'euler'; accepted: ddim, pndm"),
        ({}, "ddim", T + 1, "sampling.steps: 1001; this model has 1000"),
        ({"prediction_type": "sample"}, "pndm", 5, "'pndm' takes no model"),
        ({"rescale_betas_zero_snr": True}, "pndm", 5, "'pndm' takes no model"),
    ],
)
def test_a_sampler_that_does_not_fit_is_refused(config, name, steps, message):
    with pytest.raises(UserError, match=message):
        NoiseSchedule(LINEAR | config).sampler(name, steps)
