"""Whole studies on every kind of model: planned, piloted, run, credited, validated."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from diffcredit.errors import DiffcreditWarning
from diffcredit.execution import InProcess
from diffcredit.execution.threads import limited_threads
from diffcredit.report.composing import write_results
from diffcredit.study.pilot import run_pilot, signals
from diffcredit.study.study import Study
from diffusion.ways import WAYS, Ways
from tiny_study import recorded_values, run_here, write_study

FAMILIES = {"PixelFamily": "ddpm", "LatentFamily": "latent", "LoRAFamily": "lora"}
PEOPLE = "abcdefgh"
SURROGATES = ("pools", "soup", "reweighting", "real_data", "conditional")
QUICK = ("dit flow labels", "lora dit")


def images(folder: Path, name: str) -> None:
    """An ``imagefolder`` of eight people, two images each."""
    way, rows = WAYS[name], []
    folder.mkdir(parents=True)
    for place in range(2 * len(PEOPLE)):
        pixels = np.random.default_rng(place).integers(0, 256, (way.side, way.side, 3), dtype=np.uint8)
        row = {"file_name": f"{place:02d}.png", "contributor": PEOPLE[place // 2]}
        Image.fromarray(pixels).save(folder / row["file_name"])
        rows.append(row | ({} if way.texts is None else {"text": way.texts[place % 3]}))
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def written(ways: Ways, name: str, folder: Path, **changes: Any) -> Path:
    way = WAYS[name]
    images(folder / "images", name)
    properties: list[Any] = [{"name": "heldout_loss", "time_steps": 2}, "colourfulness"]
    if way.texts is not None:
        properties.append({"name": "colourfulness", "as": "of_one_text", "prompts": [way.texts[0]]})
    surrogates = [{"name": each, "coalitions": 16} for each in SURROGATES if way.texts or each != "conditional"]
    model = {"family": FAMILIES[way.family.__name__], **ways.options(name)}
    sections = {
        "contributions": {"source": "imagefolder", "path": "images", "resolution": way.side, "holdout": 0.25},
        "model": model | {"train": {"steps": 2, "batch_size": 4, "learning_rate": 0.001}},
        "retraining": {"method": "sparsified", "parameters": 0.6, "recover_steps": 1, "steps": 1},
        "sampling": {"steps": 2, "images": 6},
        "properties": properties,
        "surrogates": surrogates,
        "stop": {"evaluations": 10},
    }
    return write_study(folder, sections | changes)


@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in WAYS]
)
def test_a_study(ways, name, tmp_path):
    file = written(ways, name, tmp_path)
    with limited_threads(1):
        plan = Study.load(file).plan()
        assert (plan.left, plan.seconds_left > 0) == (12, True)  # both ends beside the ten
        assert len(list(run_pilot(Study.load(file).recipe, InProcess(), 2, 2))) == 4
        made = run_here(file)
    assert {each.status for each in made} == {"done"}
    study = Study.load(file)
    names = {"heldout_loss", "colourfulness"} | ({"of_one_text"} if WAYS[name].texts else set())
    assert {key[-1] for key in recorded_values(tmp_path)} == names
    with pytest.warns(DiffcreditWarning):  # ten evaluations are few
        credits = study.credits()
    assert set(credits) == names
    for prop, each in credits.items():
        assert np.isfinite(each.values).all(), prop
    assert np.ptp(credits["heldout_loss"].values) > 0
    assert set(signals(Study.load(file))) == names
    assert run_here(file) == []  # all is found again
    with pytest.warns(DiffcreditWarning):
        write_results(study)
    assert (tmp_path / "results" / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_a_validation_from_scratch(ways, tmp_path):
    """Of a class-conditional flow transformer: the truth is retrained, and compared with credits and baselines."""
    validation = {"shares": [0.5], "coalitions": 10, "seeds": 1, "evaluations": 8, "leave_one_out": False}
    file = written(
        ways, "dit flow labels", tmp_path, surrogates=[], properties=["colourfulness"], validation=validation
    )
    run_here(file)
    with limited_threads(1), pytest.warns(DiffcreditWarning, match="cluster_distance: left out"):
        found = Study.load(file).validate(("lds",), executor=InProcess())
    assert [each.part for each in found.sections] == ["lds"], found.left_out
    truth = {key for key in recorded_values(tmp_path) if key[0] == "from_scratch"}
    assert len({coalition for _, coalition, *_ in truth}) == 10
    assert len(truth) == 10
