import csv
import io
import math

import pytest

from diffcredit.credit.verdicts import Verdict
from diffcredit.report import write_credits_csv
from diffcredit.report.standings import credits_csv, standings

from .made_up import HOSTILE, table


@pytest.mark.parametrize(
    ("credit", "higher_is_better", "expected"),
    [
        ((1.0, 4.0, 3.0), True, "B1 C2 A3"),
        ((-1.0, -4.0, 2.0), False, "B1 A2 C3"),
        ((2.0, 5.0, 5.0, 1.0, 2.0), True, "B1 C1 A3 E3 D5"),  # equal credits keep the order of the table
    ],
)
def test_the_most_helpful_comes_first(credit, higher_is_better, expected):
    rows = standings(table(credit, higher_is_better=higher_is_better))
    assert " ".join(f"{row.contributor}{row.rank}" for row in rows) == expected


def test_credits_that_differ_by_rounding_share_a_rank():
    """Relative to F, which is 10 and more: as of a property that is constant but for its last digit."""
    rows = standings(table((1e-15, 3e-15, 0.0, -2e-15)))
    assert [row.rank for row in rows] == [1, 1, 1, 1]
    steps = standings(table((0.0, 0.8e-8, 1.6e-8)))  # each within 1e-9 of F, the ends are not
    assert [row.rank for row in steps] == [1, 1, 3]


@pytest.mark.parametrize(
    ("credit", "changes", "shares"),
    [
        ((1.0, 4.0, 3.0), {}, [0.5, 0.375, 0.125]),
        ((-1.0, -3.0), {"higher_is_better": False}, [0.75, 0.25]),
        ((1.0, -1.0), {"full": 10.0}, [None, None]),  # a total of zero
        ((1.0, 4.0, 3.0), {"full": 20.0}, [None] * 3),  # credits that do not sum to the total
    ],
)
def test_shares_are_fractions_of_the_total_change(credit, changes, shares):
    assert [row.share for row in standings(table(credit, **changes))] == shares


def test_intervals_stay_with_their_contributors():
    rows = standings(
        table(
            (1.0, 4.0, 3.0),
            rank_low=(3, 1, 1),
            rank_high=(3, 2, 2),
            share_low=(0.1, 0.4, 0.3),
            share_high=(0.2, 0.6, 0.5),
            contrast_half_width=(0.7, 0.8, 0.9),
        )
    )
    assert [
        (row.contributor, row.rank_low, row.rank_high, row.share_low, row.share_high, row.contrast_half_width)
        for row in rows
    ] == [("B", 1, 2, 0.4, 0.6, 0.8), ("C", 1, 2, 0.3, 0.5, 0.9), ("A", 3, 3, 0.1, 0.2, 0.7)]


@pytest.mark.parametrize(("higher_is_better", "expected"), [(True, "more"), (False, "less")])
def test_only_differences_beyond_their_interval_stand_out(higher_is_better, expected):
    # the average is 2; A is 2 above it, the others 1 below
    rows = standings(
        table((4.0, 1.0, 1.0), contrast_half_width=(1.9, 1.0, 1.5), half_width=9.0, higher_is_better=higher_is_better)
    )
    assert {row.contributor: row.versus_average for row in rows} == {
        "A": expected,
        "B": "unsettled",
        "C": "unsettled",
    }


def test_what_is_no_sure_difference_matters_only_maybe():
    # the average is 2; B is 1 below it, as far as its interval reaches
    rows = standings(table((4.0, 1.0, 1.0), contrast_half_width=(1.9, 1.0, 0.5), matters=(True, True, False)))
    assert {row.contributor: row.matters_in_words for row in rows} == {"A": "yes", "B": "maybe", "C": "no"}
    assert {row.matters_in_words for row in standings(table((4.0, 1.0)))} == {""}


def test_equal_credits_known_exactly_do_not_stand_out_by_rounding():
    rows = standings(table((0.1,) * 7, half_width=0.0))
    assert {row.versus_average for row in rows} == {"unsettled"}


def test_an_unknown_interval_never_stands_out():
    unknown = table((100.0, 0.0, 80.0), contrast_half_width=(math.nan, 1.0, math.inf))
    assert [row.versus_average for row in standings(unknown)] == ["unsettled", "unsettled", "less"]


def test_the_sum_check_accepts_rounding_and_nothing_more():
    exact = table((0.1, 0.2, 0.3), empty=0.0, full=0.6)
    assert (exact.sum, exact.average) == pytest.approx((0.6, 0.2))
    assert exact.sums_to_total
    assert not table((0.1, 0.2, 0.3), empty=0.0, full=0.60001).sums_to_total


def test_the_file_is_exactly_this(tmp_path):
    intervals = {"rank_low": (2, 1), "share_low": (0.125, -math.inf), "share_high": (0.25, math.inf)}
    contrast = {"contrast_half_width": (0.0625, math.inf), "matters": (True, False)}
    up = table((0.25, 0.5), low=(0.05, math.nan), high=(0.2, math.nan), empty=0.0, full=0.75, **intervals, **contrast)
    use = Verdict("use with care", "Why.", ())
    down = table((-1.0, 1.0), property="fid", higher_is_better=False, full=10.0, verdict=use)
    unknown = {"share_low": (math.nan,) * 2, "share_high": (math.nan,) * 2}
    banzhaf = table((1.0, 2.0), property="b", full=20.0, **unknown)
    hidden = table((1.0, 3.0), property="h", no_shares="No shares.", **unknown)
    write_credits_csv([up, down, banzhaf, hidden], tmp_path / "credits.csv")
    assert (tmp_path / "credits.csv").read_bytes().decode() == (
        "rank,contributor,images,property,credit,low,high,share,"
        "rank_low,rank_high,share_low,share_high,contrast_half_width,help,help_low,help_high,matters,verdict\r\n"
        "1,B,11,colourfulness,0.5,,,0.6666666666666666,1,2,,,,0.125,,,no,\r\n"
        "2,A,10,colourfulness,0.25,0.05,0.2,0.3333333333333333,2,2,0.125,0.25,0.0625,-0.125,-0.1875,-0.0625,yes,\r\n"
        "1,A,10,fid,-1.0,-1.5,-0.5,,1,2,,,0.5,1.0,0.5,1.5,,use with care\r\n"
        "2,B,11,fid,1.0,0.5,1.5,,1,2,,,0.5,-1.0,-1.5,-0.5,,use with care\r\n"
        "1,B,11,b,2.0,1.5,2.5,,1,2,,,0.5,0.5,0.0,1.0,,\r\n"
        "2,A,10,b,1.0,0.5,1.5,,1,2,,,0.5,-0.5,-1.0,0.0,,\r\n"
        "1,B,11,h,3.0,2.5,3.5,,1,2,,,0.5,1.0,0.5,1.5,,\r\n"
        "2,A,10,h,1.0,0.5,1.5,,1,2,,,0.5,-1.0,-1.5,-0.5,,\r\n"
    )


def test_hostile_names_come_back_whole():
    hostile = table(tuple(float(-i) for i in range(len(HOSTILE))), contributors=HOSTILE)
    rows = list(csv.DictReader(io.StringIO(credits_csv([hostile]), newline="")))
    assert [row["contributor"] for row in rows] == ["'" + name if name.startswith("=") else name for name in HOSTILE]
