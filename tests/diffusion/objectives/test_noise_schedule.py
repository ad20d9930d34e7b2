from itertools import pairwise

import numpy as np
import pytest
import torch
from diffusers import DDIMPipeline, DDIMScheduler, PNDMPipeline, PNDMScheduler
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from torch.utils._python_dispatch import TorchDispatchMode

from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.objectives.noise_schedule import NoiseSchedule, dpm_time_steps
from diffcredit.errors import UserError

from .. import tiny, tiny_pipelines

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
    a = np.cumprod(1 - betas)
    if config.get("rescale_betas_zero_snr"):  # Lin et al. 2024, algorithm 1
        root = np.sqrt(a)
        a = ((root - root[-1]) * root[0] / (root[0] - root[-1])) ** 2
    return a


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


@pytest.mark.parametrize(("prediction", "limit"), [("epsilon", 1), ("sample", 0), ("v_prediction", 0)])
def test_min_snr_weights_are_those_of_hang_et_al(prediction, limit):
    gamma = 5.0
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
    # where nothing is left of the image
    schedule = NoiseSchedule(schedule.config | {"rescale_betas_zero_snr": True})
    assert schedule.min_snr_weights(torch.tensor([T - 1]), gamma).item() == pytest.approx(limit, abs=1e-6)


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_loss_is_the_mean_square_of_the_prediction_from_its_target(prediction):
    network = tiny_pipelines.unet(size=tiny.SIDE)
    model = DDPM(network, network.config, NoiseSchedule(LINEAR | {"prediction_type": prediction}))
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
    model = DDPM(network, network.config, NoiseSchedule(config))
    seeds = [0, 5, 17]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    options = {}
    if scheduler == "ddim":
        pipeline = DDIMPipeline(network, DDIMScheduler(**config, clip_sample=True))
        options = {"use_clipped_model_output": True}
    else:
        pipeline = PNDMPipeline(network, PNDMScheduler(**config, skip_prk_steps=True))
    pipeline.set_progress_bar_config(disable=True)
    theirs = pipeline(len(seeds), generator=generators, num_inference_steps=6, output_type="np", **options).images
    ours = model.sample(seeds, 6, scheduler=scheduler)
    assert ours.std() > 10, "images that are all alike would agree with anything"
    assert np.abs(ours - (theirs * 255).round()).max() <= 1


def test_samplers_follow_the_spacing_of_their_schedule():
    config = LINEAR | {"timestep_spacing": "trailing", "steps_offset": 1, "set_alpha_to_one": False}
    for name, theirs in (("ddim", DDIMScheduler(**config)), ("pndm", PNDMScheduler(**config, skip_prk_steps=True))):
        theirs.set_timesteps(7)
        assert NoiseSchedule(config).sampler(name, 7).times.tolist() == theirs.timesteps.tolist()


STANDARD, MEAN = 0.3, 0.2  # of the Gaussian data; the mean far within [−1, 1]


def gaussian_prediction(prediction: str, x: torch.Tensor, a: float) -> torch.Tensor:
    """What the best network says of x_t when the data are N(MEAN, STANDARD²): E[ε | x_t], E[x | x_t] or E[v | x_t]."""
    variance = a * STANDARD**2 + 1 - a
    foreseen = MEAN + np.sqrt(a) * STANDARD**2 / variance * (x - np.sqrt(a) * MEAN)
    noise = np.sqrt(1 - a) / variance * (x - np.sqrt(a) * MEAN)
    velocity = np.sqrt(a) * noise - np.sqrt(1 - a) * foreseen
    return {"epsilon": noise, "sample": foreseen, "v_prediction": velocity}[prediction]


def gaussian_error(name: str, prediction: str, steps: int, **schedule: bool) -> float:
    """The largest distance of a sampler's end, from x_T in −2..2, from that of the differential equation's solution:
    (x_t − √ᾱ_t MEAN) / √(ᾱ_t STANDARD² + 1 − ᾱ_t) stays as it is."""
    config = LINEAR | {"prediction_type": prediction, "clip_sample": False} | schedule
    a, sampler = alpha_bar(config), NoiseSchedule(config).sampler(name, steps)
    x = start = torch.linspace(-2, 2, 9, dtype=torch.float64)
    first = a[int(sampler.times[0])]
    for k, t in enumerate(sampler.times):
        x = sampler.step(k, gaussian_prediction(prediction, x, a[int(t)]), x)
    exact = MEAN + STANDARD * (start - np.sqrt(first) * MEAN) / np.sqrt(first * STANDARD**2 + 1 - first)
    return (x - exact).abs().max().item()


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_dpm_converges_at_second_order_and_is_nearer_than_ddim(prediction):
    errors = [gaussian_error("dpm", prediction, steps) for steps in (10, 20, 40)]
    assert errors[2] < 0.01 * 2 * 2 * STANDARD  # of what the ends spread over
    orders = np.log2(errors[:-1]) - np.log2(errors[1:])
    assert (orders > 1.8).all(), errors
    for steps, error in zip((10, 20, 40), errors, strict=True):
        assert error < gaussian_error("ddim", prediction, steps)


@pytest.mark.parametrize("prediction", ["sample", "v_prediction"])
def test_dpm_begins_in_pure_noise_where_the_schedule_ends_in_it(prediction):
    assert gaussian_error("dpm", prediction, 400, rescale_betas_zero_snr=True) < 5e-4


@pytest.mark.parametrize(("mean", "standard"), [(0.9, 0.3), (-0.5, 1.0)])
@pytest.mark.parametrize(("name", "steps", "near"), [("dpm", 100, 5e-3), ("ddim", 1000, 1e-2)])
def test_samplers_solve_one_equation_where_what_they_foresee_is_cut_off(name, steps, near, mean, standard):
    """dy/ds = (y − x̂₀)/s with y = x_t/√ᾱ_t, s = √(1 − ᾱ_t)/√ᾱ_t and x̂₀ = clamp(E[x | x_t]), by Runge and Kutta."""
    a = alpha_bar(LINEAR)

    def foreseen(y: np.ndarray, s: float) -> np.ndarray:
        return mean + standard**2 / (standard**2 + s**2) * (y - mean)

    start = np.linspace(-2, 2, 9)
    noisiest = np.sqrt(1 - a[-1]) / np.sqrt(a[-1])
    exact = solve_ivp(
        lambda log_s, y: y - foreseen(y, np.exp(log_s)).clip(-1, 1),
        (np.log(noisiest), np.log(1e-5)),
        start / np.sqrt(a[-1]),
        rtol=1e-9,
        atol=1e-9,
    ).y[:, -1]
    sampler = NoiseSchedule(LINEAR | {"prediction_type": "sample", "clip_sample": True}).sampler(name, steps)
    x = torch.from_numpy(start)
    for k, t in enumerate(sampler.times):
        root = np.sqrt(a[int(t)])
        prediction = torch.from_numpy(foreseen(x.numpy() / root, np.sqrt(1 - a[int(t)]) / root))
        x = sampler.step(k, prediction, x)
    assert np.isclose(np.abs(exact), 1, atol=1e-4).any(), "nothing was cut off"
    np.testing.assert_allclose(x.numpy(), exact, atol=near)


@given(time_steps=st.integers(1, 2000), data=st.data())
def test_dpm_asks_at_distinct_time_steps_from_the_noisiest_down(time_steps, data):
    steps = data.draw(st.integers(1, time_steps))
    asked = dpm_time_steps(time_steps, steps)
    assert len(asked) == steps
    assert asked[0] == time_steps - 1
    assert asked[-1] >= 0
    assert all(later < earlier for earlier, later in pairwise(asked))


class Still(TorchDispatchMode):
    """Refuses to copy anything from one device to another."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default:
            assert kwargs.get("device", args[0].device) == args[0].device, f"copies {args[0]} to {kwargs['device']}"
        return func(*args, **kwargs)


@pytest.mark.parametrize("scheduler", ["ddim", "pndm", "dpm"])
def test_samplers_exchange_nothing_with_the_device(scheduler):
    """Tensors without content stand in for a GPU's while a CUDA graph is recorded: who reads their numbers fails."""
    sampler = NoiseSchedule(LINEAR).sampler(scheduler, 6)
    x = torch.empty(2, 3, 8, 8, device="meta")
    with Still():
        assert sampler.times.device.type == "cpu"
        for k in range(len(sampler.times)):
            x = sampler.step(k, torch.empty_like(x), x)
    assert x.device.type == "meta"


@pytest.mark.parametrize(
    ("config", "name", "steps", "message"),
    [
        ({"prediction_type": "flow_prediction"}, "ddim", 5, "prediction_type: 'flow_prediction'; accepted: epsilon"),
        ({"beta_schedule": "sigmoid"}, "ddim", 5, "not a noise schedule .*sigmoid"),
        ({}, "euler", 5, "'euler'; accepted: ddim, pndm, dpm"),
        ({}, "ddim", T + 1, "sampling.steps: 1001; this model has 1000"),
        ({"prediction_type": "sample"}, "pndm", 5, "'pndm' takes no model"),
        ({"rescale_betas_zero_snr": True}, "pndm", 5, "'pndm' takes no model"),
        ({"rescale_betas_zero_snr": True}, "dpm", 5, "'dpm' takes no model that predicts the noise"),
    ],
)
def test_schedules_and_samplers_that_do_not_fit_are_refused(config, name, steps, message):
    with pytest.raises(UserError, match=message):
        NoiseSchedule(LINEAR | config).sampler(name, steps)
