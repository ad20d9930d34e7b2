import base64
import csv
import hashlib
import io
import math
import re

import pytest

from diffcredit.errors import UserError
from diffcredit.report import Picture
from diffcredit.report.page import render

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
        diagnostics={HOSTILE[0]: 1.0},
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
                thumbnails={name: png() for name in HOSTILE},
                settings={HOSTILE[0]: {HOSTILE[2]: [HOSTILE[0], {HOSTILE[2]: HOSTILE[0]}]}},
                cost={HOSTILE[0]: HOSTILE[2]},
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
    page = Page(render(report(table(), thumbnails={"A": png(), "C": png()})))
    assert [image["alt"] for image in page.all("img")] == ["Base model: Sixteen images."]
    labels = {a.get("aria-label") for a in page.all("svg") if a.get("class") == "strip"}
    assert labels == {"Some images by A", "Some images by C"}
    assert [a["aria-sort"] for a in page.all("th") if "aria-sort" in a] == ["ascending", *["none"] * 5]


def test_a_thumbnail_is_embedded_once_for_all_properties():
    html = render(report(table(), table(property="fid"), thumbnails={"A": png(7, 3)}))
    assert html.count(base64.b64encode(png(7, 3)).decode()) == 1
    assert html.count('href="#strip-0"') == 2


def test_a_thumbnail_that_is_no_png_is_refused():
    with pytest.raises(UserError, match="thumbnail of 'A': not a PNG"):
        render(report(table(), thumbnails={"A": b"nothing"}))


ACROSS = "a line may reach across the average all the same"
LOSS = "All contributors together make this property worse than no training at all"
DOWN = {"higher_is_better": False}
CLOSE = {"contrast_half_width": (0.5,) * 3}


@pytest.mark.parametrize(
    ("credit", "changes", "present", "absent"),
    [
        ((-1.0, -4.0), DOWN, ["Lower is better: a negative credit helps", "further left helps more"], [LOSS]),
        ((1.0, 4.0), {}, ["Higher is better: a positive credit helps", "Shapley value, which"], [ACROSS]),
        ((-1.0, -2.0), {}, [LOSS], []),
        ((1.0, 7.0), {}, ["The credits add up: their sum 8.00 is F(all) − F(none) = 18.00 − 10.00."], ["✗"]),
        (
            (1.0, 7.0),
            {"full": 20.0, "method": "banzhaf"},
            ["✗ The credits do not add up to F(all) − F(none): their sum is 8.00, the total 10.00."],
            ["Shapley value, which", "do not allow estimating Shapley values"],
        ),
        ((4.0, 2.0, 0.0), {"half_width": 9.0} | CLOSE, [ACROSS], []),
        ((104.0, 102.0, 100.0), {"half_width": 3.0} | CLOSE, [f"{ACROSS}. The axis does not begin at zero"], []),
        (
            (4.0, 2.0, 2.0, 0.0),  # the average is 2: A above and D below it beyond ± 0.5
            {},
            [
                "2 of 4 contributors differ from the average credit by more than that difference’s 95 % interval.",
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


def test_credits_that_do_not_add_up_have_no_shares():
    columns = ["Rank", "Contributor", "Images", "Credit", "95\u202f% interval"]
    for full, expected in ((18.0, [*columns, "Share"]), (20.0, columns)):
        html = render(report(table((-1.0, 6.0, 3.0), full=full, higher_is_better=False, method="banzhaf")))
        assert re.findall(r"<button type=\"button\">([^<]*)</button>", html) == expected
        body = html.split("<tbody>")[1].split("</tbody>")[0]
        assert {row.count("<td") + row.count("<th") for row in body.split("</tr>")[:-1]} == {len(expected)}
        assert ("a positive share is a share of that loss." in words(html)) == (full == 18.0)


def test_ranks_and_shares_have_their_intervals():
    shares = {"share_low": (-0.03, 0.41, -math.inf), "share_high": (0.1, 0.58, math.inf)}
    ranks = {"rank_low": (3, 1, 1), "rank_high": (3, 2, 3)}
    text = words(render(report(table((1.0, 4.0, 3.0), **shares, **ranks))))
    for expected in ("1 1–2 B", "2 1–3 C", "3 3–3 A", "50.0 % 41–58 ", "37.5 % not bounded", "12.5 % −3 to 10"):
        assert expected in text
    assert "Each rank’s interval holds for its own contributor, not for all at once." in text


@pytest.mark.parametrize("n", [2, 300])
def test_all_contributors_are_there(n):
    credits = table(tuple(float(i % 17) for i in range(n)))
    page = Page(render(report(credits)))
    assert sorted(page.contributors) == sorted(credits.contributors)
    assert sum(attributes.get("class") == "dot" for _, attributes in page.elements) == n


def test_settings_cost_scope_notes_and_fingerprints_are_shown():
    html = render(report(table(), notes=("Beware.",), fingerprints={"data": "9f86d0"}))
    text = words(html)
    for expected in ("steps 20000", "name fid", "7,260 2:01:00", "This base model.", "Beware.", "9f86d0"):
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
