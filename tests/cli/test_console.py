"""Progress where there is no terminal, and what never reaches one."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from diffcredit.cli import console


def test_a_stage_that_is_gone_through_again_starts_afresh(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    written = Console(file=io.StringIO(), width=100)
    monkeypatch.setattr(console, "console", written)
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(console, "PLAIN_SECONDS", 0.0)
    with console.Bars() as bars:
        for clock.now, done, total in ((0, 1, 491), (5, 491, 491), (20, 1, 5), (22, 4, 5), (23, 5, 5)):
            bars("encoding images", done, total)
    assert written.file.getvalue().splitlines() == [
        "encoding images: 1/491",
        "encoding images: 491/491, 98/s",
        "encoding images: 1/5",
        "encoding images: 4/5, 1.5/s, 1 s left",
        "encoding images: 5/5, 1.3/s",
    ]


@pytest.mark.parametrize(
    ("per_second", "words"),
    [
        ([98.2, 1.5, None], ["98/s", "1.5/s", ""]),
        ([2.0, 0.1], ["120/min", "6.0/min"]),  # of several, in the unit of the slowest
        ([10 / 3600, 0.0], ["10/h", "0/h"]),
        ([0.4 / 86400], ["0.4/day"]),
        ([0.0], ["0/s"]),
    ],
)
def test_rates_share_a_unit_and_none_reads_as_zero(per_second, words):
    assert console.rates(per_second) == words


NASTY = "a\x1b]0;owned\x07\x1b[2J\r\x9b31mb\u202ec"
SHOWN = "a\\x1b]0;owned\\x07\\x1b[2J\\r\\x9b31mb\\u202ec"


@pytest.fixture
def terminal(monkeypatch):
    """What a terminal with colours receives."""
    received = io.StringIO()
    for name in ("console", "errors"):
        there = console.SafeConsole(file=received, width=200, force_terminal=True, color_system="truecolor")
        monkeypatch.setattr(console, name, there)
    return received


def test_no_control_character_of_a_text_reaches_the_terminal(terminal):
    console.say(NASTY)
    assert terminal.getvalue() == SHOWN + "\n"
    terminal.truncate(0)
    console.complain(ValueError(f"{NASTY}: no\nsuch\tfile"))
    assert SHOWN + ": no such file" in terminal.getvalue()
    assert NASTY not in terminal.getvalue()


def test_nor_of_a_table_or_a_bar(terminal):
    """Beside rich's own colours and cursor movements, nothing that a name holds."""
    grid = Table(title=Text(NASTY, "bold"), box=None)
    grid.add_column(Text(NASTY))
    grid.add_row(Text(NASTY))
    console.console.print(grid)
    with console.Bars() as bars:
        bars(NASTY, 1, 2)
    received = terminal.getvalue()
    for code in ("\x1b]0;", "\x07", "\x1b[2J", "\x9b", "\u202e"):
        assert code not in received
    assert received.count("\\x1b]0;owned") >= 4


def test_no_password_reaches_the_terminal(terminal):
    console.say("ledger postgresql://me:s3cret@host/name")
    console.complain("postgresql://me:s3cret@host/name: refused")
    assert "s3cret" not in terminal.getvalue()
    assert terminal.getvalue().count("postgresql://me:***@host/name") == 2


def test_no_complaint_fills_the_screen(terminal):
    console.complain("x" * 100_000)
    assert 1000 < len(terminal.getvalue()) < 3000
