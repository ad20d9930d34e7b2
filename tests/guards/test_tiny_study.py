"""A small study from its images to its credits: every recorded value, and all else that the ledger holds."""

import csv
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from guards import names
from guards.golden import files_below, golden
from guards.made_up import write_study

PROPERTIES = [
    {"name": "heldout_loss", "time_steps": 2},
    {"name": "colourfulness"},
    {"name": "fid", "features": {"name": "pixels", "size": 1}},
]
TRAINED = ("sparse-", "quality-")
# Plain gradient steps: Adam's divide by gradients that may be nearly zero, and CPUs then differ by 1e-5.
MODEL = {"preset": "tiny", "train": {"steps": 2, "batch_size": 8, "learning_rate": 0.01, "optimizer": "sgd"}}
# Between CPUs. Where one rounds a pixel up and another down, what is seen of images changes by more.
TOLERANCES = {"heldout_loss": 1e-6, "colourfulness": 1e-4, "fid": 1e-2}

EVALUATIONS = """
SELECT r.name, e.coalition, e.replicate, e.purpose, e.status, e.error, e.numerics, e.seconds, e.versions
FROM evaluations e JOIN recipes r ON r.id = e.recipe_id ORDER BY e.id"""
VALUES = """
SELECT e.coalition, e.replicate, p.name, v.images, v.error, v.value FROM property_values v
JOIN evaluations e ON e.id = v.evaluation_id JOIN properties p ON p.id = v.property_id ORDER BY v.id"""


def found(folder: Path) -> dict[str, Any]:
    study = names.Study.load(write_study(folder, properties=PROPERTIES, model=MODEL))
    names.run(study)
    connection = sqlite3.connect(study.folder / "ledger.db")
    evaluations = connection.execute(EVALUATIONS).fetchall()
    values = connection.execute(VALUES).fetchall()
    settings = connection.execute("SELECT name, settings FROM studies").fetchall()
    chain = connection.execute("SELECT number, kind FROM chain ORDER BY number").fetchall()
    connection.close()
    recipes, properties = names.records(study)
    with (study.folder / "credits.csv").open(encoding="utf-8", newline="") as file:
        credits = list(csv.reader(file))
    return {
        "exact": {
            "studies": [[name, json.loads(text)] for name, text in settings],
            "recipes": [[each.name, each.settings] for each in recipes],
            "properties": [[each.name, each.settings, each.higher_is_better, bool(each.state)] for each in properties],
            "evaluations": [list(row[:6]) for row in evaluations],
            "numerics": sorted({key for row in evaluations for key in json.loads(row[6])}),
            "seconds": sorted({key for row in evaluations for key in json.loads(row[7])}),
            "versions": sorted({key for row in evaluations for key in json.loads(row[8])}),
            "values": [list(row[:5]) for row in values],
            "chain": [list(row) for row in chain],
            "files": files_below(study.folder, TRAINED),
            "credits.csv": credits[0],
            "credited": sorted([row[1], row[3]] for row in credits[1:]),
        },
        "numbers": {
            "values": {name: [row[5] for row in values if row[2] == name] for name in TOLERANCES},
            "credits": {name: each.values.tolist() for name, each in study.credits().items()},
        },
    }


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return found(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("what", golden("tiny_study")["exact"])
def test_what_is_no_number_of_a_model_is_the_same(tiny, what):
    assert tiny["exact"][what] == golden("tiny_study")["exact"][what]


@pytest.mark.parametrize("name", TOLERANCES)
def test_recorded_values(tiny, name):
    now, before = tiny["numbers"]["values"][name], golden("tiny_study")["numbers"]["values"][name]
    assert now == pytest.approx(before, rel=TOLERANCES[name])


@pytest.mark.parametrize("name", TOLERANCES)
def test_credits(tiny, name):
    now, before = tiny["numbers"]["credits"][name], golden("tiny_study")["numbers"]["credits"][name]
    assert now == pytest.approx(before, abs=0.01 * max(map(abs, before)))  # differences of nearly equal values
