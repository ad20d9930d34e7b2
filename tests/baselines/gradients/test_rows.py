"""Rows of Φ against gradients by hand times the signs by hand, whatever is interrupted, permuted or cut up."""

import dataclasses
import hashlib
import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from diffcredit.baselines.base import Evidence
from diffcredit.baselines.gradients import per_image, projection, rows
from diffcredit.baselines.gradients.projection import Signs
from diffcredit.baselines.gradients.rows import gradient_rows
from diffcredit.baselines.gradients.settings import GradientSettings
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.pipeline import pipeline
from diffcredit.diffusion.settings import Sampling
from diffcredit.diffusion.text_to_image import TextToImageLoRA
from diffcredit.errors import DiffcreditError, UserError
from diffcredit.util.seeds import derive_seed
from diffusion.tiny_pipelines import stable_diffusion

from ..made_up import contributions, permuted

LAYERS = ("conv_in", "conv_out")
SETTINGS = GradientSettings("loss", time_steps=3, dimensions=64, layers=LAYERS, seed=5)


@pytest.fixture(scope="module")
def model():
    return DDPM.create("tiny", 8, seed=1)


def evidence(model, given=None, **more):
    generated = np.random.default_rng(8).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    return Evidence(given or contributions(), generated, load_model=lambda: model, **more)


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
        prediction = model.predict(model.noise_schedule.add_noise(x, noise, t), t, condition)
        gradients = torch.autograd.grad((prediction - noise).square().mean(), parameters)
        total = total + torch.cat([g.flatten() for g in gradients]).double() / settings.time_steps
    signs = Signs.of(settings.dimensions, settings.seed).block(0, math.ceil(len(total) / 64))[:, : len(total)]
    return (signs.double() @ total / math.sqrt(settings.dimensions)).numpy()


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
    some = [0, 7, 19]
    expected = [by_hand(model, images[i], lambda j, i=i: unit[[i]], SETTINGS) for i in some]
    agree(found[some], np.stack(expected))
    assert told[:20] == [("trak: gradients of training images", done, 20) for done in range(1, 21)]
    assert told[-1] == ("trak: projecting gradients of training images", 20, 20)


def test_the_projection_of_many_tells_how_far_it_is(model, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "TOGETHER", 8)
    monkeypatch.setitem(projection.SIGNS_AT_ONCE, "cpu", 1)  # 64 parameters at a time
    told = []
    given = evidence(model, folder=tmp_path, progress=lambda what, done, total: told.append((what, done)))
    gradient_rows(given, SETTINGS, "training", "trak")
    projected = [done for what, done in told if "projecting" in what]
    assert set(projected) == set(range(21))
    assert projected == sorted(projected)
    # after the gradients of each eight images
    assert [done for (what, done), (then, _) in pairwise(told) if "projecting" in then and what != then] == [8, 16, 20]


def test_shuffled_images_and_other_batches_give_the_same_rows(model, whole, monkeypatch):
    order = np.random.default_rng(2).permutation(20)
    monkeypatch.setattr(rows, "TOGETHER", 3)
    monkeypatch.setattr(per_image, "BUSY", {"cpu": 1})
    monkeypatch.setattr(per_image, "SAMPLES_AT_ONCE", {"cpu": 2})
    agree(gradient_rows(evidence(model, permuted(contributions(), order)), SETTINGS, "training", "trak"), whole[order])


def test_gradients_along_the_base_models_journey(model, tmp_path):
    """The path is of the model that made the images, also where the gradients are another one's."""
    sampling, other = Sampling(images=3, steps=10, seed=4), DDPM.create("tiny", 8, seed=7)
    given = evidence(model, sampling=sampling, replicate={2: other}.__getitem__, folder=tmp_path)
    given = dataclasses.replace(given, generated=model.sample([4, 5, 6], 10))
    settings = dataclasses.replace(SETTINGS, kind="journey_loss")
    seen = []
    path = model.noise_schedule.sampler("ddim", 10).timesteps.numpy()
    with torch.no_grad():
        model.denoise([4, 5, 6], 10, "ddim", None, on_step=lambda k, x: seen.append(x))
    at = [int(np.abs(path - t).argmin()) for t in (166, 500, 833)]
    for replicate, owner in ((0, model), (2, other)):
        found = gradient_rows(given, settings, "generated", "journey_trak", replicate)
        expected = [by_hand(owner, given.generated[i], lambda j, i=i: seen[at[j]][[i]], settings) for i in range(3)]
        agree(found, np.stack(expected))
        plain = gradient_rows(given, SETTINGS, "generated", "trak", replicate)
        assert np.abs(found - plain).max() > 1e-3 * np.abs(plain).max()
    # the same images, said to be on the other model's own path, have other rows
    own = dataclasses.replace(given, load_model=lambda: other)
    assert np.abs(gradient_rows(own, settings, "generated", "journey_trak") - found).max() > 0.001 * np.abs(found).max()
    assert len(list(tmp_path.iterdir())) == 5


def test_a_training_image_has_no_journey_and_the_same_file(model, tmp_path):
    given = evidence(model, folder=tmp_path)
    plain = gradient_rows(given, SETTINGS, "training", "trak")
    journey = gradient_rows(
        dataclasses.replace(given, progress=never), dataclasses.replace(SETTINGS, kind="journey_loss"), "training", "j"
    )
    np.testing.assert_array_equal(journey, plain)
    assert len(list(tmp_path.iterdir())) == 1


def never(what, done, total):
    raise AssertionError("nothing is left to do")


def test_a_text_models_rows_see_captions_and_prompts_and_its_adapter_alone(tmp_path):
    base = pipeline(str(stable_diffusion(tmp_path / "pipeline")))
    text = TextToImageLoRA.create(base, 2, ("a cat", "two dogs"), None, 16, seed=0)
    with torch.no_grad():
        for parameter in trained(text):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) / 2)
    captions = tuple(["a bee", "a cat"][i % 2] for i in range(20))
    given = dataclasses.replace(contributions(size=16), captions=captions)
    generated = np.random.default_rng(8).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
    seen = Evidence(given, generated, load_model=lambda: text, sampling=Sampling(images=3, steps=4, seed=1))
    settings = dataclasses.replace(SETTINGS, layers=None, time_steps=2)
    for of, images, texts in (
        ("training", given.images, captions),
        ("generated", generated, ("two dogs", "a cat", "two dogs")),  # seeds 1, 2, 3
    ):
        found = gradient_rows(seen, settings, of, "trak")
        x = text.encode(images, texts, mirrored=False).x
        expected = [
            by_hand(text, images[i], lambda j, i=i, x=x: x[[i]], settings, base.embed([texts[i]], "cpu"))
            for i in range(3)
        ]
        agree(found[:3], np.stack(expected))
    assert np.isfinite(
        gradient_rows(seen, dataclasses.replace(settings, kind="journey_loss"), "generated", "journey_trak")
    ).all()


def trained(model):
    return [parameter for parameter in model.network.parameters() if parameter.requires_grad]


class Stop(BaseException):
    """As Ctrl-C or a kill would."""


@pytest.fixture(scope="module")
def whole(model):
    """The rows of an uninterrupted run, four at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "TOGETHER", 4)
        return np.array(gradient_rows(evidence(model), SETTINGS, "training", "trak"))


@pytest.mark.parametrize("cut", [1, 8, 9])
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
        (dataclasses.replace(given, load_model=lambda: DDPM.create("tiny", 8, seed=2)), plain, "generated"),
        (given, dataclasses.replace(plain, seed=6), "generated"),
        (given, dataclasses.replace(plain, layers=("conv_out.weight",)), "generated"),
        (changed, plain, "generated"),
        (given, plain, "training"),
    ):
        before = len(list(tmp_path.iterdir()))
        gradient_rows(other, settings, of, "trak")
        assert len(list(tmp_path.iterdir())) == before + 1


def test_rows_without_a_folder_outlive_their_file(model):
    found = gradient_rows(evidence(model), SETTINGS, "generated", "trak")
    assert found.shape == (3, 64)
    assert np.isfinite(found).all()
    assert np.linalg.matrix_rank(np.array(found)) == 3


def test_dimensions_that_nobody_asked_for_are_no_more_than_there_are(model, tmp_path):
    given = evidence(model, folder=tmp_path)
    few = GradientSettings("loss", 1, layers=("conv_out.bias",))
    found = gradient_rows(given, few, "training", "trak")
    assert found.shape == (20, 3)
    asked = gradient_rows(
        dataclasses.replace(given, progress=never), dataclasses.replace(few, dimensions=3), "training", "d"
    )
    np.testing.assert_array_equal(asked, found)  # the same rows, found again
    many = GradientSettings("loss", 1, layers=("mid_block",))
    assert gradient_rows(given, many, "generated", "trak").shape == (3, 2048)


def test_refusals(model, tmp_path):
    given = evidence(model, folder=tmp_path)
    few = GradientSettings("loss", 1, dimensions=4096, layers=("conv_out.bias",))
    with pytest.raises(UserError, match=r"^trak: dimensions: 4096, but gradients have 3 entries"):
        gradient_rows(given, few, "training", "trak")
    with pytest.raises(UserError, match=r"^trak: layers: 'nowhere'"):
        gradient_rows(given, dataclasses.replace(SETTINGS, layers=("nowhere",)), "training", "trak")
    with pytest.raises(UserError, match=r"^trak: needs generated images"):
        gradient_rows(dataclasses.replace(given, generated=given.generated[:0]), SETTINGS, "generated", "trak")
    with pytest.raises(UserError, match=r"^trak: .*of shape \(4, 4, 3\); the training images' shape \(8, 8, 3\)"):
        gradient_rows(dataclasses.replace(given, generated=given.generated[:, :4, :4]), SETTINGS, "generated", "trak")
    with pytest.raises(UserError, match=r"^trak: images of encoded shape \(3, 16, 16\); accepted: \(3, 8, 8\)"):
        gradient_rows(evidence(model, contributions(size=16)), SETTINGS, "training", "trak")
    with pytest.raises(UserError, match=r"^j: needs to know how the 3 generated images were sampled"):
        gradient_rows(given, dataclasses.replace(SETTINGS, kind="journey_loss"), "generated", "j")


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
    broken = DDPM.create("tiny", 8, seed=1)
    with torch.no_grad():
        next(iter(broken.network.parameters())).fill_(math.nan)
    with pytest.raises(DiffcreditError, match=r"^trak: the gradient of 00 is not a finite number"):
        gradient_rows(evidence(broken, folder=tmp_path), SETTINGS, "training", "trak")
