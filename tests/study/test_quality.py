"""The quality gate: what pruning may change, and that it is looked at once."""

import json
import math

import numpy as np
import pytest

from diffcredit.diffusion.generating import generate
from diffcredit.execution.threads import limited_threads
from diffcredit.study.quality import LOSS, Comparison, compare, kept
from diffcredit.study.study import Study
from tiny_study import images_of, write_study

SMALL = {
    "contributions": {"path": "images", "resolution": 16},
    "properties": [{"name": "cluster_entropy", "clusters": 2}, "colourfulness"],
}


@pytest.mark.parametrize(
    ("start", "only_rises", "broken"),
    [(10.0, False, False), (9.6, False, False), (9.4, False, True), (10.6, False, True), (9.4, True, False)],
)
def test_a_quarter_of_the_way_to_the_untrained_network_is_tolerated(start, only_rises, broken):
    """The base model has 10, the untrained network 8 (12 of what only may not rise)."""
    comparison = Comparison("beauty", 10.0, start, 12.0 if only_rises else 8.0, only_rises)
    assert comparison.broken is broken


def test_a_loss_that_rises():
    row = Comparison(LOSS, 0.2, 0.45, 1.0, only_rises=True)
    assert row.lost == pytest.approx(0.25 / 0.8)
    assert row.broken
    assert row.complaint() == (
        "denoising loss: pruning changed the model too much: it rose from 0.2 to 0.45, by 31 % of the distance to the "
        "untrained network's 1; at most 25 % is tolerated; increase retraining.recover_steps or "
        "retraining.parameters"
    )


def test_a_base_model_no_better_than_an_untrained_one():
    assert Comparison("beauty", 1.0, 1.0, 1.0).lost == 0
    assert Comparison("beauty", 1.0, 1.1, 1.0).lost == math.inf


@pytest.fixture
def prepared(tmp_path):
    """A study whose retraining starts as the option says, ready to be compared."""

    def make(retraining, **changes):
        images_of(tmp_path / "images", ["ada", "bob", "cem"])
        study = Study.load(write_study(tmp_path, {**SMALL, **changes, "retraining": retraining}))
        with limited_threads(1):
            study.prepare()
        return study

    return make


def test_the_three_models_are_measured_on_images_from_the_same_noises(prepared):
    study = prepared({"method": "sparsified", "recover_steps": 2, "steps": 1})
    found = {row.name: row for row in compare(study)}
    assert list(found) == ["cluster_entropy", "colourfulness", LOSS]
    (untrained,) = study.recipe.retraining.models_for(np.zeros((1, 3), dtype=bool), [0])
    prop = study.prepared.properties[1]
    row = found["colourfulness"]
    with limited_threads(1):
        for value, model in (
            (row.base, study.prepared.base),
            (row.start, study.recipe.retraining.start),
            (row.untrained, untrained),
        ):
            assert value == prop.measure(generate(model, study.config.sampling))
    assert found[LOSS].only_rises
    assert found[LOSS].untrained > 0


def test_it_is_computed_once(prepared, tmp_path):
    study = prepared({"method": "sparsified", "recover_steps": 2, "steps": 1})
    assert kept(study) == []
    rows = compare(study)
    (file,) = (tmp_path / "results/models").glob("quality-*.json")
    content = json.loads(file.read_text())
    content[0]["start"] = 77.0
    file.write_text(json.dumps(content))
    again = compare(Study.load(study.file))
    assert again[0].start == 77.0  # read, not computed
    assert again[1:] == rows[1:]
    assert kept(Study.load(study.file)) == again


@pytest.mark.parametrize("method", ["fine_tune", "from_scratch"])
def test_nothing_to_compare_without_pruning(prepared, tmp_path, method):
    assert compare(prepared({"method": method, "steps": 1})) == []
    assert not list((tmp_path / "results/models").glob("quality-*"))


WRECKED = '''
from diffcredit.retraining.fine_tune import FineTune

class Wrecked(FineTune):
    """Starts from the untrained network itself: all is lost."""

    def prepare(self, ground):
        self.start_from(ground.untrained(ground.base), ground)
'''


def test_a_wrecked_model_has_lost_everything(prepared, tmp_path):
    (tmp_path / "wrecked_retraining.py").write_text(WRECKED)
    train = {"model.train": {"steps": 30, "batch_size": 8, "learning_rate": 1e-3}}
    rows = compare(prepared({"method": "wrecked_retraining:Wrecked", "steps": 1}, **train))
    by_name = {row.name: row for row in rows}
    assert by_name[LOSS].lost == 1
    assert by_name[LOSS].broken
    assert by_name["colourfulness"].lost == 1


def test_a_plug_in_with_a_start_alone_is_not_compared(prepared, tmp_path):
    forgetful = WRECKED.replace("Wrecked", "Forgetful") + "        self.__dict__.pop('ground')\n"
    (tmp_path / "forgetful_retraining.py").write_text(forgetful)
    assert compare(prepared({"method": "forgetful_retraining:Forgetful", "steps": 1})) == []


def test_held_out_images_or_else_training_images_give_the_loss(prepared):
    section = {"path": "images", "resolution": 16, "holdout": 0.2}
    loss = {"name": "heldout_loss"}
    study = prepared({"method": "sparsified", "recover_steps": 2, "steps": 1}, contributions=section, properties=[loss])
    measured, gate = compare(study)
    assert (measured.name, gate.name) == ("heldout_loss", LOSS)
    assert (gate.base, gate.start, gate.untrained) == (measured.base, measured.start, measured.untrained)
    assert not measured.only_rises
