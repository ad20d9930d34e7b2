import hashlib

import pytest
import torch
from diffusers import DDPMScheduler

from diffcredit.baselines.gradients import GradientSettings, per_image
from diffcredit.baselines.gradients.per_image import PerImage, Samples, digests, noises, time_steps, trained_parameters
from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError

from ..made_up import generated as pictures
from ..made_up import tiny_model

J = 2


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def samples(model, images, count=J):
    x = model.encode(images, mirrored=False).x
    t = time_steps(model, count)
    noise = noises(digests(images), count, x.shape[1:], seed=7)
    return Samples(x[:, None].expand(-1, count, -1, -1, -1), noise, t.expand(len(x), -1))


def one_sample_at_a_time(model, kind, images, count=J):
    """The definition, by plain loops and diffusers' own noising."""
    schedule = DDPMScheduler(num_train_timesteps=1000, beta_start=1e-4, beta_end=0.02, beta_schedule="linear")
    rows = []
    for image in images:
        x = torch.from_numpy(image).permute(2, 0, 1)[None].float() / 127.5 - 1
        noise = noises([hashlib.sha256(image.tobytes()).hexdigest()], count, x.shape[1:], seed=7)[0]
        total = 0
        for j in range(count):
            t = torch.tensor([int((j + 0.5) * 1000 / count)])
            prediction = model.network(schedule.add_noise(x, noise[[j]], t), t).sample
            value = {
                "loss": lambda p, e: (p - e).square().mean(),
                "prediction_norm": lambda p, e: p.square().mean(),
                "prediction_mean": lambda p, e: p.mean(),
            }[kind](prediction, noise[[j]])
            gradient = torch.cat([g.flatten() for g in torch.autograd.grad(value, list(model.network.parameters()))])
            total = total + (gradient / gradient.norm() if kind == "prediction_mean" else gradient) / count
        rows.append(total)
    return torch.stack(rows)


@pytest.mark.parametrize("kind", ["loss", "prediction_norm", "prediction_mean"])
def test_every_way_gives_what_one_sample_at_a_time_gives(model, kind, monkeypatch):
    images = pictures(2)
    expected = one_sample_at_a_time(model, kind, images)
    assert expected.norm(dim=1).min() > 1e-2  # so that the comparison says something
    for busy, samples_at_once in ((1, 1), (1, 100), (4, 100)):
        monkeypatch.setitem(per_image.SAMPLES_AT_ONCE, "cpu", samples_at_once)
        found = PerImage(model, GradientSettings(kind, J), busy).gradients(samples(model, images))
        assert found.shape == expected.shape
        assert (found - expected).abs().max() < 1e-6 * expected.abs().max() + 1e-7


def test_no_such_layers_are_refused(model):
    with pytest.raises(UserError, match=r"layers: 'transformer'; no trainable .* there are conv_in.weight"):
        trained_parameters(model, ("transformer",))
    frozen = model.clone()
    frozen.network.requires_grad_(False)
    with pytest.raises(UserError, match="no trainable parameters"):
        trained_parameters(frozen)
    with pytest.raises(UserError, match=r"layers: \[\]; no trainable"):
        trained_parameters(model, ())


def test_time_steps_are_the_middles_of_equal_parts(model):
    assert time_steps(model, 1).tolist() == [500]
    assert time_steps(model, 3).tolist() == [166, 500, 833]
    assert time_steps(model, 1000).tolist() == list(range(1000))


def test_noise_follows_from_seed_content_and_time_step_alone():
    one, other = digests(pictures(2))
    both = noises([one, other], 4, (3, 8, 8), seed=1)
    assert noises([other], 2, (3, 8, 8), seed=1)[0].equal(both[1, :2])
    several = torch.cat([both.flatten(0, 1), noises([one], 4, (3, 8, 8), seed=2)[0]])
    assert len({tuple(each.flatten().tolist()) for each in several}) == 12
    assert abs(several.mean()) < 5 / several.numel() ** 0.5
    assert abs(several.var() - 1) < 5 * (2 / several.numel()) ** 0.5


def test_memory_that_runs_out_is_met_with_smaller_pieces_once(model, monkeypatch):
    data = samples(model, pictures(4))
    expected = PerImage(model, GradientSettings("loss", J)).gradients(data)
    honest, tried = model.loss, []

    def at_most_one(batch, t, noise):
        tried.append(len(batch))
        if len(batch) > 1:
            raise torch.OutOfMemoryError
        return honest(batch, t, noise)

    monkeypatch.setattr(model, "loss", at_most_one)
    per_image = PerImage(model, GradientSettings("loss", J), busy=2 * J)
    with pytest.warns(DiffcreditWarning, match="out of memory"):
        found = per_image.gradients(data)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    tried.clear()
    per_image.gradients(data)
    assert set(tried) == {1}  # what did not fit is not tried again

    def never(batch, t, noise):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(model, "loss", never)
    with pytest.raises(DiffcreditError, match="out of memory with a single sample at once"):
        per_image.gradients(data)


@pytest.mark.gpu
def test_a_gpu_agrees_in_float32_and_roughly_in_bf16():
    images = pictures(8)
    model = tiny_model()
    expected = PerImage(model, GradientSettings("loss", J)).gradients(samples(model, images))
    model.to("cuda")
    data = samples(model, images)
    data = Samples(data.x, data.noise.cuda(), data.t)
    torch.backends.cudnn.allow_tf32 = False
    try:
        for busy in (1, 64):
            found = PerImage(model, GradientSettings("loss", J), busy=busy).gradients(data).cpu()
            assert (found - expected).norm() < 1e-4 * expected.norm()
    finally:
        torch.backends.cudnn.allow_tf32 = True
    for busy in (1, 64):
        rough = PerImage(model, GradientSettings("loss", J, precision="bf16"), busy=busy).gradients(data)
        assert rough.dtype == torch.float32
        assert 1e-4 < (rough.cpu() - expected).norm() / expected.norm() < 0.05
