"""Progress where there is no terminal."""

import io
from types import SimpleNamespace

from rich.console import Console

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
        "encoding images: 491/491, 98.0/s",
        "encoding images: 1/5",
        "encoding images: 4/5, 1.5/s, 1 s left",
        "encoding images: 5/5, 1.3/s",
    ]
