import math
import re

import numpy as np
import pytest

from diffcredit.report.page import render
from diffcredit.report.validation import MOST_ROWS, cell_text, shown_tables
from diffcredit.validation.presentation.sections import Figure, Photograph, Section, Table
from diffcredit.validation.statistics.records import Estimate

from .made_up import HOSTILE, png, report, table


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Estimate(0.614, 0.522, 0.68), "0.61 (0.52 to 0.68)"),
        (Estimate(-0.5, -0.75, 0.001), "−0.50 (−0.75 to 0.00)"),
        (Estimate(0.5), "0.50"),
        (Estimate(0.5, 0.25, math.inf), "0.50"),
        (Estimate(math.nan, 0.0, 1.0), "none"),
        (1234, "1,234"),
        (np.int64(3), "3"),
        (1234.5678, "1,234.57"),
        (math.nan, "none"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (None, "–"),
        ("0.5", "0.5"),
    ],
)
def test_cells_as_people_read_them(cell, text):
    assert cell_text(cell, 2) == text


def section(rows, columns=("method", "LDS"), **changes):
    content = {"part": "lds", "title": "LDS", "summary": ("It holds.",), "tables": (Table("t", "T", columns, rows),)}
    return Section(**content | changes)


def test_numbers_stand_at_the_right_of_their_column():
    rows = (("a", Estimate(1.0), None, None), ("b", None, "word", None))
    (table,) = shown_tables(section(rows, ("method", "LDS", "mixed", "empty")))
    assert table.parts["T"].numeric == (False, True, False, False)


def test_long_tables_are_folded():
    short, long = (section(tuple((f"m{i}", float(i)) for i in range(count))) for count in (MOST_ROWS, MOST_ROWS + 1))
    assert "<details>" not in evidence(short)
    assert f"<summary>T ({MOST_ROWS + 1} rows)</summary>" in evidence(long)


def test_long_tables_about_several_subjects_are_folded_by_subject():
    rows = tuple((title, f"m{i}", float(i)) for title, count in (("F", 7), ("<G>", 5)) for i in range(count))
    (table,) = shown_tables(section(rows, ("property", "method", "LDS")))
    assert list(table.parts) == ["F", "<G>"]
    second = table.parts["<G>"]
    assert (second.columns, second.numeric) == (("method", "LDS"), (False, True))
    assert second.rows == tuple((f"m{i}", f"{i}.000") for i in range(5))
    html = evidence(section(rows, ("property", "method", "LDS")))
    assert re.findall(r"<summary>(.*)</summary>", html) == ["F (7 rows)", "&lt;G&gt; (5 rows)"]
    assert html.count('<th scope="row">') == 12  # no row is lost


@pytest.mark.parametrize(
    "subjects",
    [
        ["a"] * 12,  # one subject
        ["a", "b"] * 6,  # in turns: the order of the rows would be lost
        [f"m{i}" for i in range(12)],  # names of rows
        ["a"] * 6 + [None] * 6,
        list(range(12)),
    ],
)
def test_other_long_tables_stay_in_one_piece(subjects):
    rows = tuple((subject, 1.0, 2.0) for subject in subjects)
    (table,) = shown_tables(section(rows, ("subject", "x", "y")))
    assert table.folded
    assert list(table.parts) == ["T"]
    assert len(table.parts["T"].rows) == 12


def test_the_chapter_opens_with_the_finding_of_each_part():
    silent = section((), summary=(), title="Silent", tables=())
    html = evidence(section((), title="LDS & co", summary=("It holds.", "Mostly.")), silent)
    contents = html[html.index("<ol") : html.index("</ol>")]
    assert re.findall(r'<a href="#(.*?)">(.*?)</a>', contents) == [
        ("evidence-1", "LDS &amp; co"),
        ("evidence-2", "Silent"),
    ]
    assert re.findall(r"<span>(.*?)</span>", contents) == ["It holds."]


def test_the_first_drawing_is_open_and_the_others_are_folded():
    figures = tuple(Figure(name, f"Drawing {name}", "", "<svg/>") for name in "abc")
    html = evidence(section((), figures=figures, photographs=(Photograph("p", "Grid", "", png()),)))
    outside = re.sub(r"<details>.*?</details>", "", html, flags=re.DOTALL)
    assert re.findall(r'<img .*? alt="(.*?): ', outside) == ["Drawing a"]
    assert re.findall(r'<img .*? alt="(.*?): ', html) == ["Drawing a", "Drawing b", "Drawing c", "Grid"]
    assert re.findall(r"<summary>(.*)</summary>", html) == ["Drawing b", "Drawing c", "Sample images"]


def evidence(*sections):
    """The chapter's HTML."""
    assert "evidence" not in render(report(table())).partition("</style>")[2]  # where there is none
    page = render(report(table(), validation=sections))
    return page[page.index('<section id="evidence"') : page.index('<section id="method"')]


def test_every_text_is_escaped():
    hostile = HOSTILE[0]
    made = section(
        ((hostile, hostile),),
        (hostile, hostile),
        title=hostile,
        summary=(hostile,),
        figures=(Figure("f", hostile, hostile, "<svg/>"),),
        photographs=(Photograph("p", hostile, hostile, png()),),
        caveats=(hostile,),
    )
    html = evidence(made)
    assert "<script>" not in html
    # title and summary, in the contents too; two columns, two cells, caveat; caption, alternative and label of the
    # pictures
    assert html.count("&lt;script&gt;alert(1)") == 4 + 5 + 5 + 4
