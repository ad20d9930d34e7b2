import math
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from diffusers import DDPMScheduler
from safetensors.torch import save_file
from torch import Tensor

from diffcredit.diffusion import Training, training
from diffcredit.diffusion.ddpm import DDPM, SCHEDULE
from diffcredit.diffusion.training import TrainingDiverged, draw, learning_rate, train
from diffcredit.errors import UserError

from . import tiny

SETTINGS = {
    "constant": Training(steps=5, batch_size=3),
    "cosine": Training(steps=5, batch_size=3, schedule="cosine", flip=False),
    "ema": Training(steps=5, batch_size=3, ema=0.9),
    "average_tail": Training(steps=5, batch_size=3, schedule="cosine", average_tail=0.6),
}
SEED = 11


def fresh():
    model = tiny.model(1)
    return model, model.encode(tiny.images(4))


def trained(settings: Training, checkpoint: Path | None = None, on_step=None) -> dict[str, Tensor]:
    model, data = fresh()
    train(model, data, settings, seed=SEED, checkpoint=checkpoint, on_step=on_step)
    return tiny.weights(model)


@pytest.fixture(scope="module")
def uninterrupted() -> dict[str, dict[str, Tensor]]:
    return {name: trained(settings) for name, settings in SETTINGS.items()}


def plain_loop(settings: Training) -> list[dict[str, Tensor]]:
    """Adam on the denoising loss as a textbook has it; the weights after every step."""
    model, data = fresh()
    network, schedule = model.network, DDPMScheduler(**SCHEDULE)
    # fused, since the other implementations round otherwise
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate, fused=True)
    weights = []
    for step in range(settings.steps):
        batch, t, noise = draw(data, step, settings, SEED, 1000)
        if settings.schedule == "cosine":
            optimizer.param_groups[0]["lr"] = (
                settings.learning_rate * (1 + math.cos(math.pi * step / settings.steps)) / 2
            )
        predicted = network(schedule.add_noise(batch.x, noise, t), t).sample
        optimizer.zero_grad()
        ((predicted - noise) ** 2).mean(dim=(1, 2, 3)).mean().backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), settings.gradient_clip)
        optimizer.step()
        weights.append(tiny.weights(model))
    return weights


@pytest.mark.parametrize("name", ["constant", "cosine"])
@pytest.mark.parametrize("clip", [1.0, 0.01])
def test_training_is_bitwise_a_plain_loop(name, clip):
    settings = replace(SETTINGS[name], gradient_clip=clip)
    assert tiny.same(trained(settings), plain_loop(settings)[-1])


def test_what_the_settings_change_changes_the_weights(uninterrupted):
    base = SETTINGS["constant"]
    clipped = trained(replace(base, gradient_clip=0.01))
    assert not tiny.same(clipped, uninterrupted["constant"])
    assert not tiny.same(trained(replace(base, flip=False)), uninterrupted["constant"])


def test_cosine_schedule():
    settings = Training(steps=8, learning_rate=0.4, schedule="cosine")
    rates = [learning_rate(settings, step) for step in range(9)]
    # by the half-angle formula η cos²(πk/2K)
    assert rates == pytest.approx([0.4 * math.cos(math.pi * k / 16) ** 2 for k in range(9)])
    assert (rates[0], rates[4]) == pytest.approx((0.4, 0.2))
    assert {learning_rate(replace(settings, schedule="constant"), step) for step in range(9)} == {0.4}


def test_ema_of_the_weights_step_by_step(uninterrupted):
    average = {name: tensor.double() for name, tensor in tiny.weights(fresh()[0]).items()}
    for k, weights in enumerate(plain_loop(SETTINGS["ema"]), start=1):
        decay = min(0.9, (1 + k) / (10 + k))
        average = {name: decay * average[name] + (1 - decay) * weights[name].double() for name in average}
    for name, tensor in uninterrupted["ema"].items():
        torch.testing.assert_close(tensor.double(), average[name], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("tail", "count"), [(0.6, 3), (1.0, 5), (0.01, 1)])
def test_average_of_the_tail_step_by_step(tail, count):
    settings = replace(SETTINGS["average_tail"], average_tail=tail)
    steps = plain_loop(settings)[-count:]
    for name, tensor in trained(settings).items():
        expected = torch.stack([weights[name].double() for weights in steps]).mean(dim=0)
        torch.testing.assert_close(tensor.double(), expected, rtol=1e-5, atol=1e-7)


def test_at_most_one_average():
    with pytest.raises(ValueError, match="give one of them"):
        Training(steps=1, ema=0.9, average_tail=0.5)


# Cut off and taken up again


class PowerCut(Exception):
    pass


def cut_at(step: int):
    def on_step(done: int, total: int) -> None:
        if done == step:
            raise PowerCut

    return on_step


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("cuts", [(1,), (2,), (5,), (2, 4), (3, 4, 5)])
def test_a_run_that_was_cut_off_goes_on_bit_for_bit(name, cuts, uninterrupted, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    checkpoint = tmp_path / "run.safetensors"
    for step in cuts:
        with pytest.raises(PowerCut):
            trained(SETTINGS[name], checkpoint, cut_at(step))
    taken = []
    weights = trained(SETTINGS[name], checkpoint, lambda done, total: taken.append((done, total)))
    assert tiny.same(weights, uninterrupted[name])
    # what was saved before the cut is not done again
    assert taken == [(step, 5) for step in range(max(cuts), 6)]


def test_checkpoints_are_only_written_when_due(tmp_path, uninterrupted):
    checkpoint = tmp_path / "run.safetensors"
    assert tiny.same(trained(SETTINGS["constant"], checkpoint), uninterrupted["constant"])
    assert not checkpoint.exists()


@pytest.mark.parametrize(
    "other",
    [{"learning_rate": 2e-4}, {"steps": 6}, {"batch_size": 2}, {"schedule": "cosine"}, {"flip": False}, {"ema": 0.5}],
)
def test_a_checkpoint_of_other_settings_is_not_taken_up(other, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    checkpoint, settings = tmp_path / "run.safetensors", replace(SETTINGS["constant"], **other)
    trained(SETTINGS["constant"], checkpoint)
    steps = []
    weights = trained(settings, checkpoint, lambda done, total: steps.append(done))
    assert steps == list(range(1, settings.steps + 1))
    assert tiny.same(weights, trained(settings))


def test_a_checkpoint_of_another_seed_is_not_taken_up(tmp_path, monkeypatch, uninterrupted):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    checkpoint = tmp_path / "run.safetensors"
    model, data = fresh()
    train(model, data, SETTINGS["constant"], seed=SEED + 1, checkpoint=checkpoint)
    assert not tiny.same(tiny.weights(model), uninterrupted["constant"])
    assert tiny.same(trained(SETTINGS["constant"], checkpoint), uninterrupted["constant"])


@pytest.mark.parametrize("content", ["nothing", "truncated", "text", "foreign", "anonymous", "incomplete"])
def test_a_file_that_is_no_checkpoint_is_named(content, tmp_path, monkeypatch):
    checkpoint = tmp_path / "run.safetensors"
    if content == "foreign":
        save_file({"a": torch.zeros(2)}, checkpoint, {"made by": "somebody else"})
    elif content == "anonymous":
        save_file({"a": torch.zeros(2)}, checkpoint)
    elif content == "incomplete":
        monkeypatch.setattr(training, "save_file", lambda tensors, *rest: save_file({"a": torch.zeros(2)}, *rest))
        with pytest.raises(KeyboardInterrupt):
            trained(SETTINGS["constant"], checkpoint, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    elif content == "truncated":
        with pytest.raises(KeyboardInterrupt):
            trained(SETTINGS["constant"], checkpoint, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        checkpoint.write_bytes(checkpoint.read_bytes()[:-1000])
    else:
        checkpoint.write_text({"nothing": "", "text": "not a checkpoint"}[content])
    with pytest.raises(UserError, match=r"run\.safetensors: not a checkpoint .* remove it"):
        trained(SETTINGS["constant"], checkpoint)


@pytest.mark.parametrize("step", [1, 3, 5])
def test_ctrl_c_saves_and_the_run_goes_on_later(step, tmp_path, uninterrupted):
    checkpoint, before = tmp_path / "run.safetensors", signal.getsignal(signal.SIGINT)

    def press(done: int, total: int) -> None:
        if done == step:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        trained(SETTINGS["average_tail"], checkpoint, press)
    assert signal.getsignal(signal.SIGINT) is before
    taken = []
    weights = trained(SETTINGS["average_tail"], checkpoint, lambda done, total: taken.append(done))
    assert taken == list(range(step + 1, 6))
    assert tiny.same(weights, uninterrupted["average_tail"])
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_without_a_checkpoint_is_pythons_own():
    seen = []
    with pytest.raises(KeyboardInterrupt):
        trained(
            SETTINGS["constant"],
            None,
            lambda done, total: (seen.append(done), os.kill(os.getpid(), signal.SIGINT)),
        )
    assert seen == [1]


def test_the_handler_is_restored_after_an_exception(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(PowerCut):
        trained(SETTINGS["constant"], tmp_path / "run.safetensors", cut_at(2))
    assert signal.getsignal(signal.SIGINT) is before


def test_training_in_another_thread(tmp_path, uninterrupted):
    results = []
    thread = threading.Thread(target=lambda: results.append(trained(SETTINGS["ema"], tmp_path / "run.safetensors")))
    thread.start()
    thread.join()
    (weights,) = results
    assert tiny.same(weights, uninterrupted["ema"])


@pytest.mark.parametrize(("every", "step"), [(2, 2), (3, 3), (50, 6)])
def test_a_loss_that_is_no_number_stops_and_names_the_step(every, step, monkeypatch):
    monkeypatch.setattr(training, "LOSS_CHECK_STEPS", every)
    seen = []
    with pytest.raises(TrainingDiverged, match=f"by step {step} of 6; a learning rate under 1e[+]30"):
        trained(Training(steps=6, batch_size=2, learning_rate=1e30), on_step=lambda done, total: seen.append(done))
    assert seen == list(range(1, step))


def test_training_leaves_the_network_ready_to_sample():
    model, data = fresh()
    train(model, data, SETTINGS["constant"], seed=0)
    assert not model.network.training


# What a step is made of


def rows_of(data, settings, steps, seed=SEED) -> list[int]:
    return torch.cat([draw(data, step, settings, seed, 1000)[0].rows for step in range(steps)]).tolist()


@pytest.fixture(scope="module")
def data():
    return tiny.model().encode(tiny.images(10))


@pytest.mark.parametrize("batch_size", [1, 3, 4, 10, 13, 25])
def test_every_epoch_shows_each_image_once(data, batch_size):
    steps = math.ceil(40 / batch_size)
    rows = rows_of(data, Training(steps=steps, batch_size=batch_size), steps)
    assert len(rows) == steps * batch_size
    epochs = [rows[i : i + 10] for i in range(0, 40, 10)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(10))
    assert len(set(map(tuple, epochs))) == 4
    # the same images in the same order, however they are cut into batches
    assert rows[:40] == rows_of(data, Training(steps=40, batch_size=1), 40)


def test_another_seed_gives_another_order(data):
    settings = Training(steps=1, batch_size=10)
    assert rows_of(data, settings, 1, seed=1) != rows_of(data, settings, 1, seed=2)


@pytest.mark.parametrize("members", [[0, 1, 2, 3], [1, 4, 9], [7], [0, 2, 3, 5, 8]])
def test_a_coalitions_order_is_everybodys_restricted_to_it(data, members):
    everybody = rows_of(data, Training(steps=3, batch_size=10), 3)
    coalition = data.select(torch.tensor(members))
    size = len(members)
    expected = [row for row in everybody if row in members]
    assert rows_of(coalition, Training(steps=3, batch_size=size), 3) == expected


def test_batches_hold_the_images_of_their_rows(data):
    coalition = data.select(torch.tensor([2, 5, 6]))
    for step in range(3):
        batch, _, _ = draw(coalition, step, Training(steps=3, batch_size=4, flip=False), SEED, 1000)
        assert batch.x.equal(data.x[batch.rows])
        assert batch.flipped.equal(data.flipped[batch.rows])


def test_about_half_of_the_images_are_mirrored(data):
    settings = Training(steps=50, batch_size=20)
    mirrored = []
    for step in range(50):
        batch, _, _ = draw(data, step, settings, SEED, 1000)
        for x, flipped, row in zip(batch.x, batch.flipped, batch.rows, strict=True):
            original = data.x[row]
            turned = torch.stack([original[:, :, column] for column in reversed(range(tiny.SIDE))], dim=-1)
            mirrored.append(x.equal(turned))
            assert (x.equal(turned), flipped.equal(original)) in ((True, True), (False, False))
            assert mirrored[-1] or (x.equal(original) and flipped.equal(turned))
    # 1000 throws of a coin: five standard deviations are 79
    assert abs(sum(mirrored) - 500) < 79
    # each image both ways
    assert 0 < sum(mirrored[:20]) < 20


@pytest.mark.parametrize("size", [1, 4, 8, 125])
def test_time_steps_one_from_each_stratum(data, size):
    for step in range(20):
        _, t, _ = draw(data, step, Training(steps=20, batch_size=size), SEED, 1000)
        assert sorted((t * size // 1000).tolist()) == list(range(size))


def test_time_steps_where_the_strata_divide_nothing_evenly(data):
    _, t, _ = draw(data, 0, Training(steps=1, batch_size=7), SEED, 100)
    for j, value in enumerate(sorted(t.tolist())):
        assert math.floor(j * 100 / 7) <= value <= math.ceil((j + 1) * 100 / 7) - 1


@pytest.mark.parametrize("size", [1, 3, 12])
def test_time_steps_are_uniform_at_every_place_in_the_batch(size):
    from scipy.stats import chisquare

    data = tiny.model().encode(tiny.images(2)[:, :1, :1])
    draws = torch.stack([draw(data, k, Training(steps=1, batch_size=size), SEED, 10)[1] for k in range(2000)])
    assert draws.min() == 0
    assert draws.max() == 9
    for place in range(min(size, 3)):
        assert chisquare(torch.bincount(draws[:, place], minlength=10)).pvalue > 1e-4


def test_noises_follow_from_the_seed_and_the_step_alone(data):
    settings = Training(steps=2, batch_size=4)

    def inputs(step=0, seed=SEED, of=data):
        _, t, noise = draw(of, step, settings, seed, 1000)
        return t, noise

    t, noise = inputs()
    torch.manual_seed(99)
    # not from torch's own state, nor from who takes part: coalitions differ in their images only
    for other in (inputs(), inputs(of=data.select(torch.tensor([1, 3, 8])))):
        assert t.equal(other[0])
        assert noise.equal(other[1])
    for other in (inputs(step=1), inputs(seed=SEED + 1)):
        assert not noise.equal(other[1])
    many = torch.cat([inputs(step)[1].flatten() for step in range(20)])
    assert many.mean().item() == pytest.approx(0, abs=0.05)
    assert many.std().item() == pytest.approx(1, abs=0.05)


@pytest.mark.gpu
def test_what_is_drawn_does_not_depend_on_the_device():
    pictures, settings = tiny.images(10), Training(steps=3, batch_size=16)
    here, there = tiny.model().encode(pictures), tiny.model().to("cuda").encode(pictures)
    for step in range(3):
        batch, t, noise = draw(here, step, settings, SEED, 1000)
        other = draw(there, step, settings, SEED, 1000)
        assert batch.rows.equal(other[0].rows)
        assert batch.x.equal(other[0].x.cpu())
        assert t.equal(other[1].cpu())
        assert noise.equal(other[2].cpu())


@pytest.mark.gpu
@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_on_a_gpu_goes_on_bit_for_bit(name, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    pictures = tiny.images(4)

    def on_gpu(checkpoint: Path | None = None, on_step=None) -> dict[str, Tensor]:
        model = tiny.model(1).to("cuda")
        train(model, model.encode(pictures), SETTINGS[name], seed=SEED, checkpoint=checkpoint, on_step=on_step)
        return tiny.weights(model)

    with pytest.raises(PowerCut):
        on_gpu(tmp_path / "run.safetensors", cut_at(3))
    assert tiny.same(on_gpu(tmp_path / "run.safetensors"), on_gpu())


def test_ddpm_has_the_time_steps_of_its_schedule():
    assert tiny.model().time_steps == SCHEDULE["num_train_timesteps"] == len(DDPMScheduler(**SCHEDULE).betas)
    assert isinstance(tiny.model(), DDPM)
