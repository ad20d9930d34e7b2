import numpy as np
import pytest

from diffcredit.properties.kinds import (
    groups,
    halves_error,
    jackknife_error,
    resamples,
)


def test_resamples_draw_every_image_equally_often():
    drawn = resamples(50)
    assert drawn.shape == (200, 50)
    counts = np.bincount(drawn.ravel(), minlength=50)
    # of 10,000 draws each image has 200, ± √200
    assert np.abs(counts - 200).max() < 5 * np.sqrt(200)
    # each resample leaves out (1 − 1/50)^50 = 36 % of the images
    missing = 1 - np.mean([len(set(row)) for row in drawn.tolist()]) / 50
    assert missing == pytest.approx((1 - 1 / 50) ** 50, abs=0.02)


@pytest.mark.parametrize(("images", "count"), [(3, 2), (9, 4), (39, 19), (1000, 20)])
def test_groups_are_even_and_interleaved(images, count):
    group = groups(images)
    assert group[: count + 1].tolist() == [*range(count), 0][:images]
    sizes = np.bincount(group)
    assert len(sizes) == count
    assert sizes.max() - sizes.min() <= 1


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = np.random.default_rng(0).normal(size=60)
    without = np.array([np.delete(values, i).mean() for i in range(60)])
    assert jackknife_error(without) == pytest.approx(values.std(ddof=1) / np.sqrt(60))
    # of groups, with the spread of the groups' means
    group = groups(60)
    means = np.array([values[group == g].mean() for g in range(20)])
    without = np.array([values[group != g].mean() for g in range(20)])
    assert jackknife_error(without) == pytest.approx(means.std(ddof=1) / np.sqrt(20))


def share_of(images: int, rng: np.random.Generator, shared: bool) -> np.ndarray:
    """Which of 300 reference images are covered: all follow one mean over the images, or each a coin of its own."""
    if not shared:
        return rng.random(300) < 0.3
    return np.linspace(-3, 3, 300) < rng.normal(size=images).mean() * 3


@pytest.mark.parametrize("shared", [True, False])
def test_the_error_from_halves_is_the_spread_of_the_whole(shared):
    """Whether the coverage of reference images varies together, less with more images, or each by itself, as much."""
    rng = np.random.default_rng(1)
    spread = np.std([share_of(80, rng, shared).mean() for _ in range(1000)])
    pairs = [(share_of(40, rng, shared), share_of(40, rng, shared)) for _ in range(1000)]
    error = halves_error(np.array([one for one, _ in pairs]), np.array([other for _, other in pairs]))
    assert error == pytest.approx(spread, rel=0.12)
