import itertools

import numpy as np
import pytest
import torch
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from scipy.stats import kstest

from diffcredit.baselines import Evidence, aggregate, patches
from diffcredit.baselines.patches import PatchSimilarity, PatchWeights, noise_of, signal
from diffcredit.errors import DiffcreditError, DiffcreditWarning

from .made_up import contributions, generated, near_copies, permuted

SMALL = PatchSimilarity(patch=3, coarse_patch=4)


def cut(image, size, beyond):
    """As the published code cuts them: one a pixel (of an even size one less a side), ``beyond`` around the image."""
    border = (size - 1) // 2
    padded = np.pad(image, ((0, 0), (border, border), (border, border)), constant_values=beyond)
    places = [range(side - size + 1) for side in padded.shape[1:]]
    return [padded[:, a : a + size, b : b + size] for a, b in itertools.product(*places)]


def halved_sums(patch):
    """Sums of 2 × 2 pixels over 2: a projection with orthonormal rows."""
    channels, side, _ = patch.shape
    cells = [
        patch[c, 2 * a : 2 * a + 2, 2 * b : 2 * b + 2].sum() / 2
        for c, a, b in itertools.product(range(channels), range(side // 2), range(side // 2))
    ]
    return np.array(cells)


def by_definition(noisy, training, size, cell, alpha, nearest, beyond=10.0):
    """(m,): the published score of one image, patch by patch in float64, over the number of patches."""
    see = halved_sums if cell == 2 else np.ravel
    known = [[see(patch) for patch in cut(np.sqrt(alpha) * y, size, beyond)] for y in training]
    # what is beyond the border has this value in the training image as well, whatever its scale
    scores, asked = np.zeros(len(training)), cut(noisy, size, beyond)
    for patch in map(see, asked):
        logs = np.array([[-np.square(patch - y).sum() / (2 * (1 - alpha)) for y in of_one] for of_one in known])
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        scores += np.sort(weights, axis=1)[:, ::-1][:, :nearest].sum(axis=1)
    return scores / len(asked)


def pictures(count, height, width, seed=0):
    """Smooth enough that several patches have weight."""
    rng = np.random.default_rng(seed)
    return np.clip(0.3 * rng.normal(size=(count, 3, height, width)), -1, 1)


def tensor(images):
    return torch.from_numpy(images.astype(np.float32))


@pytest.mark.parametrize("nearest", [None, 2, 1000])
@pytest.mark.parametrize(
    ("height", "width", "patch", "cell"), [(5, 7, 3, 1), (5, 5, 2, 1), (4, 4, 1, 1), (6, 7, 4, 2), (3, 3, 7, 1)]
)
def test_weights_are_those_of_the_definition(height, width, patch, cell, nearest):
    training, alpha = pictures(5, height, width), 0.6
    noise = np.random.default_rng(1).normal(size=(3, height, width))
    noisy = np.sqrt(alpha) * pictures(1, height, width, 2)[0] + np.sqrt(1 - alpha) * noise
    expected = by_definition(noisy, training, patch, cell, alpha, nearest)
    found = PatchWeights(tensor(training), patch, cell, alpha).mean_weights(tensor(noisy[None]), nearest)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    if nearest != 2:
        assert found.sum() == pytest.approx(1, abs=1e-5)
    assert found.max() / found.min() > 1.01


@pytest.mark.parametrize(("numbers", "kernels"), [(1, 1), (500, 7)])
def test_the_size_of_blocks_changes_rounding_only(numbers, kernels, monkeypatch):
    training, query = tensor(pictures(5, 6, 6)), tensor(pictures(1, 6, 6, 3))
    whole = PatchWeights(training, 3, 1, 0.6).mean_weights(query, 4)
    monkeypatch.setattr(patches, "NUMBERS", numbers)
    monkeypatch.setattr(patches, "KERNELS", kernels)
    np.testing.assert_allclose(PatchWeights(training, 3, 1, 0.6).mean_weights(query, 4), whole, rtol=1e-5)


def test_smaller_blocks_where_the_memory_runs_out(monkeypatch):
    training, query = tensor(pictures(8, 6, 6)), tensor(pictures(1, 6, 6, 3))
    weights = PatchWeights(training, 3, 1, 0.6)
    whole, convolve, tried, room = weights.mean_weights(query, None), patches.functional.conv2d, [], 3

    def limited(images, kernels, **options):
        tried.append(len(images))
        if len(images) > room:
            raise torch.OutOfMemoryError("full")
        return convolve(images, kernels, **options)

    monkeypatch.setattr(patches.functional, "conv2d", limited)
    with pytest.warns(DiffcreditWarning, match="out of memory with 8 images at once; going on with 2"):
        found = weights.mean_weights(query, None)
    np.testing.assert_allclose(found, whole, rtol=1e-5)
    tried.clear()
    weights.mean_weights(query, None)  # warnings would be errors here
    assert max(tried) == 2
    room = 0
    with pytest.raises(DiffcreditError, match="out of memory with a single sample"):
        weights.mean_weights(query, None)


@pytest.mark.parametrize("time_step", [10, 100, 999])
def test_the_noise_is_that_of_ho_et_al(time_step):
    scheduler = DDPMScheduler(num_train_timesteps=1000, beta_schedule="linear")
    assert signal(time_step) == pytest.approx(scheduler.alphas_cumprod[time_step].item(), rel=1e-4)


def test_the_noise_is_normal_and_an_images_own():
    image = pictures(1, 40, 40)[0]
    drawn = noise_of(image, 0)
    assert kstest(drawn.ravel(), "norm").pvalue > 0.01
    np.testing.assert_array_equal(noise_of(image, 0), drawn)
    assert (noise_of(image, 1) != drawn).all()
    assert (noise_of(image + 0.01, 0) != drawn).all()


def test_scores_are_the_definition():
    given, made = contributions(size=4), generated(2, size=4)
    made[0] = given.images[7]
    method = PatchSimilarity(patch=3, coarse_patch=4, fine_weight=0.3, nearest=2, time_step=300)
    alpha, expected = signal(300), np.zeros(20)
    training = given.images.transpose(0, 3, 1, 2) / 127.5 - 1
    for pixels in 2 * (made / np.float32(255)) - 1:
        noisy = np.sqrt(alpha) * pixels + np.sqrt(1 - alpha) * noise_of(pixels, 5)
        for share, patch, cell in ((0.3, 3, 1), (0.7, 4, 2)):
            expected += share / 2 * by_definition(noisy.transpose(2, 0, 1), training, patch, cell, alpha, 2)
    np.testing.assert_allclose(method.scores(Evidence(given, made, seed=5)), expected, rtol=1e-3)
    assert expected.max() > 2 * expected.min()


@pytest.mark.parametrize("favourite", range(4))
def test_whose_images_are_nearly_copied_comes_first(favourite):
    given, method = contributions(), PatchSimilarity(5, 6, nearest=3)
    scores = method.scores(Evidence(given, near_copies(given, favourite, 2)))
    for how in method.aggregations:
        assert aggregate(scores, given, how).argmax() == favourite
    assert aggregate(scores, given, "sum")[favourite] > 0.5


def test_a_patch_is_found_wherever_it_is():
    """A generated image of a training image moved by two pixels: pixel by pixel they have nothing in common."""
    rng = np.random.default_rng(0)
    given = contributions(size=12)
    given.images[:] = rng.integers(0, 256, given.images.shape)
    made = np.roll(given.images[[6]], 2, axis=2)
    scores = PatchSimilarity(fine_weight=1, patch=5).scores(Evidence(given, made))
    assert scores.argmax() == 6
    assert scores[6] > 3 * np.delete(scores, 6).max()


def test_only_the_first_images_and_smaller_ones():
    given, made = contributions(), generated(4)
    some = PatchSimilarity(3, 4, images=2).scores(Evidence(given, made))
    np.testing.assert_array_equal(some, SMALL.scores(Evidence(given, made[:2])))
    whole = SMALL.scores(Evidence(given, made))
    assert (some != whole).any()
    assert (PatchSimilarity(3, 4, size=4).scores(Evidence(given, made)) != whole).any()


class Stop(Exception):
    pass


def test_goes_on_where_it_was_stopped(tmp_path):
    given, made = contributions(), generated(4)
    whole = SMALL.scores(Evidence(given, made))

    def stopping(what, done, total):
        if done == 3:
            raise Stop

    with pytest.raises(Stop):
        SMALL.scores(Evidence(given, made, folder=tmp_path, progress=stopping))
    told = []
    for _ in range(2):
        seen = Evidence(given, made, folder=tmp_path, progress=lambda what, done, total: told.append((done, total)))
        np.testing.assert_array_equal(SMALL.scores(seen), whole)
    assert told == [(4, 4)]
    assert len(list(tmp_path.iterdir())) == 1
    for other in (
        Evidence(given, made, folder=tmp_path, seed=1),
        Evidence(given, made[:3], folder=tmp_path),
        Evidence(permuted(given, np.arange(20)[::-1]), made, folder=tmp_path),
    ):
        assert not np.allclose(SMALL.scores(other), whole, rtol=1e-3)
    assert len(list(tmp_path.iterdir())) == 4
