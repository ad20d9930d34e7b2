"""The payer's page and table."""

import csv
import shutil
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal

import pytest

from diffcredit.report.payouts import bars, render_payout, terms, write_payout

from .made_up import HOSTILE, Page
from .made_up_payout import HEAD, payout, policy, recorded, row, three

CHROMIUM = shutil.which("chromium")


def words(made=None):
    return " ".join(Page(render_payout(recorded(made))).text.replace("\xa0", " ").split())


def test_the_page_says_who_gets_what_and_how_sure_that_is():
    text = words()
    for said in (
        "EUR 1,000.00, divided among 3 contributors, for Colourfulness.",
        "Pay by it",
        "EUR 787.25",
        "about EUR 31.40 would go to other people",
        "380.00 to 470.00",
        "before the ledger’s first evaluation",
        "at least “use with care”",
        HEAD,
    ):
        assert said in text, said
    page = Page(render_payout(recorded()))
    cells = [line.split() for line in text.split("Total")[1:2]]
    assert cells[0][:5] == ["50", "600.00", "400.00", "1,000.00", "787.25"]
    assert not page.all("script")


def test_bars_begin_at_zero_and_are_in_proportion():
    found = bars(payout())
    assert [bar.row.contributor for bar in found.bars] == ["Ann", "Cy", "Ben"]
    for bar in found.bars:
        assert bar.amount / found.bars[0].amount == pytest.approx(float(bar.row.amount / Decimal(420)), abs=1e-4)
        assert bar.low <= bar.amount <= bar.high <= 100
        assert bar.fixed <= bar.amount
    assert found.ticks[0] == (0.0, "0")
    many = payout(tuple(row(f"{i:03d}") for i in range(100)))
    assert bars(many).unnamed == 70


def test_terms_name_every_limit_of_the_policy():
    stated = policy(floor="5", cap="600", minimum="25", negatives="cut", rounding="0.05")
    found = dict(terms(payout(policy=stated)))
    amounts = [found[key].replace("\xa0", " ") for key in found if key.startswith(("Least", "Most", "Smallest"))]
    assert amounts == ["EUR 5.00", "EUR 600.00", "EUR 25.00", "EUR 0.05"]
    assert found["Who makes the model worse"] == "gets nothing at all, where that is sure"


def test_all_follows_the_fixed_rule_where_nobody_has_merit():
    rows = tuple(replace(each, worth=0.0) for each in three())
    assert dict(terms(payout(rows)))["Fixed part"].startswith("100")


def test_hostile_texts_are_only_text():
    rows = tuple(row(name, reason=name) for name in HOSTILE)
    page = Page(
        render_payout(
            recorded(payout(rows, study=HOSTILE[0], title=HOSTILE[2], verdict=HOSTILE[0], despite=HOSTILE[2]))
        )
    )
    assert not page.all("script")
    assert not page.all("img")
    assert page.contents == Page(render_payout(recorded())).contents
    assert not any(each.startswith("on") for _, attributes in page.elements for each in attributes)


def test_the_last_payout_has_the_plain_names(tmp_path):
    assert [path.name for path in write_payout(tmp_path, recorded())] == ["payouts.csv", "payout.html"]
    older = write_payout(tmp_path, recorded(), last=False)
    assert [path.name for path in older] == ["payouts-2026-Q1.csv", "payout-2026-Q1.html"]
    with (tmp_path / "payouts.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    wanted = "contributor images_used help low high fixed merit r amount carried paid reason"
    assert list(lines[0])[:12] == wanted.split()
    assert sum(Decimal(line["amount"]) for line in lines) == 1000
    assert {line["contributor"]: line["paid"] for line in lines} == {"Ann": "427.25", "Ben": "0.00", "Cy": "360.00"}


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH")
def test_the_page_fits_a_phone(tmp_path):
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    write_payout(tmp_path, recorded(payout(tuple(row(name) for name in HOSTILE))))
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 360, "height": 740})
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.goto((tmp_path / "payout.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        browser.close()
    assert complaints == []


@contextmanager
def seen(made, folder, width=700):
    """The payout's page in a browser."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    write_payout(folder, recorded(made))
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto((folder / "payout.html").as_uri())
        yield page
        browser.close()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH")
@pytest.mark.parametrize("width", [360, 800])
@pytest.mark.parametrize("name", ["W" * 200, "<script>" * 20, "山" * 120, "-".join(["Maximiliane"] * 15)])
def test_a_long_name_does_not_push_amounts_off_the_page(name, width, tmp_path):
    with seen(payout((row(name), row("Ferdinand Sorg"))), tmp_path, width) as page:
        for media in ("screen", "print"):
            page.emulate_media(media=media)
            last = page.locator("tbody tr").first.locator("td").last.bounding_box()
            assert last["x"] + last["width"] <= width
            ordinary = page.locator("tbody bdi").filter(has_text="Ferdinand")
            assert ordinary.evaluate("each => each.getClientRects().length") <= 2, "no word of it is broken"


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH")
def test_the_total_is_printed_once_behind_all_rows(tmp_path):
    """A browser would repeat a table's foot on each sheet, before all contributors are counted."""
    with seen(payout(tuple(row(f"{i:03d}") for i in range(60))), tmp_path) as page:
        assert page.locator("tfoot").evaluate("foot => getComputedStyle(foot).display") == "table-footer-group"
        page.emulate_media(media="print")
        assert page.locator("tfoot").evaluate("foot => getComputedStyle(foot).display") == "table-row-group"
