import io

import numpy as np
import pytest
from PIL import Image
from scipy.stats import scoreatpercentile, spearmanr
from tests.validation.made_up import section_of

from diffcredit.validation.parts.contributors import strips
from diffcredit.validation.statistics.contributors import compare_contributors, median_difference
from diffcredit.validation.statistics.records import Estimate


def made_up(n=20, seed=0, slope=1.0):
    """Contributor i has 5 + i images whose score is slope · credit_i plus noise, in shuffled order."""
    generator = np.random.default_rng(seed)
    credits = generator.normal(size=n)
    owner = generator.permutation(np.repeat(np.arange(n), 5 + np.arange(n)))
    score = slope * credits[owner] + 0.1 * generator.normal(size=len(owner))
    return score, owner, [f"c{i}" for i in range(n)], [Estimate(float(c), float(c) - 1, float(c) + 1) for c in credits]


def test_numbers_of_each_contributor():
    score, owner, names, credits = made_up()
    result = compare_contributors({"entropy": score}, owner, names, credits)
    (measure,) = result.measures
    threshold = scoreatpercentile(score, 90)
    rows = section_of("contributors", {"F": result}).tables[2].rows
    for quality, row in zip(measure.qualities, rows, strict=True):
        index = names.index(quality.contributor)
        own = [s for s, o in zip(score, owner, strict=True) if o == index]
        assert sorted(quality.scores) == sorted(own)
        assert row[2:5] == (names[index], credits[index], 5 + index)
        quartiles = [scoreatpercentile(own, p) for p in (25, 50, 75)]
        share = sum(s > threshold for s in own) / len(own)
        assert row[5:] == pytest.approx((*quartiles, sum(own) / len(own), share))
    values = [quality.credit.value for quality in measure.qualities]
    assert values == sorted(values, reverse=True)


def test_medians_correlate_with_credits_as_scipy_says():
    score, owner, names, credits = made_up(slope=0.05)
    (measure,) = compare_contributors({"entropy": score}, owner, names, credits).measures
    medians = [np.median(score[owner == i]) for i in range(20)]
    expected = spearmanr(medians, [credit.value for credit in credits]).statistic
    assert measure.correlation.value == pytest.approx(expected)
    assert measure.correlation.low < expected < measure.correlation.high


@pytest.mark.parametrize(("n", "score"), [(9, np.sqrt(np.arange(9) % 7)), (12, np.arange(12.0) ** 3)])
def test_few_or_perfect_values_have_no_interval(n, score):
    names, credits = [f"c{i}" for i in range(n)], [Estimate(float(i)) for i in range(n)]
    (measure,) = compare_contributors({"x": score}, np.arange(n), names, credits).measures
    assert measure.correlation.value == pytest.approx(spearmanr(score, np.arange(n)).statistic)
    assert np.isnan([measure.correlation.low, measure.correlation.high]).all()


def test_the_top_fifth_against_the_rest():
    score, owner, names, credits = made_up()
    result = compare_contributors(
        {"entropy": score, "noise": np.random.default_rng(9).random(len(score))}, owner, names, credits
    )
    order = sorted(range(20), key=lambda i: -credits[i].value)
    assert result.top == tuple(names[i] for i in order[:4])
    medians = [np.median(score[owner == i]) for i in order]
    trait, noise, images = result.traits
    assert (trait.top, trait.rest) == pytest.approx((np.median(medians[:4]), np.median(medians[4:])))
    assert trait.difference.value == pytest.approx(np.median(medians[:4]) - np.median(medians[4:]))
    assert trait.difference.low > 0
    assert noise.title == "noise"
    assert noise.difference.low < 0 < noise.difference.high
    assert images.title == "number of images"
    assert images.top == np.median([5 + i for i in order[:4]])
    assert images.rest == np.median([5 + i for i in order[4:]])


def test_intervals_of_differences_cover():
    generator = np.random.default_rng(0)
    shift, covered = 0.7, 0
    for seed in range(200):
        top, rest = generator.normal(shift, 1, 10), generator.normal(0, 1, 40)
        found = median_difference(top, rest, seed)
        covered += found.low <= shift <= found.high
    assert 0.9 < covered / 200 < 0.995


def test_the_bootstrap_draws_contributors_within_groups():
    """With constant groups nothing varies; with one group constant, the median of 5 is one of its values, each with
    the probability that at least 3 of 5 draws lie at or below it."""
    constant = median_difference(np.full(5, 3.0), np.full(6, 1.0))
    assert (constant.value, constant.low, constant.high) == (2, 2, 2)
    found = median_difference(np.array([0.0, 1, 2, 3, 4]), np.zeros(6))
    # P(median = 0) = P(Bin(5, 1/5) ≥ 3) = 0.058 > 0.025
    assert (found.low, found.high) == (0, 4)
    found = median_difference(np.arange(9.0), np.zeros(6))
    # P(median ≤ 1) = P(Bin(9, 2/9) ≥ 5) = 0.035 > 0.025 > P(median = 0) = P(Bin(9, 1/9) ≥ 5) = 0.001
    assert (found.low, found.high) == (1, 7)


def test_small_groups_have_no_interval():
    found = median_difference(np.array([1.0, 2, 3]), np.arange(30.0))
    assert found.value == 2 - 14.5
    assert np.isnan([found.low, found.high]).all()


def test_the_section_tells_what_the_top_have_in_common():
    score, owner, names, credits = made_up(n=50)
    constant = np.ones(len(score))
    result = compare_contributors({"entropy": score, "flat": constant}, owner, names, credits)
    section = section_of("contributors", {"Quality": result})
    summary = " ".join(section.summary)
    assert "Quality: the top fifth by credit is " + ", ".join(result.top) in summary
    assert "differs from the rest in higher entropy (median " in summary
    assert "no correlation with flat" in summary
    for table in section.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert len(section.tables[2].rows) == 2 * 50
    assert section.tables[1].rows[1] == ("Quality", "flat", None)
    # 20 at either end are drawn of 50
    svg = section.figures[0].svg
    order = [quality.contributor for quality in result.measures[0].qualities]
    shown = [name in svg.replace("<", " ").replace(">", " ").split() for name in order]
    assert shown == [True] * 20 + [False] * 10 + [True] * 20


def test_nothing_in_common_and_too_few_are_said():
    score, owner, names, credits = made_up(n=5)
    both = {title: compare_contributors({"a": score}, owner, names, credits) for title in ("F (one, two)", "G")}
    summary = section_of("contributors", both).summary
    assert [line for line in summary if "too few" in line] == [
        "F (one, two); G: too few contributors to compare the top fifth with the rest in a, number of images."
    ]
    n = 40
    owner, generator = np.repeat(np.arange(n), 3), np.random.default_rng(4)
    plain = [Estimate(float(x)) for x in generator.normal(size=n)]
    result = compare_contributors({"a": generator.random(3 * n)}, owner, [str(i) for i in range(n)], plain)
    summary = " ".join(section_of("contributors", {"F": result}).summary)
    assert "no measure distinguishes the top fifth from the rest" in summary


def test_strips_show_the_best_and_the_worst_images_of_both_ends():
    names, credits = ["a", "b", "c"], [Estimate(1.0), Estimate(3.0), Estimate(2.0)]
    owner = np.array([0] * 12 + [1] * 2 + [2] * 12)
    levels = np.arange(26)
    images = np.repeat(levels.astype(np.uint8), 64 * 64 * 3).reshape(-1, 64, 64, 3)
    top, bottom = strips("strips", images, owner, names, credits, "score", -levels.astype(float))
    assert "b; c." in top.caption
    assert "bottom: a." in bottom.caption

    def shown(photograph):
        pixels = np.asarray(Image.open(io.BytesIO(photograph.png)).convert("RGBA"))
        return [[int(p[0]) for p in row[32::66] if p[3]] for row in pixels[32::66]]

    assert shown(top) == [[12, 13], [14, 15, 16, 17, 18, 21, 22, 23, 24, 25]]
    assert shown(bottom) == [[0, 1, 2, 3, 4, 7, 8, 9, 10, 11]]


def test_equal_credits_have_no_top_fifth():
    score, owner, names, _ = made_up()
    result = compare_contributors({"entropy": score}, owner, names, [Estimate(0.5, 0.0, 1.0)] * len(names))
    assert (result.top, result.traits) == ((), ())
    section = section_of("contributors", {"IS": result})
    assert section.summary == ("IS: all contributors have the same credit, so that there is no top fifth.",)
    assert section.tables[0].rows == ()
    assert len(section.tables[2].rows) == len(names)
