import base64
import csv
import hashlib
import io
import math
import re

import pytest

from diffcredit.credit.verdicts import Check, Verdict
from diffcredit.errors import UserError
from diffcredit.report import CostRow, Picture
from diffcredit.report.page import render
from diffcredit.report.records import Given, Reference, Step

from .made_up import HOSTILE, Page, png, report, table


def words(html: str) -> str:
    return Page(html).text


@pytest.fixture(scope="module")
def hostile() -> Page:
    credits_ = table(
        tuple(float(-i) for i in range(len(HOSTILE))),
        contributors=HOSTILE,
        title=HOSTILE[0],
        explanation=HOSTILE[2],
        unit=HOSTILE[2],
        method=HOSTILE[0],
        verdict=Verdict("use with care", HOSTILE[0], (Check(HOSTILE[0], "use with care", HOSTILE[2]),)),
        reference=Reference("house", HOSTILE[0]),
        steps=tuple(Step(name, 1.0) for name in HOSTILE),
        differences=(HOSTILE[0], HOSTILE[2]),
    )
    return Page(
        render(
            report(
                credits_,
                table(tuple(float(i) for i in range(len(HOSTILE))), contributors=HOSTILE, property=HOSTILE[0]),
                study=HOSTILE[0],
                created=HOSTILE[2],
                version=HOSTILE[2],
                samples=(Picture(HOSTILE[2], HOSTILE[2], png()),),
                thumbnails={name: (png(),) for name in HOSTILE},
                images=HOSTILE[0],
                missing=HOSTILE[:1],
                settings={HOSTILE[0]: {HOSTILE[2]: [HOSTILE[0], {HOSTILE[2]: HOSTILE[0]}]}},
                cost=(CostRow(HOSTILE[0], 1, 0, {HOSTILE[2]: 1.0}),),
                scope=HOSTILE,
                notes=HOSTILE,
                fingerprints={HOSTILE[0]: HOSTILE[2]},
            )
        )
    )


def test_hostile_texts_are_only_text(hostile):
    assert hostile.contributors == [*HOSTILE, *reversed(HOSTILE)]
    assert len(hostile.all("script")) == 1
    assert len(hostile.all("img")) == 1
    assert hostile.contents == Page(render(report(table()))).contents  # nothing reaches the script or the style
    for _, attributes in hostile.elements:
        assert not any(name.startswith("on") for name in attributes)


def test_the_policy_admits_exactly_the_inline_script_and_style(hostile):
    policy = next(a["content"] for a in hostile.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    for tag in ("script", "style"):
        (content,) = hostile.contents[tag]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not any("style" in attributes for _, attributes in hostile.elements), "the policy would drop it"


def test_links_stay_within_the_page_and_lead_somewhere(hostile):
    ids = [attributes["id"] for _, attributes in hostile.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in hostile.elements:
        for name in ("src", "href", "srcset", "data", "poster", "action"):
            if (value := attributes.get(name)) is not None:
                assert value.startswith("data:") or value.removeprefix("#") in ids, (name, value[:80])
        for name in ("aria-controls", "aria-labelledby"):
            assert attributes.get(name) in (None, *ids)
    (style,), (script,) = hostile.contents["style"], hostile.contents["script"]
    assert not re.search(r"url\(|@import", style)
    assert not re.search(r"https?:|fetch|XMLHttpRequest|import\(", script)


def test_pictures_have_text_alternatives_and_headings_sort_by_button():
    page = Page(render(report(table(), thumbnails={"A": (png(),) * 4, "C": (png(),)})))
    assert [image["alt"] for image in page.all("img")] == ["Base model: Sixteen images."]
    labels = [a["aria-label"] for tag in ("span", "div") for a in page.all(tag) if a.get("class") == "tiles"]
    assert labels == ["Some images by C", "Some images by A", "Some images by A", "Some images by C"]
    tiles = [a["href"] for a in page.all("use") if (a["href"] or "").startswith("#tile-0")]
    assert tiles == ["#tile-0-0", "#tile-0-1", *[f"#tile-0-{j}" for j in range(4)]]
    assert [a["aria-sort"] for a in page.all("th") if "aria-sort" in a] == ["ascending", *["none"] * 6]


def test_a_thumbnail_is_embedded_once_for_all_properties():
    html = render(report(table(), table(property="fid"), thumbnails={"A": (png(7, 3),)}))
    assert html.count(base64.b64encode(png(7, 3)).decode()) == 1
    assert html.count('href="#tile-0-0"') == 3


def test_a_thumbnail_that_is_no_png_is_refused():
    with pytest.raises(UserError, match="thumbnail of 'A': neither a PNG nor a WebP"):
        render(report(table(), thumbnails={"A": (b"nothing",)}))


DOWN = {"higher_is_better": False}


@pytest.mark.parametrize(
    ("credit", "changes", "present", "absent"),
    [
        ((-1.0, -4.0), DOWN, ["Lower is better; help is turned round", "further right helps more"], ["negative"]),
        ((1.0, 4.0), {}, ["Higher is better.", "further right helps more", "Shapley value, which"], []),
        ((1.0, 7.0), {}, ["The credits add up: their sum 8.00 is F(all) − F(reference) = 18.00 − 10.00."], ["✗"]),
        (
            (1.0, 7.0),
            {"full": 20.0, "method": "banzhaf"},
            ["✗ The credits do not add up to F(all) − F(reference): their sum is 8.00, the total 10.00."],
            ["Shapley value, which", "do not allow estimating Shapley values"],
        ),
        (
            (4.0, 2.0, 2.0, 0.0),  # the average is 2: A above and D below it beyond ± 0.5
            {},
            [
                "2 of 4 contributors differ from the average contributor by more than that difference’s 95 % interval.",
                "A helps more than the average contributor; D helps less. The other 2 do not differ significantly",
                "about 0.2 of 4 would differ by chance alone",
            ],
            [],
        ),
        (
            (4.0, 2.0, 2.0, 0.0),
            {"half_width": 9.0},
            ["None of the 4 contributors differs from the", "No contributor differs significantly from the average"],
            [],
        ),
        (
            (9.0, 8.0, 7.0, 6.0, 5.0, -40.0),
            {},
            ["A, B, C and 2 others help more than the average contributor; F helps less."],
            [],
        ),
    ],
)
def test_what_the_credits_mean_is_said_in_words(credit, changes, present, absent):
    text = words(render(report(table(credit, **changes))))
    assert [each for each in present if each not in text] == []
    assert [each for each in absent if each in text] == []


def test_shares_are_shown_where_there_are_some():
    columns = ["Rank", "Contributor", "Images", "Help", "Differs", "Matters", "Credit"]
    for changes, expected in (
        ({}, [*columns, "Share"]),
        ({"full": 20.0}, columns),  # the credits do not add up
        ({"no_shares": "No shares, sadly."}, columns),
    ):
        html = render(report(table((-1.0, 6.0, 3.0), matters=(True, False, False), **changes)))
        assert re.findall(r"<button type=\"button\">([^<]*)</button>", html) == expected
        body = html.split("<tbody>")[1].split("</tbody>")[0]
        assert {row.count("<td") + row.count("<th") for row in body.split("</tr>")[:-1]} == {len(expected)}
        assert ("No shares, sadly." in words(html)) == ("no_shares" in changes)


def test_ranks_and_shares_have_their_intervals():
    shares = {"share_low": (-0.03, 0.41, -math.inf), "share_high": (0.1, 0.58, math.inf)}
    ranks = {"rank_low": (3, 1, 1), "rank_high": (3, 2, 3)}
    text = words(render(report(table((1.0, 4.0, 3.0), **shares, **ranks))))
    for expected in ("1 1–2 B", "2 1–3 C", "3 3–3 A", "50.0 % 41–58 ", "37.5 % not bounded", "12.5 % −3 to 10"):
        assert expected in text
    assert "Each rank’s interval holds for its own contributor, not for all at once." in text


@pytest.mark.parametrize("level", ["pay by it", "use with care", "do not use"])
def test_the_verdict_stands_before_the_numbers_and_may_forbid_them(level):
    found = Verdict(level, "Because of this.", (Check("tested", level, "Because of this."),))
    text = words(render(report(table((4.0, 2.0, 2.0, 0.0), verdict=found))))
    said = f"{level.capitalize()} Because of this."
    first, second = (text.index(said), text.index(said, text.index(said) + 1))
    assert first < text.index("Press a column") > second
    assert ("A helps more than the average contributor" in text) == (level != "do not use")
    assert ("These credits are no basis for a statement." in text) == (level == "do not use")


def test_a_contributor_reads_what_was_given_and_what_help_means():
    """The average is 2 and F(all) 18: A is 2 of 18 above it, which is 11 %, with an interval of ± 0.5, or 3 %."""
    different = {"differences": ("pictures would be {} duller", "pictures would be {} brighter"), "relative": True}
    given = {"A": Given(12, 1, 1), "B": Given(11), "C": Given(12), "D": Given(13)}
    credits = table((4.0, 2.0, 2.0, 0.0), matters=(True, False, False, False), **different)
    text = words(render(report(credits, given=given, images="4 contributors gave 48 images.")))
    assert "A gave 12 images: 10 used, 1 held out, 1 unreadable" in text
    assert "B gave 11 images: 11 used" in text
    assert text.count("4 contributors gave 48 images.") == 2
    for said in (
        "With an average contributor in their place, pictures would be 11 % duller (8.3 % to 14 %), averaged over",
        "pictures would be 11 % brighter (8.3 % to 14 %), averaged over groups of others. That is too small to matter.",
        "Cannot be distinguished from the average contributor.",
    ):
        assert said in text
    turned = words(
        render(report(table((4.0, 0.0), higher_is_better=False, unit="points", differences=("{} less", ""))))
    )
    assert "in their place, {title} would be".format(title="Colourfulness") in turned
    assert (
        "Colourfulness would be 2.00 points higher (1.50 points to 2.50 points), av" in turned
    )  # without B, who helps
    assert "in their place, 2.00 points less" in turned


@pytest.mark.parametrize("n", [2, 300])
def test_all_contributors_are_there(n):
    credits = table(tuple(float(i % 17) for i in range(n)))
    page = Page(render(report(credits)))
    assert sorted(page.contributors) == sorted(credits.contributors)
    assert sum(attributes.get("class") == "dot" for _, attributes in page.elements) == n


def test_settings_cost_scope_notes_and_fingerprints_are_shown():
    html = render(report(table(), notes=("Beware.",), fingerprints={"data": "9f86d0"}))
    text = words(html)
    for expected in (
        "steps 20000",
        "name fid",
        "64 2 2 h 1 min 40 s 2 h 1 min",
        "not recorded",
        "This base model.",
        "Beware.",
        "9f86d0",
    ):
        assert expected in text


def test_the_csv_of_the_page_holds_the_credits():
    page = Page(render(report(table((1.0, 4.0, 3.0)))))
    (uri,) = [a["href"] or "" for a in page.all("a") if a.get("download") == "credits.csv"]
    text = base64.b64decode(uri.split(",", 1)[1]).decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [(row["contributor"], row["credit"]) for row in rows] == [("B", "4.0"), ("C", "3.0"), ("A", "1.0")]


@pytest.mark.parametrize("method", ["leave-one-out", "add-one-in", "datamodel"])
def test_credits_that_are_no_shapley_values_say_so(method):
    page = render(report(table((1.0, 4.0, 3.0), full=11.0, method=method)))
    assert page.count(f"by <strong>{method}</strong>, what ") == 1
    assert "do not allow estimating Shapley values" in page
    assert f"Credits by {method} need not add up" in page
    assert "✗" not in page
    assert f"estimated by <em>{method}</em>: what " in page
