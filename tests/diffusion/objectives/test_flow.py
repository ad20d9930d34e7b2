"""Flow matching against scipy's distributions, diffusers' Euler scheduler and formulas written out."""

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from scipy import stats

from diffcredit.diffusion.objectives import FlowMatching, NoiseSchedule, objective_from
from diffcredit.diffusion.objectives.flow import Density, Euler, shifted
from diffcredit.errors import UserError

from .. import tiny

T = 1000
DENSITIES = [
    Density("uniform"),
    Density("uniform", shift=3.0),
    Density(),
    Density(mean=-0.5, std=1.4),
    Density(mean=1.0, std=0.3, shift=0.5),
]


def cumulative(density: Density, sigma: np.ndarray) -> np.ndarray:
    """P(σ ≤ ``sigma``) by scipy: the shift's inverse, then the distribution of u."""
    u = sigma / (density.shift - (density.shift - 1) * sigma)
    if density.name == "uniform":
        return stats.uniform.cdf(u)
    return stats.norm.cdf(np.log(u / (1 - u)), density.mean, density.std)


@pytest.mark.parametrize("density", DENSITIES, ids=str)
def test_a_time_step_is_a_quantile_of_the_density(density):
    flow = FlowMatching(density)
    assert flow.time_steps == T
    sigma = flow.times(torch.arange(T))
    assert sigma.dtype == torch.float32
    assert bool((sigma.diff() > 0).all())
    assert sigma.min() > 0
    assert sigma.max() < 1
    np.testing.assert_allclose(cumulative(density, sigma.double().numpy()), (np.arange(T) + 0.5) / T, atol=1e-5)


def test_drawn_uniformly_time_steps_follow_the_logit_normal_density():
    """Compared with a histogram of numbers that are drawn by its definition."""
    density = Density(mean=0.4, std=1.2, shift=2.0)
    t = torch.randint(T, (200_000,), generator=torch.Generator().manual_seed(0))
    ours = FlowMatching(density).times(t).numpy()
    u = 1 / (1 + np.exp(-np.random.default_rng(1).normal(0.4, 1.2, 200_000)))
    edges = np.linspace(0, 1, 21)
    drawn, expected = (np.histogram(each, edges)[0] / 200_000 for each in (ours, 2 * u / (1 + u)))
    assert np.abs(drawn - expected).max() < 0.004
    assert expected.max() > 0.06  # it is far from uniform


def test_the_usual_density_has_its_median_at_one_half_and_is_symmetric():
    sigma = FlowMatching().times(torch.arange(T))
    torch.testing.assert_close(sigma + sigma.flip(0), torch.ones(T), rtol=0, atol=1e-6)


def test_the_shift_is_that_of_diffusers():
    theirs = FlowMatchEulerDiscreteScheduler(shift=3.0)
    levels = torch.linspace(1, 0.001, T)
    torch.testing.assert_close(shifted(levels, 3.0), theirs.sigmas, rtol=0, atol=1e-6)


def test_the_nearest_time_step():
    flow = FlowMatching(Density(mean=-0.3, shift=2.0))
    table = flow.times(torch.arange(T)).double()
    wanted = torch.tensor([0.0, 0.013, 0.5, 0.777, 1.0])
    by_hand = [int(np.abs(table.numpy() - level).argmin()) for level in wanted.double().numpy()]
    found = flow.nearest(wanted)
    assert found.tolist() == by_hand
    assert found.dtype == torch.int64
    assert flow.nearest(flow.times(torch.tensor([7, 500, 999]))).tolist() == [7, 500, 999]


def test_noise_target_and_a_step_to_the_image():
    """x_σ, the velocity, and the way back along a straight line."""
    draws = torch.Generator().manual_seed(0)
    x, noise = (torch.randn(3, 2, 4, 4, generator=draws) for _ in range(2))
    flow, t = FlowMatching(), torch.tensor([3, 500, 990])
    sigma = flow.times(t)
    x_t = flow.add_noise(x, noise, t)
    for i in range(3):
        torch.testing.assert_close(x_t[i], (1 - sigma[i]) * x[i] + sigma[i] * noise[i])
    velocity = flow.target(x, noise, t)
    assert velocity.equal(noise - x)
    torch.testing.assert_close(x_t - sigma[:, None, None, None] * velocity, x)
    # half-precision images stay what they are, at σ that was not rounded before
    assert flow.add_noise(x.bfloat16(), noise.bfloat16(), t).dtype == torch.bfloat16


@pytest.mark.parametrize(
    "config",
    [{}, {"shift": 3.0}, {"use_dynamic_shifting": True}, {"shift_terminal": 0.02, "shift": 2.0}],
    ids=["plain", "shift", "dynamic", "terminal"],
)
def test_euler_takes_the_steps_of_diffusers(config):
    """With the levels of diffusers' scheduler, whose own steps are the reference."""
    theirs = FlowMatchEulerDiscreteScheduler(**config)
    theirs.set_timesteps(7, mu=0.8)
    sampler = FlowMatching(sigmas=lambda steps: theirs.sigmas).sampler("ddim", 7)
    assert sampler.times.equal(theirs.sigmas[:-1])
    torch.testing.assert_close(sampler.times * 1000, theirs.timesteps)
    generator = torch.Generator().manual_seed(0)
    ours = reference = torch.randn(2, 3, 4, 4, generator=generator)
    for k, timestep in enumerate(theirs.timesteps):
        prediction = torch.randn(2, 3, 4, 4, generator=generator)
        torch.testing.assert_close(sampler.clean(k, prediction, ours), ours - theirs.sigmas[k] * prediction)
        ours = sampler.step(k, prediction, ours)
        reference = theirs.step(prediction, timestep, reference).prev_sample
        torch.testing.assert_close(ours, reference, rtol=0, atol=1e-6)


def test_own_levels_are_even_and_shifted():
    sampler = FlowMatching(Density(), shift=3.0).sampler("ddim", 4)
    even = np.array([1, 0.75, 0.5, 0.25])
    np.testing.assert_allclose(sampler.times.numpy(), 3 * even / (1 + 2 * even), rtol=1e-6)
    # of a straight path every step has the same estimate, and the last one arrives there
    x, noise = torch.full((1, 1, 2, 2), 0.3), torch.full((1, 1, 2, 2), -1.5)
    at = noise
    for k in range(4):
        torch.testing.assert_close(sampler.clean(k, noise - x, at), x)
        at = sampler.step(k, noise - x, at)
    torch.testing.assert_close(at, x)


def test_the_config_gives_the_objective_back():
    for density in DENSITIES:
        flow = FlowMatching(density, 2.5)
        again = objective_from(flow.config)
        assert isinstance(again, FlowMatching)
        assert again.config == flow.config
        assert again.times(torch.arange(T)).equal(flow.times(torch.arange(T)))
        assert again.sampler("ddim", 3).times.equal(flow.sampler("ddim", 3).times)
    assert isinstance(objective_from({"beta_schedule": "linear"}), NoiseSchedule)


def test_what_a_flow_has_not_is_refused():
    flow = FlowMatching()
    tiny.refused("min_snr: .*flow matching.* leave it out", flow.min_snr_weights, torch.zeros(1, dtype=torch.long), 5.0)
    for name in ("dpm", "pndm"):
        tiny.refused(rf"sampling\.scheduler: '{name}' .*accepted: ddim", flow.sampler, name, 5)
    with pytest.raises(UserError, match=r"sampling\.steps: 1; this pipeline has no noise levels for so few steps"):
        Euler(torch.tensor([float("nan"), 0.0]))
