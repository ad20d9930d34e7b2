import math
import os
import signal
import threading
from dataclasses import replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from diffusers import DDPMScheduler
from safetensors import safe_open
from safetensors.torch import save
from scipy.stats import chisquare
from torch import Tensor, nn

from diffcredit.diffusion import Training, checkpoints, stepwise
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.draws import draw, plan
from diffcredit.diffusion.stepwise import Processes
from diffcredit.diffusion.training import TrainingDiverged, train
from diffcredit.errors import DiffcreditError, UserError

from . import plain, tiny

SETTINGS = {
    "constant": Training(steps=5, batch_size=3),
    "cosine": Training(steps=5, batch_size=3, schedule="cosine", flip=False),
    "ema": Training(steps=5, batch_size=3, ema=0.9),
    "average_tail": Training(steps=5, batch_size=3, schedule="cosine", average_tail=0.6),
    "adamw": Training(steps=5, batch_size=3, optimizer="adamw", weight_decay=0.1, warmup_steps=2, ema=0.9),
}
if find_spec("bitsandbytes") is not None:
    SETTINGS["adamw8bit"] = replace(SETTINGS["adamw"], optimizer="adamw8bit")
SEED = 11


def fresh(device: str = "cpu"):
    model = tiny.model(1).to(device)
    return model, model.encode(tiny.images(4))


def trained(settings: Training, checkpoint: Path | None = None, on_step=None, device: str = "cpu") -> dict[str, Tensor]:
    model, data = fresh(device)
    train(model, data, settings, seed=SEED, checkpoint=checkpoint, on_step=on_step)
    assert not model.network.training, "it is ready to sample"
    return tiny.weights(model)


@cache
def uninterrupted(name: str) -> dict[str, Tensor]:
    return trained(SETTINGS[name])


def plain_loop(settings: Training) -> list[dict[str, Tensor]]:
    """Adam on the denoising loss as a textbook has it; the weights after every step."""
    model, data = fresh()
    network, schedule = model.network, DDPMScheduler(**DDPM.schedule)
    # fused, since the other implementations round otherwise
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate, fused=True)
    weights = []
    for step in range(settings.steps):
        batch, t, noise = draw(data, step, settings, SEED, 1000)
        if settings.schedule == "cosine":
            optimizer.param_groups[0]["lr"] = (
                settings.learning_rate * (1 + math.cos(math.pi * step / settings.steps)) / 2
            )
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.precision == "bf16"):
            predicted = network(schedule.add_noise(batch.x, noise, t), t).sample
        optimizer.zero_grad()
        ((predicted.float() - noise) ** 2).mean(dim=(1, 2, 3)).mean().backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), settings.gradient_clip)
        optimizer.step()
        weights.append(tiny.weights(model))
    return weights


@pytest.mark.parametrize(
    ("name", "changes"), [("constant", {}), ("cosine", {"gradient_clip": 0.01}), ("constant", {"precision": "bf16"})]
)
def test_training_is_bitwise_a_plain_loop(name, changes):
    settings = replace(SETTINGS[name], **changes)
    assert tiny.same(trained(settings), plain_loop(settings)[-1])


def test_ema_of_the_weights_step_by_step():
    average = {name: tensor.double() for name, tensor in tiny.weights(fresh()[0]).items()}
    for k, weights in enumerate(plain_loop(SETTINGS["ema"]), start=1):
        decay = min(0.9, (1 + k) / (10 + k))
        average = {name: decay * average[name] + (1 - decay) * weights[name].double() for name in average}
    for name, tensor in uninterrupted("ema").items():
        torch.testing.assert_close(tensor.double(), average[name], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("tail", "count"), [(0.6, 3), (0.01, 1)])
def test_average_of_the_tail_step_by_step(tail, count):
    settings = replace(SETTINGS["average_tail"], average_tail=tail)
    steps = plain_loop(settings)[-count:]
    for name, tensor in trained(settings).items():
        expected = torch.stack([weights[name].double() for weights in steps]).mean(dim=0)
        torch.testing.assert_close(tensor.double(), expected, rtol=1e-5, atol=1e-7)


# Cut off and taken up again


def interrupt_at(step: int):
    def on_step(done: int, total: int) -> None:
        if done == step:
            os.kill(os.getpid(), signal.SIGINT)

    return on_step


@pytest.mark.parametrize(
    ("name", "cut", "error", "cuts"),
    [
        *[(name, tiny.cut_at, tiny.PowerCut, (2, 5)) for name in SETTINGS],
        ("constant", tiny.cut_at, tiny.PowerCut, (1,)),
        ("average_tail", interrupt_at, KeyboardInterrupt, (1,)),
        ("average_tail", interrupt_at, KeyboardInterrupt, (5,)),
    ],
)
def test_a_run_that_was_cut_off_goes_on_bit_for_bit(name, cut, error, cuts, tmp_path, monkeypatch):
    if error is tiny.PowerCut:  # Ctrl-C saves whatever was done
        monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", -1.0)
    checkpoint, before = tmp_path / "run.safetensors", signal.getsignal(signal.SIGINT)
    for step in cuts:
        with pytest.raises(error):
            trained(SETTINGS[name], checkpoint, cut(step))
    assert signal.getsignal(signal.SIGINT) is before
    taken = []
    weights = trained(SETTINGS[name], checkpoint, lambda done, total: taken.append((done, total)))
    assert tiny.same(weights, uninterrupted(name))
    assert signal.getsignal(signal.SIGINT) is before
    # what was saved before the cut is not done again
    first = max(cuts) if error is tiny.PowerCut else max(cuts) + 1
    assert taken == [(step, 5) for step in range(first, 6)]


def other_network() -> plain.Plain:
    model = plain.Plain()
    model.network[3] = nn.Conv2d(8, 3, 3, padding=1).double()
    return model


def test_a_checkpoint_of_another_run_is_not_taken_up(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", -1.0)
    settings, steps = Training(steps=2, batch_size=2), []

    def run(*, model=plain.Plain, seed=SEED, ascend=False, **changes) -> list[int]:
        steps.clear()
        options = {"checkpoint": tmp_path / "run.safetensors", "on_step": lambda done, total: steps.append(done)}
        train(model(), plain.data(), replace(settings, **changes), seed=seed, ascend=ascend, **options)
        return steps

    run()
    for other in (
        {"learning_rate": 2e-4},
        {"ema": 0.5},
        {"optimizer": "sgd"},
        {"seed": SEED + 1},
        {"ascend": True},
        {"model": other_network},
    ):
        assert run(**other) == [1, 2]
        assert run(**other) == []


FOREIGN = save({"a": torch.zeros(2)}, {"made by": "somebody else"})


@pytest.mark.parametrize("content", [b"not a checkpoint", FOREIGN, FOREIGN[:-1]], ids=["text", "foreign", "truncated"])
def test_a_file_that_is_no_checkpoint_is_named(content, tmp_path):
    checkpoint = tmp_path / "run.safetensors"
    checkpoint.write_bytes(content)
    with pytest.raises(UserError, match=r"run\.safetensors: not a checkpoint .* remove it"):
        trained(SETTINGS["constant"], checkpoint)


def test_ctrl_c_without_a_checkpoint_is_pythons_own():
    seen = []

    def press(done: int, total: int) -> None:
        seen.append(done)
        interrupt_at(1)(done, total)

    with pytest.raises(KeyboardInterrupt):
        trained(SETTINGS["constant"], None, press)
    assert seen == [1]


def test_training_in_another_thread(tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(trained(SETTINGS["ema"], tmp_path / "run.safetensors")))
    thread.start()
    thread.join()
    (weights,) = results
    assert tiny.same(weights, uninterrupted("ema"))


class Diverging(plain.Plain):
    """Whose loss is ``loss`` in step ``step`` and finite before and after."""

    def __init__(self, step: int, loss: float) -> None:
        super().__init__()
        self.countdown, self.wrong = step, loss

    def loss(self, batch, t, noise):
        self.countdown -= 1
        losses = super().loss(batch, t, noise)
        # without a gradient, so that the weights stay finite: only the record can tell
        return losses.detach() * self.wrong + 0 * losses if self.countdown == 0 else losses


@pytest.mark.parametrize(("loss", "step", "seen"), [(math.nan, 1, 49), (math.inf, 50, 49), (math.nan, 60, 59)])
def test_a_loss_that_is_no_number_stops_and_names_the_step(loss, step, seen):
    steps = []
    with pytest.raises(
        TrainingDiverged, match=rf"loss became {loss} at step {step} of 60; a learning rate under 1e-07"
    ):
        train(
            Diverging(step, loss),
            plain.data(),
            Training(steps=60, batch_size=2, learning_rate=1e-7, ema=0.9),
            seed=0,
            on_step=lambda done, total: steps.append(done),
        )
    assert steps == list(range(1, seen + 1))


def test_a_state_with_a_loss_that_is_no_number_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", -1.0)
    checkpoint = tmp_path / "run.safetensors"
    settings = Training(steps=60, batch_size=2)
    with pytest.raises(TrainingDiverged, match="at step 7 of 60"):
        train(Diverging(7, math.nan), plain.data(), settings, seed=0, checkpoint=checkpoint)
    # the state of step 6 is there, and from it a sound loss goes on
    steps = []
    train(plain.Plain(), plain.data(), settings, seed=0, checkpoint=checkpoint, on_step=lambda *at: steps.append(at))
    assert steps[0] == (7, 60)


@pytest.mark.parametrize("average", [{}, {"ema": 0.9}, {"average_tail": 0.5}])
def test_weights_that_the_last_step_ruins_are_not_handed_out(average):
    settings = Training(steps=1, batch_size=2, learning_rate=1e308, optimizer="sgd", gradient_clip=None, **average)
    model = plain.Plain()
    for parameter in model.network.parameters():
        parameter.data *= 1e8
    with pytest.raises(TrainingDiverged, match="the weights became infinite or nan at step 1 of 1"):
        train(model, plain.data(), settings, seed=0)


# What a study may choose


def by_hand(settings: Training, sign: int, weight) -> dict[str, Tensor]:
    """Gradient descent on the stand-in, with autograd's gradients; w(t) is ``weight``."""
    model, data = plain.Plain(), plain.data()
    for step in range(settings.steps):
        batch, t, noise = draw(data, step, settings, SEED, 1000)
        losses = (model.network(batch.x + noise) - noise).square().mean(dim=(1, 2, 3))
        loss = (losses if weight is None else losses * weight(t)).mean()
        gradients = torch.autograd.grad(loss, list(model.network.parameters()))
        for parameter, gradient in zip(model.network.parameters(), gradients, strict=True):
            parameter.data -= sign * settings.learning_rate * gradient
    return plain.weights(model)


DESCENT = Training(steps=3, batch_size=4, learning_rate=0.2, optimizer="sgd", gradient_clip=None)


@pytest.mark.parametrize(
    ("options", "ascend", "weight"),
    [({}, False, None), ({}, True, None), ({"min_snr": 0.25}, False, lambda t: (t + 1) / 250)],
    ids=["descent", "ascent", "min_snr"],
)
def test_gradient_descent_by_hand(options, ascend, weight):
    model = plain.Plain()
    train(model, plain.data(), replace(DESCENT, **options), seed=SEED, ascend=ascend)
    expected = by_hand(DESCENT, -1 if ascend else 1, weight)
    torch.testing.assert_close(plain.weights(model), expected, rtol=1e-12, atol=1e-14)


def test_only_what_requires_gradients_is_trained_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", -1.0)
    settings, checkpoint = replace(DESCENT, ema=0.5), tmp_path / "run.safetensors"

    def half_frozen() -> plain.Plain:
        model = plain.Plain()
        model.network[0].requires_grad_(False)
        return model

    model = half_frozen()
    before = plain.weights(model)
    train(model, plain.data(), settings, seed=SEED, checkpoint=checkpoint)
    after = plain.weights(model)
    assert {name for name in before if not before[name].equal(after[name])} == {"3.weight", "3.bias"}
    with safe_open(checkpoint, framework="pt") as file:
        assert sorted(file.keys()) == [
            "state/average/0",
            "state/average/1",
            "state/weights/3.bias",
            "state/weights/3.weight",
        ]
    again = half_frozen()
    train(again, plain.data(), settings, seed=SEED, checkpoint=checkpoint)
    assert tiny.same(plain.weights(again), after)


def test_what_cannot_be_trained_is_refused():
    model = plain.Plain()
    with pytest.raises(UserError, match="gradient_checkpointing: true, but Sequential does not offer it"):
        train(model, plain.data(), replace(DESCENT, gradient_checkpointing=True), seed=0)
    model.network.requires_grad_(False)
    with pytest.raises(DiffcreditError, match="no parameter of the Sequential requires a gradient"):
        train(model, plain.data(), DESCENT, seed=0)


def test_gradient_checkpointing_changes_nothing_but_the_memory():
    settings = Training(steps=2, batch_size=3, learning_rate=0.1, optimizer="sgd")
    results, passes = [], []
    for on in (False, True):
        model, data = fresh()
        calls = []
        block = model.network.down_blocks[0].resnets[0]
        block.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        train(model, data, replace(settings, gradient_checkpointing=on), seed=SEED)
        results.append(tiny.weights(model))
        passes.append(len(calls))
        assert not model.network.is_gradient_checkpointing
    torch.testing.assert_close(*results)
    # forward once more while going backward
    assert passes == [2, 4]


# What a step is made of


def rows_of(data, settings, steps, seed=SEED) -> list[int]:
    return torch.cat([draw(data, step, settings, seed, 1000)[0].rows for step in range(steps)]).tolist()


@pytest.fixture(scope="module")
def data():
    return tiny.model().encode(tiny.images(10))


@pytest.mark.parametrize("batch_size", [3, 10, 25])
def test_every_epoch_shows_each_image_once(data, batch_size):
    steps = math.ceil(40 / batch_size)
    rows = rows_of(data, Training(steps=steps, batch_size=batch_size), steps)
    assert len(rows) == steps * batch_size
    epochs = [rows[i : i + 10] for i in range(0, 40, 10)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(10))
    assert len(set(map(tuple, epochs))) == 4
    # the same images in the same order, however they are cut into batches
    single = Training(steps=40, batch_size=1)
    assert rows[:40] == rows_of(data, single, 40) != rows_of(data, single, 40, seed=SEED + 1)


@pytest.mark.parametrize("members", [[7], [0, 2, 3, 5, 8]])
def test_a_coalitions_order_is_everybodys_restricted_to_it(data, members):
    everybody = rows_of(data, Training(steps=3, batch_size=10), 3)
    coalition = data.select(torch.tensor(members))
    size = len(members)
    expected = [row for row in everybody if row in members]
    assert rows_of(coalition, Training(steps=3, batch_size=size), 3) == expected


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


@pytest.mark.parametrize("size", [1, 8, 125])
def test_time_steps_one_from_each_stratum(data, size):
    for step in range(20):
        _, t, _ = draw(data, step, Training(steps=20, batch_size=size), SEED, 1000)
        assert sorted((t * size // 1000).tolist()) == list(range(size))


def test_time_steps_are_uniform_at_every_place_in_the_batch():
    draws = plan(torch.arange(2), Training(steps=2000, batch_size=3), SEED, 10).t
    assert draws.min() == 0
    assert draws.max() == 9
    for place in range(3):
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
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    on_gpu = partial(trained, SETTINGS[name], device="cuda")
    with pytest.raises(tiny.PowerCut):
        on_gpu(tmp_path / "run.safetensors", tiny.cut_at(3))
    assert tiny.same(on_gpu(tmp_path / "run.safetensors"), on_gpu())


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"ema": 0.9, "micro_batch": 2}, {"precision": "bf16", "min_snr": 5.0}])
def test_a_step_does_not_wait_for_the_gpu(options):
    model = tiny.model().to("cuda")
    data, settings = model.encode(tiny.images(4)), Training(steps=9, batch_size=4, **options)
    run = stepwise._Run(model, settings, Processes(), ascend=False)
    steps = [draw(data, step, settings, SEED, 1000) for step in range(4)]
    run.advance(*steps[0], reseed=lambda place: None)  # the first one sets things up
    torch.cuda.set_sync_debug_mode("error")
    try:
        for drawn in steps[1:]:
            run.advance(*drawn, reseed=lambda place: None)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert run.step == 4
