import math

import numpy as np
import pytest

from diffcredit.report.page import render
from diffcredit.report.validation import MOST_ROWS, cell_text, section_view
from diffcredit.validation.records import Estimate
from diffcredit.validation.sections import Figure, Photograph, Section, Table

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
    (shown,) = section_view(section(rows, ("method", "LDS", "mixed", "empty"))).tables
    assert shown.numeric == (False, True, False, False)


def test_long_tables_are_folded():
    short, long = (section(tuple((f"m{i}", float(i)) for i in range(count))) for count in (MOST_ROWS, MOST_ROWS + 1))
    assert "<details>" not in evidence(short)
    assert f"<summary>T ({MOST_ROWS + 1} rows)</summary>" in evidence(long)


def evidence(*sections):
    """The chapter's HTML."""
    page = render(report(table(), validation=sections))
    return page[page.index('<section id="evidence"') : page.index('<section id="method"')]


def test_without_evidence_there_is_no_chapter():
    page = render(report(table()))
    assert "evidence" not in page.partition("</style>")[2]


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
    # title, summary, two columns, two cells, caveat; caption, alternative and label of the pictures
    assert html.count("&lt;script&gt;alert(1)") == 7 + 5 + 4
