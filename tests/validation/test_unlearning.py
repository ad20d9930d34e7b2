import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.stats import t
from tests.validation.made_up import section_of

from diffcredit.validation.parts.unlearning import (
    UnlearningRecipe,
    UnlearningResult,
    mean_distance,
    unlearning_distances,
)
from diffcredit.validation.presentation.photographs import same_noises

FT, SFT = UnlearningRecipe("fine_tune", "fine_tune", False), UnlearningRecipe("sparsified", "sparsified", True)
GA, SGA = UnlearningRecipe("ascent", "gradient_ascent", False), UnlearningRecipe("lean ascent", "gradient_ascent", True)
IU, SIU = UnlearningRecipe("influence", "influence", False), UnlearningRecipe("a sparse iu", "influence", True)
LORA = UnlearningRecipe("lora", "lora", False)


def sets(count, m, d, seed, shift=0.0):
    generator = np.random.default_rng(seed)
    return [generator.normal(shift, 1, (m, d)).astype(np.float32) for _ in range(count)]


def frechet(x, y):
    """The textbook's formula, with scipy's matrix square root."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    a, b = np.cov(x.T), np.cov(y.T)
    return np.square(x.mean(0) - y.mean(0)).sum() + np.trace(a + b - 2 * sqrtm(a @ b).real)


def kernel(x, y):
    """Pair by pair."""
    k = lambda a, b: (float(a.astype(np.float64) @ b.astype(np.float64)) / len(a) + 1) ** 3  # noqa: E731
    within = [np.mean([k(a, b) for i, a in enumerate(z) for j, b in enumerate(z) if i != j]) for z in (x, y)]
    return sum(within) - 2 * np.mean([k(a, b) for a in x for b in y])


@pytest.mark.parametrize(
    ("m", "measure", "distance"),
    [(30, "Fréchet distance", frechet), (5, "Fréchet distance", frechet), (4, "kernel distance", kernel)],
)
def test_distances_are_those_of_the_formula(m, measure, distance):
    truth, other, again = sets(3, m, 4, 0), sets(3, m, 4, 1, shift=0.5), sets(3, m, 4, 2)
    base = sets(1, m, 4, 3)[0]
    result = unlearning_distances({FT: other}, truth, again, base)
    assert (result.measure, result.images, result.dimensions) == (measure, m, 4)
    assert result.distances[FT] == pytest.approx([distance(x, y) for x, y in zip(other, truth, strict=True)], abs=1e-6)
    assert result.floor == pytest.approx([distance(x, y) for x, y in zip(again, truth, strict=True)], abs=1e-6)
    assert result.base == pytest.approx([distance(base, y) for y in truth], abs=1e-6)


def test_the_kernel_distance_of_few_images_has_no_bias():
    """Of equal distributions its mean is 0, where the Fréchet distance of as many images is far above."""
    truth = sets(400, 6, 10, 1)
    result = unlearning_distances({FT: sets(400, 6, 10, 0)}, truth, truth, truth[0])
    found = mean_distance(result.distances[FT])
    assert found.low < 0 < found.high
    assert found.high - found.low < 1


def test_the_planted_order_of_recipes_comes_out():
    truth = sets(8, 200, 3, 0)
    features = {GA: sets(8, 200, 3, 1, shift=2.0), FT: sets(8, 200, 3, 2, shift=0.3), SFT: sets(8, 200, 3, 3)}
    result = unlearning_distances(features, truth, sets(8, 200, 3, 4), sets(1, 200, 3, 5, shift=1.0)[0])
    section = section_of("unlearning", result, [same_noises("p", "t", {"retrained": np.zeros((1, 8, 8, 3), np.uint8)})])
    # |Δμ|² over three dimensions, plus a bias that all share
    floor = mean_distance(result.floor).value
    for recipe, planted in ((GA, 12.0), (FT, 0.27), (SFT, 0.0)):
        assert mean_distance(result.distances[recipe]).value - floor == pytest.approx(
            planted, abs=0.06 + 0.03 * planted
        )
    summary = " ".join(section.summary)
    assert summary.startswith("sparsified comes closest to retraining")
    assert "Further from retraining than the base model itself: ascent." in summary
    assert "No clear difference" not in summary
    assert len(section.photographs) == 1
    assert any("all models have 200" in caveat for caveat in section.caveats)


def test_tables_go_from_fine_tuning_to_influence_and_from_dense_to_sparse():
    given = [LORA, SIU, SGA, IU, SFT, GA, FT]
    truth = sets(1, 9, 3, 9)
    features = {recipe: sets(1, 9, 3, i) for i, recipe in enumerate(given)}
    result = unlearning_distances(features, truth, sets(1, 9, 3, 8), truth[0])
    assert list(result.distances) == [FT, SFT, GA, SGA, IU, SIU, LORA]
    section = section_of("unlearning", result)
    rows = section.tables[0].rows[:-2]
    assert np.isnan(rows[0][3].low)  # of one coalition
    assert any("no interval" in caveat for caveat in section.caveats)
    assert [row[:3] for row in rows] == [
        ("fine-tuning", "dense", "fine_tune"),
        ("fine-tuning", "sparse", "sparsified"),
        ("gradient ascent", "dense", "ascent"),
        ("gradient ascent", "sparse", "lean ascent"),
        ("influence", "dense", "influence"),
        ("influence", "sparse", "a sparse iu"),
        ("lora", "dense", "lora"),
    ]


def test_intervals_are_students_and_those_of_differences_paired():
    shared = np.array([10.0, 50.0, 30.0, 90.0])
    closer, further = shared + np.array([0.1, 0.2, 0.0, 0.1]), shared + np.array([1.0, 1.3, 1.1, 0.9])
    result = UnlearningResult("Fréchet distance", 9, 3, {FT: further, SFT: closer}, floor=shared, base=shared + 2)
    section = section_of("unlearning", result)
    rows = {row[2] or row[0]: row for row in section.tables[0].rows}
    low, high = t.interval(0.95, 3, loc=closer.mean(), scale=closer.std(ddof=1) / 2)
    assert (rows["sparsified"][3].low, rows["sparsified"][3].high) == pytest.approx((low, high))
    gap = np.array([0.9, 1.1, 1.1, 0.8])
    low, high = t.interval(0.95, 3, loc=gap.mean(), scale=gap.std(ddof=1) / 2)
    assert (rows["fine_tune"][5].low, rows["fine_tune"][5].high) == pytest.approx((low, high))
    assert rows["fine_tune"][4].value == pytest.approx(1.075)
    assert rows["sparsified"][5] is None
    low, high = t.interval(0.95, 3, loc=2 - 1.075, scale=(further - shared).std(ddof=1) / 2)
    assert (rows["fine_tune"][6].low, rows["fine_tune"][6].high) == pytest.approx((low, high))
    assert rows["retrained with another seed"][3].value == pytest.approx(45)
    assert rows["retrained with another seed"][6].value == rows["base model, nothing unlearned"][4].value == 2
    assert rows["base model, nothing unlearned"][6] is None
    assert section.summary[0].startswith("sparsified comes closest to retraining, with a mean Fréchet distance of 45.1")


@pytest.mark.parametrize(("mean", "decimals"), [(45.0, 3), (0.2, 3), (0.00096, 6), (0.0, 3)])
def test_small_distances_have_their_digits(mean, decimals):
    result = UnlearningResult("kernel distance", 9, 3, {FT: np.full(4, -mean)}, np.zeros(4), np.zeros(4))
    assert section_of("unlearning", result).tables[0].decimals == decimals


def test_recipes_that_chance_may_have_ordered_are_not_told_apart():
    near = np.array([10.0, 12.0, 11.0, 13.0])
    distances = {FT: near, SFT: near + np.array([1.0, -0.9, 0.8, -0.8]), GA: near + 5}
    section = section_of("unlearning", UnlearningResult("Fréchet distance", 9, 3, distances, near, near))
    assert "No clear difference from it: sparsified." in section.summary
