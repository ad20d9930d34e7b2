"""Rows of Φ against gradients by hand times the signs by hand, whatever is interrupted, permuted or cut up; sampling
paths against diffusers; errors against the network's predictions."""

import dataclasses
import hashlib
import math

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler

from diffcredit.baselines.base import Evidence
from diffcredit.baselines.gradients import GradientSettings, per_image, rows
from diffcredit.baselines.gradients.rows import gradient_rows, predicted_on_path, root_errors, sign_seeds, signs
from diffcredit.diffusion.objectives.noise_schedule import NoiseSchedule
from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import DiffcreditError, UserError
from diffcredit.util.seeds import derive_seed

from ..made_up import contributions, permuted, tiny_model

LAYERS = ("conv_in", "conv_out")
SETTINGS = GradientSettings("loss", time_steps=3, dimensions=64, layers=LAYERS, seed=5)


@pytest.fixture(scope="module")
def model():
    return tiny_model(1)


def evidence(model, given=None, **more):
    generated = np.random.default_rng(8).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    return Evidence(given or contributions(), generated, load_model=lambda: model, **more)


def at(condition, place):
    return {name: each[[place]] for name, each in condition.items()}


def by_hand(model, image, x_of_step, settings, condition=None):
    """One row: plain backward passes at the noises of the rule, times the matrix of signs, in float64."""
    parameters = [
        p
        for name, p in model.network.named_parameters()
        if p.requires_grad and (settings.layers is None or any(text in name for text in settings.layers))
    ]
    digest, total = hashlib.sha256(image.tobytes()).hexdigest(), 0
    for j in range(settings.time_steps):
        generator = torch.Generator().manual_seed(derive_seed(settings.seed, digest, j))
        x = x_of_step(j)
        noise = torch.randn(x.shape[1:], generator=generator)[None]
        t = torch.tensor([int((j + 0.5) * 1000 / settings.time_steps)])
        prediction = model.predict(model.objective.add_noise(x, noise, t), t, condition)
        gradients = torch.autograd.grad((prediction - noise).square().mean(), parameters)
        total = total + torch.cat([g.flatten() for g in gradients]).double() / settings.time_steps
    every = signs(sign_seeds(settings.dimensions, settings.seed), 0, math.ceil(len(total) / 64))[:, : len(total)]
    return (every.double() @ total / math.sqrt(settings.dimensions)).numpy()


def agree(found, expected):
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max())
    assert np.ptp(expected) > 0


def test_rows_are_those_by_hand_in_the_order_of_the_images(model, tmp_path):
    told = []
    given = evidence(model, folder=tmp_path, progress=lambda what, done, total: told.append((what, done, total)))
    found = gradient_rows(given, SETTINGS, "training", "trak")
    assert isinstance(found, np.memmap)
    images = given.contributions.images
    unit = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1
    some = [0, 19]
    expected = [by_hand(model, images[i], lambda j, i=i: unit[[i]], SETTINGS) for i in some]
    agree(found[some], np.stack(expected))
    assert told[:20] == [("trak: gradients of training images", done, 20) for done in range(1, 21)]
    assert told[-1] == ("trak: projecting gradients of training images", 20, 20)


def test_shuffled_images_and_other_batches_give_the_same_rows(model, whole, monkeypatch):
    order = np.random.default_rng(2).permutation(20)
    monkeypatch.setattr(rows, "TOGETHER", 3)
    monkeypatch.setattr(per_image, "BUSY", {"cpu": 1})
    monkeypatch.setattr(per_image, "SAMPLES_AT_ONCE", {"cpu": 2})
    agree(gradient_rows(evidence(model, permuted(contributions(), order)), SETTINGS, "training", "trak"), whole[order])


def test_gradients_along_the_base_models_journey(model, tmp_path):
    """The path is of the model that made the images, also where the gradients are another one's."""
    sampling, other = Sampling(images=3, steps=5, seed=4), tiny_model(7)
    given = evidence(model, sampling=sampling, replicate={2: other}.__getitem__, folder=tmp_path)
    given = dataclasses.replace(given, generated=model.sample([4, 5, 6], 5))
    settings = dataclasses.replace(SETTINGS, kind="journey_loss")
    seen = []
    path = model.objective.sampler("ddim", 5).times.numpy()
    with torch.no_grad():
        model.denoise([4, 5, 6], 5, "ddim", None, on_step=lambda k, x: seen.append(x))
    at = [int(np.abs(path - t).argmin()) for t in (166, 500, 833)]
    for replicate, owner in ((0, model), (2, other)):
        found = gradient_rows(given, settings, "generated", "journey_trak", replicate)
        expected = [by_hand(owner, given.generated[i], lambda j, i=i: seen[at[j]][[i]], settings) for i in range(2)]
        agree(found[:2], np.stack(expected))
        plain = gradient_rows(given, SETTINGS, "generated", "trak", replicate)
        assert np.abs(found - plain).max() > 1e-3 * np.abs(plain).max()
    # the same images, said to be on the other model's own path, have other rows
    own = dataclasses.replace(given, load_model=lambda: other)
    assert np.abs(gradient_rows(own, settings, "generated", "journey_trak") - found).max() > 0.001 * np.abs(found).max()
    assert len(list(tmp_path.iterdir())) == 5


def never(what, done, total):
    raise AssertionError("nothing is left to do")


def test_a_text_models_rows_see_captions_and_prompts_and_its_adapter_alone(text_model):
    text = text_model
    captions, full = ("a", "b", "a"), contributions(size=16)
    few = {"images": full.images[:3], "owner": np.arange(3), "contributors": "abc", "names": full.names[:3]}
    given = dataclasses.replace(full, **few, captions=captions)
    generated = np.random.default_rng(8).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
    seen = Evidence(given, generated, load_model=lambda: text, sampling=Sampling(images=3, steps=2, seed=1))
    settings = dataclasses.replace(SETTINGS, layers=None, time_steps=1)
    for of, images, texts in (("training", given.images, captions), ("generated", generated, "bab")):  # seeds 1, 2, 3
        found = gradient_rows(seen, settings, of, "trak")
        encoded = text.encode(images, list(texts), mirrored=False)
        expected = [
            by_hand(text, images[i], lambda j, i=i, x=encoded.x: x[[i]], settings, at(encoded.condition, i))
            for i in range(2)
        ]
        agree(found[:2], np.stack(expected))
    assert np.isfinite(
        gradient_rows(seen, dataclasses.replace(settings, kind="journey_loss"), "generated", "journey_trak")
    ).all()


class Stop(BaseException):
    """As Ctrl-C or a kill would."""


@pytest.fixture(scope="module")
def whole(model):
    """The rows of an uninterrupted run, four at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "TOGETHER", 4)
        return np.array(gradient_rows(evidence(model), SETTINGS, "training", "trak"))


@pytest.mark.parametrize("cut", [1, 9])
def test_an_interrupted_run_continues(model, whole, tmp_path, monkeypatch, cut):
    monkeypatch.setattr(rows, "TOGETHER", 4)

    def cut_off(what, done, total):
        if "projecting" not in what and done == cut:
            raise Stop

    with pytest.raises(Stop):
        gradient_rows(evidence(model, folder=tmp_path, progress=cut_off), SETTINGS, "training", "trak")
    told = []
    again = evidence(model, folder=tmp_path, progress=lambda what, done, total: told.append((what, done)))
    np.testing.assert_array_equal(gradient_rows(again, SETTINGS, "training", "trak"), whole)
    assert [done for what, done in told if "projecting" not in what] == list(range((cut - 1) // 4 * 4 + 1, 21))
    quiet = evidence(model, folder=tmp_path, progress=never)
    np.testing.assert_array_equal(gradient_rows(quiet, SETTINGS, "training", "trak"), whole)


def test_a_row_that_was_written_but_not_marked_is_made_again(model, whole, tmp_path):
    gradient_rows(evidence(model, folder=tmp_path), SETTINGS, "training", "trak")
    (folder,) = tmp_path.iterdir()
    table, done = np.load(folder / "rows.npy", mmap_mode="r+"), np.load(folder / "done.npy", mmap_mode="r+")
    table[[3, 11]] = 7  # as a kill in the middle of writing may leave them
    done[[3, 11]] = 0
    table.flush()
    done.flush()
    again = gradient_rows(evidence(model, folder=tmp_path), SETTINGS, "training", "trak")
    agree(again, whole)


def test_another_model_setting_or_image_has_a_file_of_its_own(model, tmp_path):
    given = evidence(model, folder=tmp_path)
    plain = GradientSettings("loss", 1, 3, ("conv_out",), seed=5)
    gradient_rows(given, plain, "generated", "trak")
    changed = dataclasses.replace(given, generated=given.generated ^ np.uint8(1))
    for other, settings, of in (
        (dataclasses.replace(given, load_model=lambda: tiny_model(2)), plain, "generated"),
        (given, dataclasses.replace(plain, seed=6), "generated"),
        (given, dataclasses.replace(plain, layers=("conv_out.weight",)), "generated"),
        (changed, plain, "generated"),
        (given, plain, "training"),
    ):
        before = len(list(tmp_path.iterdir()))
        gradient_rows(other, settings, of, "trak")
        assert len(list(tmp_path.iterdir())) == before + 1


def test_dimensions_that_nobody_asked_for_are_no_more_than_there_are(model, tmp_path):
    given = evidence(model, folder=tmp_path)
    few = GradientSettings("loss", 1, layers=("conv_out.bias",))
    found = gradient_rows(given, few, "training", "trak")
    assert found.shape == (20, 3)
    asked = gradient_rows(
        dataclasses.replace(given, progress=never), dataclasses.replace(few, dimensions=3), "training", "d"
    )
    np.testing.assert_array_equal(asked, found)  # the same rows, found again
    assert gradient_rows(given, GradientSettings("loss", 1), "generated", "trak").shape == (3, 2048)


def test_refusals(model, tmp_path):
    given = evidence(model, folder=tmp_path)
    for settings, seen, of, said in (
        (GradientSettings("loss", 1, 9, ("conv_out.bias",)), given, "training", "dimensions: 9, but .* have 3 entries"),
        (dataclasses.replace(SETTINGS, layers=("nowhere",)), given, "training", "layers: 'nowhere'"),
        (
            SETTINGS,
            evidence(model, contributions(size=16)),
            "training",
            r"images of encoded shape \(3, 16, 16\); accept",
        ),
        (dataclasses.replace(SETTINGS, kind="journey_loss"), given, "generated", "needs to know how the 3 generated"),
    ):
        with pytest.raises(UserError, match=rf"^trak: {said}"):
            gradient_rows(seen, settings, of, "trak")


def test_a_damaged_file_is_not_taken_for_rows(model, tmp_path):
    given = evidence(model, folder=tmp_path)
    gradient_rows(given, SETTINGS, "training", "trak")
    (folder,) = tmp_path.iterdir()
    content = (folder / "rows.npy").read_bytes()
    for damaged in (b"", b"\x93NUMPY", content[: len(content) // 2]):
        (folder / "rows.npy").write_bytes(damaged)
        with pytest.raises(UserError, match=r"^trak: .*damaged; remove it"):
            gradient_rows(given, SETTINGS, "training", "trak")


def test_a_disk_that_is_too_small_is_told_before_the_work(model, tmp_path):
    with pytest.raises(UserError, match=r"dimensions: 1000000 for 1000000000 images take 4000000.0 GB"):
        rows.Kept.open(tmp_path / "rows", 1_000_000_000, 1_000_000)
    assert not list(tmp_path.iterdir())


def test_a_gradient_that_is_no_number_names_its_image(tmp_path):
    broken = tiny_model(1)
    with torch.no_grad():
        next(iter(broken.network.parameters())).fill_(math.nan)
    with pytest.raises(DiffcreditError, match=r"^trak: the gradient of 00 is not a finite number"):
        gradient_rows(evidence(broken, folder=tmp_path), SETTINGS, "training", "trak")


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
@pytest.mark.parametrize("clip", [False, True])
def test_the_clean_image_is_predicted_as_by_diffusers_sampler(prediction, clip):
    config = {"num_train_timesteps": 50, "prediction_type": prediction, "clip_sample": clip, "clip_sample_range": 1.5}
    sampler = DDIMScheduler(**config)
    sampler.set_timesteps(50)
    x, predicted = torch.randn(2, 4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for t in (0, 7, 49):
        found = NoiseSchedule(config).predicted_x0(predicted, x, torch.tensor(t))
        torch.testing.assert_close(found, sampler.step(predicted, t, x).pred_original_sample)


def path_by_diffusers(model, seeds, steps, wanted):
    """The path with diffusers' sampler and a loop of our own."""
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


def test_the_path_is_the_samplers_at_the_nearest_time_steps(model):
    wanted = [12, 240, 290, 999]  # of 0, 100, …, 900: 0, 200, 300, 900
    found = predicted_on_path(model, [4, 5], Sampling(steps=10, batch_size=1), torch.tensor(wanted))
    assert found.shape == (2, 4, 3, 8, 8)
    # rounding grows by 1/√ᾱ
    torch.testing.assert_close(found, path_by_diffusers(model, [4, 5], 10, wanted), rtol=1e-3, atol=1e-3)
    assert (found[:, 1] - found[:, 2]).abs().max() > 0.01


def test_pndm_asks_twice_at_one_time_step(model):
    found = predicted_on_path(model, [0], Sampling(steps=10, scheduler="pndm"), torch.tensor([950, 100]))
    assert found.shape == (1, 2, 3, 8, 8)
    assert found.isfinite().all()


def test_a_model_without_a_path_is_refused():
    with pytest.raises(UserError, match="object has no sampling path"):
        predicted_on_path(object(), [0], Sampling(), torch.tensor([0]))


def test_root_errors_are_those_of_the_predictions(model, monkeypatch):
    monkeypatch.setitem(rows.IMAGES_AT_ONCE, "cpu", 7)  # 20 images in three parts
    looked_at = evidence(model, seed=4)
    found = root_errors(looked_at, 3, "das")
    kept = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000))
    for image in (0, 9, 19):
        pixels = looked_at.contributions.images[image]
        noise = per_image.noises(per_image.digests(pixels[None]), 3, (3, 8, 8), 4)[0]
        for j, t in enumerate((166, 500, 833)):
            x = torch.tensor(pixels).permute(2, 0, 1) / 127.5 - 1
            x_t = np.sqrt(kept[t]) * x + np.sqrt(1 - kept[t]) * noise[j]
            with torch.no_grad():
                predicted = model.network(x_t[None].float(), torch.tensor([t])).sample[0]
            expected = np.sqrt(np.mean((predicted - noise[j]).numpy() ** 2))
            assert found[image, j] == pytest.approx(expected, rel=1e-4)


def test_root_errors_are_cached_for_each_model_and_seed(model, tmp_path):
    told = []
    looked_at = evidence(model, folder=tmp_path, progress=lambda what, done, total: told.append((done, total)))
    looked_at = dataclasses.replace(looked_at, replicate=lambda number: tiny_model(7))
    first = root_errors(looked_at, 2, "das")
    assert told[-1] == (20, 20)
    told.clear()
    np.testing.assert_array_equal(root_errors(looked_at, 2, "das"), first)
    assert not told
    assert (root_errors(dataclasses.replace(looked_at, seed=5), 2, "das") != first).any()
    of_replicate = root_errors(looked_at, 2, "das", 1)
    np.testing.assert_array_equal(of_replicate, root_errors(evidence(tiny_model(7)), 2, "das"))
    assert (of_replicate != first).any()
