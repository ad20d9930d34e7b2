import csv
import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diffcredit.errors import UserError
from diffcredit.validation.presentation.sections import Figure, Photograph, Section, Table, in_words, worded
from diffcredit.validation.presentation.writing import read_section, table_csv, write_section
from diffcredit.validation.statistics.records import Estimate

names = st.from_regex(r"[a-z0-9]{1,6}(-[a-z0-9]{1,4})?", fullmatch=True)
texts = st.text(max_size=12)
estimates = st.builds(Estimate, st.floats(), st.floats(), st.floats())
cells = st.none() | texts | st.integers() | st.floats() | estimates


@st.composite
def tables(draw):
    columns = draw(st.lists(texts, min_size=1, max_size=4))
    row = st.tuples(*[cells] * len(columns))
    return Table(
        draw(names), draw(texts), tuple(columns), tuple(draw(st.lists(row, max_size=4))), draw(st.integers(0, 9))
    )


def unique(each):
    return st.lists(each, max_size=3, unique_by=lambda item: item.name).map(tuple)


lines = st.lists(texts, max_size=3).map(tuple)
sections = st.builds(
    Section,
    part=texts,
    title=texts,
    summary=lines,
    tables=unique(tables()),
    figures=unique(st.builds(Figure, names, texts, texts, texts)),
    photographs=unique(st.builds(Photograph, names, texts, texts, st.binary(max_size=20))),
    caveats=lines,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(section=sections)
def test_what_is_written_is_read_back(tmp_path, section):
    folder = tmp_path / "kept" / "part"
    write_section(section, folder)  # over whatever the example before left there
    assert repr(read_section(folder)) == repr(section)  # by repr, in which NaN is equal to NaN and 1 is not 1.0
    files = {path.name for path in folder.iterdir()}
    assert files == {
        "section.json",
        *(f"{table.name}.csv" for table in section.tables),
        *(f"{figure.name}.svg" for figure in section.figures),
        *(f"{photograph.name}.png" for photograph in section.photographs),
    }
    assert [path.name for path in folder.parent.iterdir()] == ["part"]  # nothing half-written stays


def test_a_table_in_csv():
    rows = (
        ("=1+1", Estimate(0.1, 0.05, math.inf), 3, 1 / 3),
        (None, Estimate(math.nan), None, math.nan),
        ("plain", 0.5, 2, "no number"),
    )
    text = table_csv(Table("t", "T", ("method", "LDS", "evaluations", "-cost"), rows))
    assert list(csv.reader(text.splitlines())) == [
        ["method", "LDS", "LDS low", "LDS high", "evaluations", "'-cost"],
        ["'=1+1", "0.1", "0.05", "", "3", repr(1 / 3)],
        ["", "", "", "", "", ""],
        ["plain", "0.5", "", "", "2", "no number"],
    ]
    assert text.count("\r\n") == 4


def section(**changes):
    return Section(**{"part": "lds", "title": "LDS", "summary": (), "tables": ()} | changes)


def test_a_section_gives_way_as_a_whole_and_nothing_else_does(tmp_path):
    write_section(section(figures=(Figure("old", "", "", "<svg/>"),)), tmp_path / "lds")
    write_section(section(title="new"), tmp_path / "lds")
    assert [path.name for path in (tmp_path / "lds").iterdir()] == ["section.json"]
    assert read_section(tmp_path / "lds").title == "new"
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("words")
    with pytest.raises(UserError, match=r"mine: exists and holds no section.json"):
        write_section(section(), mine)
    assert (mine / "thesis.tex").read_text() == "words"


def test_a_section_that_cannot_be_written_leaves_the_old_one(tmp_path):
    write_section(section(title="old"), tmp_path / "lds")
    with pytest.raises(UnicodeEncodeError):
        write_section(section(tables=(Table("t", "", ("a",), (("\ud800",),)),)), tmp_path / "lds")
    assert read_section(tmp_path / "lds").title == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["lds"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"figures": (Figure("../up", "", "", ""),)}, r"section 'lds': '\.\./up\.svg' is no file's name"),
        ({"photographs": (Photograph("", "", "", b""),)}, r"'\.png' is no file's name"),
        ({"figures": (Figure("a", "", "", ""), Figure("A", "", "", ""))}, r"'a\.svg' is there twice"),
        ({"tables": (Table("t", "", ("a", "b"), ((1,),)),)}, r"table 't': a row of 1 cells, expected 2: \(1,\)"),
    ],
)
def test_what_has_no_place_in_a_folder_is_refused(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        write_section(section(**changes), tmp_path / "lds")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_section_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"section\.json: not found"):
        read_section(tmp_path)
    write_section(section(figures=(Figure("f", "", "", "<svg/>"),)), tmp_path / "lds")
    (tmp_path / "lds" / "f.svg").unlink()
    with pytest.raises(UserError, match=r"f\.svg: not found"):
        read_section(tmp_path / "lds")
    for text in ("{", json.dumps({"part": "lds"}), "[]", json.dumps({"title": 3}), "[" * 100_000):
        (tmp_path / "section.json").write_text(text)
        with pytest.raises(UserError, match=r"section\.json: not a section"):
            read_section(tmp_path)


PICTURES = {"figures": ".svg", "photographs": ".png"}


def planted(folder, kind, name):
    """A section that says that it has a picture of this name."""
    words = {"name": name, "title": "", "caption": ""}
    content = {"part": "lds", "title": "", "summary": [], "caveats": [], "tables": [], "figures": [], "photographs": []}
    folder.mkdir()
    (folder / "section.json").write_text(json.dumps(content | {kind: [words]}))


@pytest.mark.parametrize("kind", PICTURES)
@pytest.mark.parametrize("name", ["../secret", "{outside}/secret", "sub/secret", "..", "", "sub\\secret", "a\0b", 3])
def test_no_name_leads_out_of_a_folder_that_came_from_elsewhere(tmp_path, kind, name):
    name = name.format(outside=tmp_path) if isinstance(name, str) else name
    planted(tmp_path / "lds", kind, name)
    (tmp_path / "lds" / "sub").mkdir()
    for place in (tmp_path, tmp_path / "lds" / "sub"):
        (place / f"secret{PICTURES[kind]}").write_text("words")
    with pytest.raises(
        UserError, match=r"lds/section\.json: not a section \((ValueError: .* is no file's name|TypeError)"
    ):
        read_section(tmp_path / "lds")


@pytest.mark.parametrize("kind", PICTURES)
def test_no_link_leads_out_of_a_folder_that_came_from_elsewhere(tmp_path, kind):
    planted(tmp_path / "lds", kind, "mine")
    (tmp_path / "secret").write_text("words")
    (tmp_path / "lds" / f"mine{PICTURES[kind]}").symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match=rf"not a section \(ValueError: 'mine\{PICTURES[kind]}' is a link"):
        read_section(tmp_path / "lds")


def test_a_table_that_came_from_elsewhere_is_checked(tmp_path):
    write_section(section(), tmp_path / "lds")
    file = tmp_path / "lds" / "section.json"
    table = {"name": "../up", "title": "", "decimals": 3, "columns": ["a"], "rows": []}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"tables": [table]}))
    with pytest.raises(UserError, match=r"section\.json: section 'lds': '\.\./up\.csv' is no file's name"):
        read_section(tmp_path / "lds")


def test_what_cannot_be_read_is_named(tmp_path):
    planted(tmp_path / "lds", "figures", "f")
    (tmp_path / "lds" / "f.svg").mkdir()
    with pytest.raises(UserError, match=r"f\.svg: cannot be read \(Is a directory\)"):
        read_section(tmp_path / "lds")


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (-0.614, ".2f", "−0.61"),
        (-0.004, ".2f", "0.00"),
        (-0.004, "+.2f", "0.00"),
        (0.5, "+.2f", "+0.50"),
        (-1.5e-07, ".3g", "−1.5e−07"),
        (-math.inf, ".2f", "−inf"),
        (math.nan, ".2f", "nan"),
    ],
)
def test_numbers_have_a_true_minus_sign(value, form, text):
    assert worded(value, form) == text


def test_an_interval_is_said_where_there_is_one():
    assert in_words(Estimate(0.614, 0.52, 0.6799)) == "0.61 (0.52 to 0.68)"
    assert in_words(Estimate(-0.614, -0.6799, -0.52)) == "−0.61 (−0.68 to −0.52)"
    assert in_words(Estimate(0.6144, 0.52, 1.0), ".3g", "95 % interval ") == "0.614 (95 % interval 0.52 to 1)"
    assert in_words(Estimate(-0.5)) == "−0.50"
    assert in_words(Estimate(0.5, -float("inf"), 1.0)) == "0.50"
