import json

import numpy as np
import pytest

from planted_study import additive, plant
from tiny_study import run_here, write_small

NAMES = ("ann", "[bold]bob[/bold]", "cy", "dee", "eve")
A, B = np.array([5.0, 4.0, 3.0, 2.0, 1.0]), np.array([8.0, 4.0, 3.0, 2.0, 1.0])


@pytest.fixture
def two(tmp_path):
    a = plant(tmp_path / "a", NAMES, {"fid": additive(A, 0.05)})
    return a, plant(tmp_path / "b", NAMES, {"fid": additive(B, 0.05, 1)}, steps=7)


def test_side_by_side(diffcredit, two, tmp_path, monkeypatch):
    monkeypatch.setattr("diffcredit.cli.console.console._width", 160)
    out = diffcredit.printed("compare", *two, "--csv", tmp_path / "c.csv")
    assert "  retraining.steps 1 → 7" in out.splitlines()
    lines = {name: line for name in NAMES for line in out.splitlines() if line.strip().startswith(name)}
    assert lines["ann"].split()[1:4] == ["1", "→", "1"]
    assert lines["ann"].rstrip().endswith("apart")
    assert "apart" not in lines[NAMES[1]]
    assert "rank correlation 1.00, 1.00 (" in out
    assert "top fifth: 1 of 1 in both; " in out
    assert "evaluations 40 → 40" in out
    assert len((tmp_path / "c.csv").read_text().splitlines()) == 6
    assert f"Table: {tmp_path / 'c.csv'}" in out


def test_json(diffcredit, two):
    out = diffcredit.printed("compare", *two, "--json", "--method", "unshrunk", "--confidence", "0.9")
    content = json.loads(out)
    assert (content["a"], content["b"]) == tuple(map(str, two))
    assert (content["method"], content["confidence"]) == ("unshrunk", 0.9)
    ann = content["properties"][0]["rows"][0]
    assert ann["contributor"] == "ann"
    assert ann["difference"]["low"] < 3 < ann["difference"]["high"] + 0.1


def test_mistakes(diffcredit, two, tmp_path):
    err = diffcredit.refused("compare", *two, "--method", "shaply")
    assert "--method: 'shaply' is unknown; accepted: shapley, " in err
    err = diffcredit.refused("compare", two[0], two[0])
    assert "one and the same recipe" in err
    err = diffcredit.refused("compare", two[0], tmp_path / "nowhere.yaml:lora")
    assert "nowhere.yaml:lora: cannot be read" in " ".join(err.split())


def test_seeds_that_differ(diffcredit, tmp_path):
    """Another seed draws other contributors, unless the data keep theirs."""
    files = [
        write_small(tmp_path / name, {"stop.evaluations": 8, "contributions.draw": 4, **changes}, "ada bob cem dan eve")
        for name, changes in (("a", {}), ("b", {"seed": 3}), ("c", {"seed": 3, "contributions.seed": 0}))
    ]
    for file in files:
        run_here(file)
    drawn = "drawn by different seeds: the same contributions.seed in both draws the same contributors"
    other, same = (diffcredit.printed("compare", files[0], file) for file in files[1:])
    assert "  seeds.data 0 → 3" in other.splitlines()
    assert drawn in other
    assert "only in B" in other
    assert [line for line in same.splitlines() if line.startswith("  seed")] == [
        "  seeds.evaluations 0 → 3",
        "  seeds.model 0 → 3",
    ]
    assert drawn not in same
    assert "only in" not in same
