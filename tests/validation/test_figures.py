import math
import shutil
import xml.etree.ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest

from diffcredit.validation.presentation.figures import Series, beside, boxes, curves, forest, scatter
from diffcredit.validation.statistics.records import Estimate

SVG = "{http://www.w3.org/2000/svg}"
CHROMIUM = shutil.which("chromium")
HOSTILE = ("$x^2$", "</text><script>alert(1)</script>", "a & b", "line\nbreak", "bell\x07", "half \ud800", "山田")


def words(svg):
    return [element.text for element in ET.fromstring(svg).iter(f"{SVG}text")]


def places(svg):
    """Where markers stand: x, y of each."""
    return [
        (float(use.get("x")), float(use.get("y")))
        for group in ET.fromstring(svg).iter(f"{SVG}g")
        if group.get("clip-path")
        for use in group.iter(f"{SVG}use")
    ]


def rows(*values):
    return {f"row {i}": Estimate(value, value - 0.5, value + 0.25) for i, value in enumerate(values)}


def test_a_forest_has_its_dots_where_the_estimates_are():
    figure = forest("f", "Title", "Caption", {"one": rows(0.0, 1.0, 3.0)}, "score")
    assert (figure.name, figure.title, figure.caption) == ("f", "Title", "Caption")
    (x0, y0), (x1, y1), (x2, y2) = places(figure.svg)
    assert x2 - x0 == pytest.approx(3 * (x1 - x0), rel=1e-4)
    assert x1 > x0
    assert y2 - y1 == pytest.approx(y1 - y0, rel=1e-4)  # SVG counts downwards: the first row is on top
    assert y1 > y0


def test_labels_are_drawn_once_and_panels_share_them():
    panels = {"top 40 % alone": rows(1.0, 2.0), "two": {"row 1": Estimate(3.0), "late": Estimate(4.0)}}
    figure = forest("f", "", "", panels, "LDS", marked="row 1")
    text = words(figure.svg)
    assert [word for word in text if word in ("row 0", "row 1", "late")] == ["row 0", "row 1", "late"]
    assert {"top 40\N{NO-BREAK SPACE}% alone", "two", "LDS"} <= set(text)  # no line begins with a per cent sign
    assert len(places(figure.svg)) == 4
    bold = [text.text for text in ET.fromstring(figure.svg).iter(f"{SVG}text") if "font-weight" in text.get("style")]
    assert bold == ["row 1"]


def test_what_is_not_finite_is_left_out():
    panels = {"p": {"nan": Estimate(math.nan, 0, 1), "inf": Estimate(math.inf), "seen": Estimate(1.0, -math.inf, 2.0)}}
    svg = forest("f", "", "", panels, "x", {"p": {"ceiling": Estimate(math.nan)}}).svg
    assert len(places(svg)) == 1
    assert {"nan", "inf", "seen", "ceiling"} <= set(words(svg))
    line = Series("s", (1.0, 2.0, 3.0, math.nan), (Estimate(1.0), Estimate(math.nan), Estimate(3.0), Estimate(1.0)))
    assert len(places(curves("c", "", "", {"p": [line]}, "x", "y").svg)) == 2
    cloud = (np.array([1.0, np.nan, 3.0]), np.array([1.0, 2.0, np.inf]))
    assert len(places(scatter("s", "", "", {"p": {"a": cloud}}, "x", "y").svg)) == 1


def test_panels_without_anything_say_so():
    names = [f"p{i}" for i in range(4)]
    drawn = (
        forest("f", "", "", {name: {"a": Estimate(math.nan)} for name in names}, "x"),
        boxes("b", "", "", {name: {"a": np.array([np.nan])} for name in names}, "x"),
        curves("c", "", "", {name: [] for name in names}, "x", "y", log_x=True),
        scatter("s", "", "", {name: {} for name in names}, "x", "y"),
    )
    for figure in drawn:
        assert words(figure.svg).count("no value") == 4


def test_a_height_means_the_same_in_all_panels():
    def line(*values):
        return [Series("a", (1.0, 2.0), tuple(map(Estimate, values)))]

    panels = {"low": line(0.0, 0.5), "high": line(0.5, 1.0), "nothing": line(math.nan, math.nan)}
    none, half, also_half, one = (y for _, y in places(curves("c", "C", "", panels, "x", "y").svg))
    assert half == pytest.approx(also_half)
    assert none - half == pytest.approx(half - one, rel=1e-4)
    assert none > half


def test_panels_that_belong_together_are_in_one_line():
    assert [beside(count) for count in range(1, 6)] == [3, 2, 3, 4, 3]
    panels = {str(i): [Series("a", (1.0,), (Estimate(0.5),))] for i in range(5)}
    heights = [round(y) for _, y in places(curves("f", "", "", panels, "x", "y", per_line=beside(2)).svg)]
    assert [heights.count(height) for height in dict.fromkeys(heights)] == [2, 2, 1]


def test_points_below_the_reach_of_a_logarithm_are_left_out():
    line = Series("s", (0.0, 10.0, 100.0, 1000.0), tuple(Estimate(float(i)) for i in range(4)))
    svg = curves("c", "", "", {"p": [line]}, "evaluations", "y", log_x=True).svg
    (x0, _), (x1, _), (x2, _) = places(svg)
    assert x1 - x0 == pytest.approx(x2 - x1, rel=1e-4)
    assert {"10", "100", "1000"} <= set(words(svg))


def test_a_box_has_quartiles_whiskers_and_values_beyond():
    sample = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 100.0])  # quartiles 1.25 and 3.75: 100 is beyond 3.75 + 1.5 × 2.5
    svg = boxes("b", "", "", {"p": {"a": sample}}, "x").svg
    assert len(places(svg)) == 1
    assert len(places(boxes("b", "", "", {"p": {"a": sample[:5]}}, "x").svg)) == 0


def test_names_are_text_whatever_they_say():
    panels = {name: {other: Estimate(float(i)) for i, other in enumerate(HOSTILE)} for name in HOSTILE[:2]}
    lines = {name: {other: Estimate(0.5) for other in HOSTILE} for name in panels}
    shown = {"$x^2$", "</text><script>alert(1)</script>", "a & b", "line break", "bell�", "half �", "山田"}
    drawn = (
        forest("f", HOSTILE[1], HOSTILE[5], panels, HOSTILE[0], lines),
        curves("c", "", "", {"p": [Series(name, (1.0,), (Estimate(1.0),)) for name in HOSTILE]}, "$", "$x$"),
        scatter("s", "", "", {"p": {name: (np.ones(1), np.ones(1)) for name in HOSTILE}}, "x", "y"),
        boxes("b", "", "", {"p": {name: np.ones(3) for name in HOSTILE}}, "x"),
    )
    for figure in drawn:
        assert shown <= set(words(figure.svg))
        assert not list(ET.fromstring(figure.svg).iter(f"{SVG}script"))


def test_the_ends_of_long_names_stay():
    names = [f"sparsified fine-tuning with {steps} steps and {'many ' * 20}replicates of {steps}" for steps in (5, 7)]
    text = words(forest("f", "", "", {"p": {name: Estimate(1.0) for name in names}}, "x").svg)
    shown = [word for word in text if word.startswith("sparsified")]
    assert [(word[-1], len(word)) for word in shown] == [("5", 44), ("7", 44)]


def test_a_long_title_of_a_panel_has_lines_above_it():
    long = "Distance to the nearest training image (Cifar20Classifier): shapley"
    line = (Series("one", (1.0, 2.0), (Estimate(1.0),) * 2),)
    figure = curves("f", "", "", {"short": line, long: line, "third": line}, "across", "up")
    lines = [word for word in words(figure.svg) if word and word in long]
    assert " ".join(lines) == long
    assert len(lines) == 4
    plain = curves("f", "", "", {"short": line, "second": line, "third": line}, "across", "up")
    heights = [float(ET.fromstring(each.svg).get("height").removesuffix("pt")) for each in (figure, plain)]
    assert heights[0] > heights[1]  # panels are as high, and titles have room


def test_a_figure_is_the_same_text_each_time_and_changes_no_settings():
    def draw():
        return curves("c", "t", "", {"p": [Series("s", (1.0, 2.0), (Estimate(1, 0, 2), Estimate(2)))]}, "x", "y").svg

    with mpl.rc_context({"svg.fonttype": "path", "axes.facecolor": "red", "font.size": 30}):
        before = dict(mpl.rcParams)
        first = draw()
        assert dict(mpl.rcParams) == before
    assert first == draw()


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no chromium on the PATH")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


LONG = "sparsified fine-tuning, a rather long name number"
MEASURE = """() => {
  const page = document.querySelector('svg').getBoundingClientRect();
  return [...document.querySelectorAll('text')].map(text => text.getBoundingClientRect()).map(
    box => [box.left - page.left, box.top - page.top, page.right - box.right, page.bottom - box.bottom,
            box.right - page.left, box.bottom - page.top]);
}"""


def overlapping(page, svg):
    """Pairs of words that overlap, and words that leave the figure."""
    page.set_content(svg[svg.index("<svg") :])
    found = np.array(page.evaluate(MEASURE))
    left, top, right, bottom = found[:, 0], found[:, 1], found[:, 4], found[:, 5]
    beside = (right[:, None] <= left + 0.5) | (left[:, None] + 0.5 >= right)
    # a line's box is taller than its letters
    above = (bottom[:, None] <= top + 3) | (top[:, None] + 3 >= bottom)
    text = words(svg)
    pairs = [(text[i], text[j]) for i, j in np.argwhere(~(beside | above)) if i < j]
    return pairs, [text[i] for i in np.flatnonzero(found[:, :4].min(axis=1) < 0)]


SCALES = {"Inception score": 1.0, "Cluster entropy": 1e-4, "Colourfulness": 2e3, "FID": 30.0}


def named(count):
    return [f"{LONG} {i}" if i % 3 else f"m{i}" for i in range(count)]


@pytest.mark.parametrize(("count", "panels"), [(3, 1), (45, 3)])
def test_words_of_rows_do_not_overlap(browser, count, panels):
    random = np.random.default_rng(count)
    scales = dict(list(SCALES.items())[:panels])
    estimates = {
        key: {name: Estimate(v := scale * random.normal(), v - scale, v + scale) for name in named(count)}
        for key, scale in scales.items()
    }
    samples = {key: {name: scale * random.normal(size=9) for name in named(count)} for key, scale in scales.items()}
    page = browser.new_page()
    lines = {key: {LONG: Estimate(0.5), "noise": Estimate(0.1)} for key in scales}
    assert overlapping(page, forest("f", "", "", estimates, "LDS", lines, marked=named(count)[1]).svg) == ([], [])
    assert overlapping(page, boxes("b", "", "", samples, "change").svg) == ([], [])
    page.close()


@pytest.mark.parametrize(("count", "panels"), [(3, 1), (10, 4)])
def test_words_of_planes_do_not_overlap(browser, count, panels):
    random = np.random.default_rng(count)
    scales = dict(list(SCALES.items())[:panels])
    budgets = (10.0, 20.0, 50.0, 200.0, 500.0)
    series = {
        key: [Series(name, budgets, tuple(Estimate(scale * random.normal()) for _ in budgets)) for name in named(count)]
        for key, scale in scales.items()
    }
    clouds = {key: {name: scale * random.normal(size=(2, 9)) for name in named(count)} for key, scale in scales.items()}
    page = browser.new_page()
    assert overlapping(page, curves("c", "", "", series, "evaluations", "LDS", log_x=True).svg) == ([], [])
    assert overlapping(page, curves("c", "", "", series, "evaluations", "LDS").svg) == ([], [])
    assert overlapping(page, scatter("s", "", "", clouds, "from scratch", "sparsified").svg) == ([], [])
    page.close()
