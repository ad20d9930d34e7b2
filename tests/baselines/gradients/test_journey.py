import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler

from diffcredit.baselines.gradients.journey import predicted_on_path
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.noise_schedule import NoiseSchedule
from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import UserError


@pytest.fixture(scope="module")
def model():
    return DDPM.create("tiny", 8, seed=3)


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
@pytest.mark.parametrize("clip", [False, True])
def test_what_is_foreseen_is_what_diffusers_sampler_foresees(prediction, clip):
    config = {"num_train_timesteps": 50, "prediction_type": prediction, "clip_sample": clip, "clip_sample_range": 1.5}
    sampler = DDIMScheduler(**config)
    sampler.set_timesteps(50)
    x, predicted = torch.randn(2, 4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for t in (0, 7, 49):
        found = NoiseSchedule(config).predicted_x0(predicted, x, torch.tensor(t))
        torch.testing.assert_close(found, sampler.step(predicted, t, x).pred_original_sample)


def by_diffusers(model, seeds, steps, wanted):
    """The same path with diffusers' sampler and a loop of our own."""
    sampler = DDIMScheduler(num_train_timesteps=1000, beta_start=1e-4, beta_end=0.02, beta_schedule="linear")
    sampler.set_timesteps(steps)
    x = torch.stack([torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(seed)) for seed in seeds])
    on_the_way = {}
    with torch.no_grad():
        for t in sampler.timesteps.tolist():
            step = sampler.step(model.network(x, t).sample, t, x, use_clipped_model_output=True)
            on_the_way[t], x = step.pred_original_sample, step.prev_sample
    times = np.array(list(on_the_way))
    nearest = [int(times[np.abs(times - t).argmin()]) for t in wanted]
    return torch.stack([on_the_way[t] for t in nearest], dim=1)


@pytest.mark.parametrize("batch_size", [1, 5])
def test_the_path_is_the_samplers_at_the_nearest_time_steps(model, batch_size):
    wanted = [12, 240, 290, 999]  # of 0, 50, …, 950: 0, 250, 300, 950
    found = predicted_on_path(model, [4, 5, 9], Sampling(steps=20, batch_size=batch_size), torch.tensor(wanted))
    expected = by_diffusers(model, [4, 5, 9], 20, wanted)
    assert found.shape == (3, 4, 3, 8, 8)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)  # rounding grows by 1/√ᾱ
    assert (found[:, 1] - found[:, 2]).abs().max() > 0.05


def test_the_last_step_foresees_the_image_itself(model):
    found = predicted_on_path(model, [0, 1], Sampling(steps=10), torch.tensor([0]))
    # ᾱ at the end is 1: the last step keeps nothing but x̂₀
    np.testing.assert_array_equal(model.decode(found[:, 0]), model.sample([0, 1], 10))


def test_hearing_of_the_path_changes_nothing(model):
    heard = []
    with torch.no_grad():
        silent = model.denoise([3], 5, "ddim", None)
        assert model.denoise([3], 5, "ddim", None, on_step=lambda k, x: heard.append(k)).equal(silent)
    assert heard == [0, 1, 2, 3, 4]


def test_pndm_asks_twice_at_one_time_step(model):
    found = predicted_on_path(model, [0], Sampling(steps=10, scheduler="pndm"), torch.tensor([950, 100]))
    assert found.shape == (1, 2, 3, 8, 8)
    assert found.isfinite().all()


def test_a_model_without_a_path_is_refused(model):
    class Other:
        noise_schedule = model.noise_schedule

    with pytest.raises(UserError, match="Other has no sampling path"):
        predicted_on_path(Other(), [0], Sampling(), torch.tensor([0]))
