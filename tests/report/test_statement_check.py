"""The script of docs/statements.md, with which contributors check their works, run as they would run it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diffcredit.contributions import load_contributions
from diffcredit.report.statements import Statement, statement_json

from .made_up_payout import HEAD, payout, row

PAGE = Path(__file__).parents[2] / "docs" / "statements.md"


@pytest.fixture
def originals(tmp_path):
    """Two contributors' originals, larger than the study's images and not square, and a file that is no image."""
    generator = np.random.default_rng(0)
    for name in ("Ann", "Ben"):
        for i in range(3):
            file = tmp_path / "given" / name / "sketches" / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(generator.integers(0, 256, (40, 30 + i, 3), dtype=np.uint8)).save(file)
    (tmp_path / "given" / "Ann" / "notes.txt").write_text("not an image")
    return tmp_path / "given"


def statement_of(originals: Path) -> str:
    """Ann's statement, as JSON."""
    works = load_contributions(originals, resolution=16).works("Ann")
    made = payout((row("Ann", works=works.digest), row("Ben")))
    return statement_json(Statement(made, made.row("Ann"), HEAD, "study.yaml", works))


def ran(originals: Path, content: str) -> str:
    """What the script says of a statement and Ann's originals."""
    (script,) = (part for part in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "sha256" in part)
    file, statement = originals.with_name("check_works.py"), originals.with_name("ann.json")
    file.write_text(script)
    statement.write_text(content, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(file), str(statement), str(originals / "Ann")],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_original_is_found(originals):
    said = ran(originals, statement_of(originals))
    assert "hash of your works agree" in said
    for i in range(3):
        assert re.search(rf"{i}\.png is .*Ann/sketches/{i}\.png", said.replace("\\", "/"))


def test_another_original_and_another_list_are_noticed(originals):
    content = statement_of(originals)
    Image.new("RGB", (30, 30)).save(originals / "Ann" / "sketches" / "1.png")
    assert ran(originals, content).count("NOT AMONG YOUR FILES") == 1
    listed = json.loads(content)["images"][0]["sha256"]
    assert "hash of your works DISAGREE" in ran(originals, content.replace(listed, "0" * 64))
