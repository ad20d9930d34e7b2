import csv
import io
import math

from diffcredit.report import write_credits_csv
from diffcredit.report.spreadsheet import credits_csv

from .made_up import HOSTILE, table


def test_the_file_is_exactly_this(tmp_path):
    intervals = {"rank_low": (2, 1), "share_low": (0.125, -math.inf), "share_high": (0.25, math.inf)}
    contrast = {"contrast_half_width": (0.0625, math.inf)}
    up = table((0.1, 0.4), low=(0.05, math.nan), high=(0.2, math.nan), empty=0.0, full=0.5, **intervals, **contrast)
    down = table((-1.0, 1.0), property="fid", higher_is_better=False, full=10.0)
    banzhaf = table((1.0, 2.0), property="b", full=20.0, share_low=(math.nan,) * 2, share_high=(math.nan,) * 2)
    write_credits_csv([up, down, banzhaf], tmp_path / "credits.csv")
    assert (tmp_path / "credits.csv").read_bytes().decode() == (
        "rank,contributor,images,property,credit,low,high,share,"
        "rank_low,rank_high,share_low,share_high,contrast_half_width\r\n"
        "1,B,11,colourfulness,0.4,,,0.8,1,2,,,\r\n"
        "2,A,10,colourfulness,0.1,0.05,0.2,0.2,2,2,0.125,0.25,0.0625\r\n"
        "1,A,10,fid,-1.0,-1.5,-0.5,,1,2,,,0.5\r\n"
        "2,B,11,fid,1.0,0.5,1.5,,1,2,,,0.5\r\n"
        "1,B,11,b,2.0,1.5,2.5,,1,2,,,0.5\r\n"
        "2,A,10,b,1.0,0.5,1.5,,1,2,,,0.5\r\n"
    )


def test_hostile_names_come_back_whole():
    hostile = table(tuple(float(-i) for i in range(len(HOSTILE))), contributors=HOSTILE)
    rows = list(csv.DictReader(io.StringIO(credits_csv([hostile]), newline="")))
    assert [row["contributor"] for row in rows] == ["'" + name if name.startswith("=") else name for name in HOSTILE]
