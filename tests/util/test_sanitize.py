import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url

from diffcredit.util.sanitize import escape_controls, escape_formula, shortened, single_line, without_passwords


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x9b31m", "\\x9b31m"),
        ("a\rb\x08\x07\x00\x7f", "a\\rb\\x08\\x07\\x00\\x7f"),
        ("exe\u202egnp.tac", "exe\\u202egnp.tac"),
        ("\ud800", "\\ud800"),
        ("one\u2028two", "one\\u2028two"),
    ],
)
def test_control_characters_are_written_out(text, shown):
    assert escape_controls(text) == shown


def test_a_name_makes_no_line_of_its_own_and_long_values_are_cut():
    assert single_line("a.png\nerror: pay\tbob\x1b[2J") == "a.png\\nerror: pay\\tbob\\x1b[2J"
    assert shortened("x" * 78) == repr("x" * 78)
    assert len(shortened(["x" * 5000])) == 80
    assert shortened("postgresql://me:s3cret@host") == "'postgresql://me:***@host'"


@pytest.mark.parametrize("text", ["", "Ada", "Zoë 北京 نور", "👩‍🎨", "line\n\tindented", "\\x1b as text"])
def test_all_else_stays(text):
    assert escape_controls(text) == text


@given(st.text())
def test_nothing_shown_commands_a_terminal(text):
    shown = escape_controls(text)
    assert not [each for each in shown if unicodedata.category(each) in ("Cc", "Cs") and each not in "\n\t"]
    assert escape_controls(shown) == shown
    shown.encode()  # what cannot be encoded cannot be printed


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://me:s3cret@host:5432/name",
        "postgresql://:s3cret@host/name",
        "postgresql://me:s3cret%40@host/name",
        "postgresql://me:a/s3cret?x@host/name",
        "postgresql://me:a s3cret@host/name",
        "postgresql://me:a@s3cret@host/name",
        "postgresql+psycopg://host/name?user=me&password=s3cret",
        "postgresql+psycopg://host/name?PASSWORD=s3cret&application_name=x",
        "host=h password='a s3cret' dbname=x",
        "postgresql://one:s3cret@a/x and postgresql://two:s3cret@b/y",
    ],
)
@pytest.mark.parametrize("around", ["cannot open '{}' (refused)", "{}: x\n{}"])
def test_no_password_is_shown(url, around):
    shown = without_passwords(around.replace("{}", url))
    assert "s3cret" not in shown
    assert "***" in shown


@pytest.mark.parametrize("text", ["study.yaml:3: x", "postgresql+psycopg://me@host:5432/name", "a@b: c", "x://h:1/y"])
def test_what_holds_no_password_stays(text):
    assert without_passwords(text) == text


@given(
    user=st.text("abz09%._-", min_size=1),
    password=st.text(st.characters(exclude_characters="@\n\r", exclude_categories=["Cs"]), min_size=1),
)
def test_whatever_a_database_takes_for_a_password(user, password):
    """Against SQLAlchemy's own reading of a URL."""
    url = f"postgresql://{user}:⟨{password}⟩@host/name"
    if make_url(url).password:
        shown = without_passwords(url)
        assert "⟨" not in shown
        assert "⟩" not in shown


def test_what_a_spreadsheet_would_run_gets_an_apostrophe():
    for name in ("=1+1", "+1", "-1", "@x", "\tx", "\rx", "  =1", "\n=1", "'=1", "＝1", " \tx"):
        assert escape_formula(name) == "'" + name
    for name in ("Ada", "'t Hooft", "O'Neil", "a=b", "1-2", " x", "", "نور"):
        assert escape_formula(name) == name


@given(st.lists(st.text(alphabet="'=+-@ \t\rab"), unique=True, min_size=2, max_size=2))
def test_two_names_never_become_one(names):
    assert escape_formula(names[0]) != escape_formula(names[1])
