"""The page in a real browser; skipped where there is none."""

import shutil
from contextlib import contextmanager
from itertools import pairwise

import pytest

from diffcredit.report import write_report
from diffcredit.report.records import Step
from diffcredit.validation.presentation.figures import forest
from diffcredit.validation.presentation.sections import Photograph, Section, Table
from diffcredit.validation.statistics.records import Estimate

from .made_up import HOSTILE, png, report, table

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH")


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser, made, folder):
    """The page of a report; anything that it complains of, asks or requests fails."""
    write_report(made, folder / "report.html")
    page = browser.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
    page.on(
        "request",
        lambda request: complaints.extend([] if request.url.startswith(("file:", "data:")) else [request.url]),
    )
    page.goto((folder / "report.html").as_uri())
    yield page
    page.close()
    assert complaints == []


@pytest.fixture
def page(browser, tmp_path):
    """Two properties over contributors B, a, C2, C10."""
    names = ("B", "a", "C10", "C2")
    first = table((3.0, 1.0, 4.0, 2.0), contributors=names, images=(9, 100, 20, 20))
    second = table((-1.0, -2.0, -3.0, -4.0), contributors=names, property="fid", title="FID", higher_is_better=False)
    with opened(browser, report(first, second, thumbnails={"a": (png(),)}), tmp_path) as page:
        yield page


def order(page, panel):
    return page.locator(f"{panel} tbody bdi").all_text_contents()


def press(page, label):
    page.locator("#property-1 thead").get_by_role("button", name=label, exact=True).click()
    return order(page, "#property-1")


def test_pressing_a_heading_sorts_and_pressing_again_turns_round(page):
    assert order(page, "#property-1") == ["C10", "B", "C2", "a"]
    assert press(page, "Contributor") == ["a", "B", "C2", "C10"]
    heading = page.locator("#property-1 th[aria-sort=ascending]")
    assert heading.locator("button").text_content() == "Contributor"
    assert press(page, "Contributor") == ["C10", "C2", "B", "a"]
    # as numbers, not as text; equal counts keep the order of rank
    assert press(page, "Images") == ["a", "C10", "C2", "B"]
    assert press(page, "Images") == ["B", "C10", "C2", "a"]
    assert press(page, "Rank") == ["C10", "B", "C2", "a"]
    for heading in ("Help", "Credit"):
        assert press(page, heading) == ["C10", "B", "C2", "a"]
        assert press(page, heading) == ["a", "C2", "B", "C10"]
    assert page.locator("#property-1 th[aria-sort=descending]").count() == 0
    assert order(page, "#property-2") == ["C2", "C10", "a", "B"]


def test_tabs_show_one_property_by_mouse_and_keys(page):
    first, second = page.locator("#property-1"), page.locator("#property-2")
    assert (first.is_visible(), second.is_visible()) == (True, False)
    page.get_by_role("tab", name="FID").click()
    assert (first.is_visible(), second.is_visible()) == (False, True)
    page.keyboard.press("ArrowRight")
    assert (first.is_visible(), second.is_visible()) == (True, False)
    assert page.get_by_role("tab", name="Colourfulness").get_attribute("aria-selected") == "true"
    page.emulate_media(media="print")
    assert (first.is_visible(), second.is_visible()) == (True, True)


def test_dots_stand_where_their_help_is(page):
    boxes = page.locator("#property-1 .plot-body .dot").evaluate_all(
        "dots => dots.map(dot => dot.getBoundingClientRect()).map(box => (box.left + box.right) / 2)"
    )
    # 1.5, 0.5, −0.5, −1.5 from the top: equal steps to the left, whichever way the property is better
    steps = [a - b for a, b in pairwise(boxes)]
    assert steps[0] > 50
    assert steps == pytest.approx([steps[0]] * 3, abs=0.5)


def test_a_phone_needs_no_sideways_scrolling(page):
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_long_name_is_whole_beside_pictures_and_fits_a_phone(browser, tmp_path):
    names = ("Leonardo_di_ser_Piero_da_Vinci", "Camille Pissarro")
    steps = tuple(Step(name, value, 0.5) for name, value in zip(names, (3.0, -1.0), strict=True))
    credits = table((3.0, -1.0), contributors=names, matters=(True, True), steps=steps)
    made = report(credits, thumbnails=dict.fromkeys(names, (png(),) * 4))
    with opened(browser, made, tmp_path) as page:
        # it may break after its underscores and nowhere else
        name = page.locator("#property-1 tbody bdi").first
        lines = name.evaluate("name => new Set([...name.getClientRects()].map(box => box.y)).size")
        assert lines <= 1 + name.locator("wbr").count()
        assert name.evaluate(
            "name => name.getBoundingClientRect().right <= name.closest('th').getBoundingClientRect().right"
        )
        page.set_viewport_size({"width": 390, "height": 800})
        overflow = "box => box.scrollWidth - box.clientWidth"
        assert page.locator("#property-1 .scroll").evaluate(overflow) == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        tiles = page.locator(".giver").first.locator(".tile").evaluate_all("all => all.map(e => e.clientWidth)")
        assert len(tiles) == 4
        assert min(tiles) >= 64
        # the waterfall's steps meet: from 10 up to 13 and down to 12
        rights = page.locator(".waterfall .step").evaluate_all("all => all.map(e => e.getBoundingClientRect().right)")
        assert rights[0] == pytest.approx(rights[1], abs=0.5)


def test_hostile_names_run_nothing(browser, tmp_path):
    hostile = table(tuple(float(-i) for i in range(len(HOSTILE))), contributors=HOSTILE)
    with opened(browser, report(hostile, study=HOSTILE[0], notes=HOSTILE), tmp_path) as page:
        assert order(page, "#property-1") == list(HOSTILE)


@pytest.fixture
def evidence(browser, tmp_path):
    """A page with one section: a drawing of three panels, a photograph, a short table and one of fifty rows."""
    estimates = {name: Estimate(0.5, 0.25, 0.75) for name in HOSTILE}
    panels = dict.fromkeys(("Colourfulness", "FID", "Cluster entropy"), estimates)
    section = Section(
        part="lds",
        title="Do credits foretell?",
        summary=("They do.",),
        tables=(
            Table("short", "Short", ("method", "LDS"), tuple(estimates.items())),
            Table("long", "Long", ("method", "a", "b", "c", "d"), ((HOSTILE[1], *[Estimate(1, 0, 2)] * 4),) * 50),
        ),
        figures=(forest("forest", "All methods", "Dots with intervals.", panels, "LDS"),),
        photographs=(Photograph("photograph", "Samples", "With and without.", png(900, 60)),),
        caveats=("Not everything.",),
    )
    with opened(browser, report(table(), validation=(section,)), tmp_path) as page:
        yield page


def test_evidence_is_drawn_folded_and_reached_from_the_contents(evidence):
    evidence.get_by_role("link", name="Evidence").click()
    assert evidence.url.endswith("#evidence")
    evidence.get_by_role("link", name="Do credits foretell?").click()
    assert evidence.url.endswith("#evidence-1")
    assert evidence.get_by_role("heading", name="Do credits foretell?").bounding_box()["y"] < 200
    pictures = evidence.locator("#evidence img")
    assert pictures.evaluate_all("all => all.map(img => img.complete && img.naturalWidth > 0)") == [True, True]
    long = evidence.get_by_role("region", name="Table: Long")
    assert not long.is_visible()
    evidence.get_by_text("Long (50 rows)").click()
    assert long.is_visible()
    cells = evidence.get_by_role("region", name="Table: Short").locator("tbody tr").first.locator("th, td")
    assert cells.all_text_contents() == [HOSTILE[0], "0.500 (0.250 to 0.750)"]


def test_evidence_on_a_phone_scrolls_inside_itself(evidence):
    evidence.get_by_text("Long (50 rows)").click()
    evidence.get_by_text("Sample images").click()
    drawing = evidence.locator(".drawing img")
    wide = drawing.bounding_box()["width"]
    evidence.set_viewport_size({"width": 360, "height": 800})
    assert evidence.evaluate("document.documentElement.scrollWidth") <= 360
    # words in a drawing stay as large as on a wide screen
    assert drawing.bounding_box()["width"] >= wide
    assert evidence.locator(".photograph img").bounding_box()["width"] <= 360


def test_evidence_on_paper_is_whole(evidence):
    evidence.set_viewport_size({"width": 700, "height": 900})
    evidence.emulate_media(media="print")
    evidence.evaluate("dispatchEvent(new Event('beforeprint'))")
    long = evidence.get_by_role("region", name="Table: Long")
    assert long.evaluate("box => box.scrollHeight <= box.clientHeight")
    assert evidence.locator(".drawing img").bounding_box()["width"] <= 700
