import csv
import io
import math

from diffcredit.report import write_credits_csv
from diffcredit.report.spreadsheet import credits_csv

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


def test_hostile_names_come_back_whole():
    hostile = table(tuple(float(-i) for i in range(len(HOSTILE))), contributors=HOSTILE)
    rows = list(csv.DictReader(io.StringIO(credits_csv([hostile]), newline="")))
    assert [row["contributor"] for row in rows] == ["'" + name if name.startswith("=") else name for name in HOSTILE]
