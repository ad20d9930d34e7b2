import csv
import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffcredit.report import write_credits_csv
from diffcredit.report.spreadsheet import credits_csv, neutralise

from .made_up import HOSTILE, table


def test_the_file_is_exactly_this(tmp_path):
    up = table((0.1, 0.3), low=(0.05, math.nan), high=(0.2, math.nan), empty=0.0, full=0.5)
    down = table((-1.0, 1.0), property="fid", higher_is_better=False, full=10.0)
    write_credits_csv([up, down], tmp_path / "credits.csv")
    assert (tmp_path / "credits.csv").read_bytes().decode() == (
        "rank,contributor,images,property,credit,low,high,share\r\n"
        "1,B,11,colourfulness,0.3,,,0.6\r\n"
        "2,A,10,colourfulness,0.1,0.05,0.2,0.2\r\n"
        "1,A,10,fid,-1.0,-1.5,-0.5,\r\n"
        "2,B,11,fid,1.0,0.5,1.5,\r\n"
    )


def test_numbers_keep_all_their_digits():
    credit = (1 / 3, math.pi * 1e-9)
    rows = list(csv.DictReader(io.StringIO(credits_csv([table(credit)]), newline="")))
    assert tuple(float(row["credit"]) for row in rows) == credit


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "  =1", "\n=1", "'=1", "＝1", " \tx"])
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(name):
    assert neutralise(name) == "'" + name


@pytest.mark.parametrize("name", ["Ada", "'t Hooft", "O'Neil", "a=b", "1-2", " x", "", "نور"])
def test_ordinary_names_stay(name):
    assert neutralise(name) == name


@given(st.lists(st.text(alphabet="'=+-@ \t\rab"), unique=True, min_size=2, max_size=2))
def test_two_names_never_become_one(names):
    assert neutralise(names[0]) != neutralise(names[1])


def test_hostile_names_come_back_whole():
    hostile = table(tuple(float(-i) for i in range(len(HOSTILE))), contributors=HOSTILE)
    rows = list(csv.DictReader(io.StringIO(credits_csv([hostile]), newline="")))
    assert [row["contributor"] for row in rows] == ["'" + name if name.startswith("=") else name for name in HOSTILE]
