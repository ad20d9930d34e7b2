"""The quality gate: what pruning may change, and that it is looked at once."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from diffcredit.diffusion.generating import generate
from diffcredit.errors import DiffcreditError
from diffcredit.execution.threads import limited_threads
from diffcredit.ledger import ChangedRecord
from diffcredit.report.scope import notes_on_pruning
from diffcredit.study.quality import LOSS, Comparison, compare, complaints, kept, unknown
from diffcredit.study.study import Study
from tiny_study import CONFIG, write_small


@pytest.mark.parametrize(
    ("start", "only_rises", "lost", "broken"),
    [
        (10.0, False, 0.0, False),
        (9.6, False, 0.2, False),
        (9.4, False, 0.3, True),
        (10.6, False, 0.3, True),
        (9.4, True, 0.0, False),
        (10.6, True, 0.3, True),
    ],
)
def test_a_quarter_of_the_way_to_the_untrained_network_is_tolerated(start, only_rises, lost, broken):
    """The base model has 10, the untrained network 8 (12 of what only may not rise)."""
    comparison = Comparison("beauty", 10.0, start, 12.0 if only_rises else 8.0, only_rises)
    assert comparison.lost == pytest.approx(lost)
    assert comparison.broken is broken
    said = comparison.complaint()
    assert f"it {'rose' if only_rises else 'changed'} from 10 to {start:g}, by {100 * lost:.0f} % of the dist" in said


def test_a_base_model_no_better_than_an_untrained_one():
    assert Comparison("beauty", 1.0, 1.0, 1.0).lost == 0
    assert Comparison("beauty", 1.0, 1.1, 1.0).lost == math.inf


HARDLY = "the base model is hardly trained"
FARTHER = "beauty: pruning changed the model too much: it changed from 44 to 9"


@pytest.mark.parametrize(
    ("base", "start", "pretrained", "said"),
    [
        (0.99, 0.99, False, f"{HARDLY}: its denoising loss is 0.99, that of the untrained network 1,"),
        (0.7, 0.6, False, HARDLY),  # the recovery of the pruned copy learned more
        (0.7, 0.7, False, f"{FARTHER}, farther than training had taken it"),
        (0.99, 0.99, True, FARTHER),  # a pipeline without its adapter is trained too
    ],
)
def test_pruning_is_not_blamed_for_a_base_model_without_training(base, start, pretrained, said):
    rows = [Comparison("beauty", 44.0, 9.0, 44.001), Comparison(LOSS, base, start, 1.0, only_rises=True)]
    options = {"pretrained": "sd"} if pretrained else {"preset": "tiny"}
    (found,) = complaints(SimpleNamespace(config=SimpleNamespace(model=SimpleNamespace(options=options))), rows)
    assert found.startswith(said)
    assert "00 %" not in found  # no percentage of a distance that is none


def prepared(folder, retraining, **changes):
    """A study whose retraining starts as the option says, ready to be compared."""
    study = Study.load(write_small(folder, {**changes, "retraining": retraining}))
    with limited_threads(1):
        study.prepare()
    return study


@pytest.fixture(scope="module")
def pruned(tmp_path_factory):
    """A study with a pruned model, with held-out images, and its comparisons by name."""
    changes = {
        "contributions": {"path": "images", "resolution": 16, "holdout": 0.2},
        "properties": [{"name": "heldout_loss"}, "colourfulness"],
    }
    study = prepared(tmp_path_factory.mktemp("pruned"), CONFIG["retraining"], **changes)
    assert kept(study) == []
    return study, {row.name: row for row in compare(study)}


def test_the_three_models_are_measured_on_images_from_the_same_noises(pruned):
    study, found = pruned
    assert list(found) == ["heldout_loss", "colourfulness", LOSS]
    (untrained,) = study.recipe.retraining.models_for(np.zeros((1, 3), dtype=bool), [0])
    models = study.prepared.base, study.recipe.retraining.start, untrained
    row, prop = found["colourfulness"], study.prepared.properties[1]
    with limited_threads(1):
        measured = [prop.measure(generate(model, study.config.sampling)) for model in models]
    assert measured == [row.base, row.start, row.untrained]


def test_held_out_images_give_the_loss(pruned):
    _, found = pruned
    measured, gate = found["heldout_loss"], found[LOSS]
    assert (gate.base, gate.start, gate.untrained) == (measured.base, measured.start, measured.untrained)
    assert (measured.only_rises, gate.only_rises) == (False, True)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]]", b"{}", b"null", b'"text"', b"[[1]]", b'[{"name": 1}]', b"\xff", b"[" * 100_000),
        b'[{"name": "x", "base": Infinity, "start": 1, "untrained": 2}]',
        b'[{"name": "x", "base": "1", "start": 1, "untrained": 2}]',
        b'[{"name": "x", "base": 1, "start": 1, "untrained": 2, "more": 3}]',
    ],
)
def test_a_damaged_comparison_is_said_in_a_line(pruned, content, monkeypatch):
    """In a study that is older than the manifest, which knows nothing of its files."""
    study, found = pruned
    monkeypatch.setattr("diffcredit.study.quality.is_entered", lambda *given: True)
    (file,) = study.cache.folder.glob("quality-*.json")
    whole = file.read_bytes()
    try:
        file.write_bytes(content)
        with pytest.raises(
            DiffcreditError, match=r"^\S*quality-\w+\.json: damaged \(.*\); remove it to have it made anew$"
        ):
            kept(study)
    finally:
        file.write_bytes(whole)
    assert kept(study) == list(found.values())


def test_it_is_computed_once(pruned):
    study, found = pruned
    (file,) = study.cache.folder.glob("quality-*.json")
    content = json.loads(file.read_text())
    content[0]["start"] = 77.0
    before = file.read_text()
    file.write_text(json.dumps(content))
    for reads in (compare, kept):  # read, not computed
        with pytest.raises(
            ChangedRecord, match=r"the record was changed: \S*quality-\S*\.json is not as it was entered"
        ):
            reads(Study.load(study.file))
    file.write_text(before)
    assert compare(Study.load(study.file)) == list(found.values())


def test_a_comparison_that_was_made_and_is_not_shown_is_said(pruned, monkeypatch):
    """Whoever removes it cannot make a report that is silent about pruning."""
    study, _ = pruned
    (file,) = study.cache.folder.glob("quality-*.json")
    assert unknown(study) == ""
    assert not any("not known" in note for note in notes_on_pruning(study))
    with monkeypatch.context() as patched:
        patched.setattr("diffcredit.study.quality.is_entered", lambda *given: False)
        assert unknown(study) == f"models/{file.name} is not in the ledger"
    whole = file.read_bytes()
    file.unlink()
    assert notes_on_pruning(study) == [
        f"What pruning changed in the base model is not known here: models/{file.name} is in the ledger, but not here; "
        "diffcredit run measures it."
    ]
    file.write_bytes(whole)


@pytest.mark.parametrize("method", ["fine_tune", "from_scratch"])
def test_nothing_to_compare_without_pruning(tmp_path, method):
    assert compare(prepared(tmp_path, {"method": method, "steps": 1})) == []
    assert not list((tmp_path / "results/models").glob("quality-*"))


PLUG_INS = '''
from diffcredit.retraining.fine_tune import FineTune

class Wrecked(FineTune):
    """Starts from the untrained network itself: all is lost."""

    def prepare(self, context):
        self.start_from(context.untrained(context.base), context)

class Forgetful(Wrecked):
    """Does not say what it was prepared with."""

    def prepare(self, context):
        super().prepare(context)
        del self.context
'''


def test_a_wrecked_model_has_lost_everything_and_one_without_its_ground_is_not_compared(tmp_path):
    (tmp_path / "wrecked_retraining.py").write_text(PLUG_INS)
    rows = compare(prepared(tmp_path, {"method": "wrecked_retraining:Wrecked", "steps": 1}))
    assert {row.name: (row.lost, row.broken) for row in rows} == {"colourfulness": (1, True), LOSS: (1, True)}
    assert compare(prepared(tmp_path, {"method": "wrecked_retraining:Forgetful", "steps": 1})) == []
