import copy
import math
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
import yaml

import tampering
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.execution import LocalWorkers
from diffcredit.execution.threads import limited_threads
from diffcredit.ledger import Ledger, differences
from diffcredit.report.tables import credit_tables
from diffcredit.study.study import Study
from tiny_study import (
    CONFIG,
    SMALL,
    changed,
    files_below,
    images_of,
    recorded_values,
    rows,
    run_here,
    write_small,
    write_study,
)

EVALUATIONS = 16
CONTRIBUTORS = 12


def change(folder, changes):
    """The finished study's file with ``changes``."""
    file = folder / "study.yaml"
    content = changed(yaml.safe_load(file.read_text(encoding="utf-8")), changes)
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def statuses(folder):
    return [row[0] for row in rows(folder, "SELECT status FROM evaluations ORDER BY id")]


def test_a_study_evaluates_every_task_and_every_property(finished):
    values = recorded_values(finished)
    assert len(values) == (EVALUATIONS + 2) * 3
    assert None not in values.values()
    coalitions = {key[1] for key in values}
    assert {"0" * CONTRIBUTORS, "1" * CONTRIBUTORS} < coalitions
    assert {len(coalition) for coalition in coalitions} == {CONTRIBUTORS}
    assert statuses(finished) == ["done"] * (EVALUATIONS + 2)


@pytest.mark.slow
def test_workers_give_the_same_bits(finished, tmp_path):
    file = write_study(tmp_path / "other")
    with limited_threads(1):
        made = list(Study.load(file).evaluate(LocalWorkers(2)))
    assert len({evaluation.worker for evaluation in made}) == 2
    assert recorded_values(file.parent) == recorded_values(finished)


def test_running_again_evaluates_only_what_is_missing(finished):
    before = recorded_values(finished)
    for wanted, made in ((EVALUATIONS, 0), (5, 0), (EVALUATIONS + 3, 3)):
        assert len(run_here(change(finished, {"stop.evaluations": wanted}))) == made
        assert len(Study.load(finished).credits()["colourfulness"].values) == CONTRIBUTORS
    after = recorded_values(finished)
    assert len(after) == len(before) + 3 * 3
    assert {key: after[key] for key in before} == before


def test_credits_share_out_what_all_bring(finished):
    values = recorded_values(finished)
    credits = Study.load(finished).credits()
    assert list(credits) == ["heldout_loss", "colourfulness", "cluster_entropy"]
    for name, credit in credits.items():
        none, everybody = (
            np.frombuffer(values["sparsified", member * CONTRIBUTORS, 0, name])[0] for member in ("0", "1")
        )
        assert math.fsum(credit.values) == pytest.approx(everybody - none, abs=1e-9)
        assert credit.evaluations == EVALUATIONS


def test_a_changed_recipe_is_refused_before_anything_is_trained(finished):
    before, original = files_below(finished), (finished / "study.yaml").read_text()
    for changes, said in (
        ({"retraining.steps": 3}, "retraining.steps 1 → 3"),
        ({"retraining.parameters": 0.6}, "retraining.parameters 0.55 → 0.6"),
        ({"model.train.learning_rate": 0.002}, "model.train.learning_rate 0.001 → 0.002"),
        ({"seed": 7}, "seed 0 → 7"),
        ({"sampling.images": 5}, "sampling.images 4 → 5"),
        ({"contributions.resolution": 20}, "data.resolution 16 → 20"),
    ):
        (finished / "study.yaml").write_text(original)
        with pytest.raises(UserError, match="recipe 'sparsified' changed") as raised:
            run_here(change(finished, changes))
        assert said in str(raised.value)
        assert "give the retraining another name or restore the settings" in str(raised.value)
        assert "\n" not in str(raised.value)
        assert files_below(finished) == before


SETTLED = {"any": [{"evaluations": 300}, {"width": 1e9}]}  # so wide that the first look is enough


def test_a_rule_may_change_and_a_study_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("diffcredit.study.schedule.LEAST_STEP", 6)  # coalitions before the first look
    assert len(run_here(write_small(tmp_path, {"stop.evaluations": 4}))) == 6
    assert len(run_here(write_study(tmp_path, {**SMALL, "stop": SETTLED}))) == 2
    assert run_here(write_study(tmp_path, {**SMALL, "stop": {"hours": 1e-9}})) == []


def test_a_ledger_without_standard_errors_goes_on(finished):
    tampering.change(finished / "results/ledger.db", "UPDATE property_values SET standard_error = NULL")
    tampering.chain_anew(finished / "results/ledger.db")
    assert len(run_here(change(finished, {"stop.evaluations": EVALUATIONS + 1}))) == 1
    assert len(Study.load(finished).credits()) == 3


def test_changed_data_are_refused(tmp_path):
    file = write_small(tmp_path, {"stop.evaluations": 1})
    run_here(file)
    (tmp_path / "images/bob/0.png").unlink()
    with pytest.raises(UserError, match=r"data\.images\.bob 6 → 5"):
        run_here(file)
    images_of(tmp_path / "images", ["dan"])
    with pytest.raises(UserError, match=r'study .tiny. changed: contributors \["ada","bob","cem"\] → .*"dan"'):
        run_here(file)


def test_a_changed_property_is_refused(finished):
    with pytest.raises(UserError, match=r"property 'cluster_entropy' changed: clusters 2 → 3"):
        run_here(change(finished, {"properties": [{"name": "cluster_entropy", "clusters": 3}]}))


@pytest.mark.parametrize(("method", "weights"), [("fine_tune", 64), ("from_scratch", 0)])
def test_another_retraining_runs_beside_the_first(finished, method, weights):
    before = recorded_values(finished)
    file = change(finished, {"retraining": {"method": method, "name": "another", "steps": 1}, "stop.evaluations": 1})
    assert len(run_here(file)) == 3
    after = recorded_values(finished)
    assert {key: after[key] for key in before} == before
    assert {key[0] for key in after} == {"sparsified", "another"}
    with Ledger.open(finished / "results/ledger.db") as ledger:
        assert [len(recipe.weights) for recipe in ledger.recipes("tiny")] == [64, weights]


FAILING_PROPERTIES = '''
class Moody:
    """Fails at its fourth and seventh image set; the first two are the endpoints."""
    calls = 0

    def measure(self, images):
        self.calls += 1
        if self.calls in (4, 7):
            raise RuntimeError("not today")
        return float(images.mean())

class Never:
    def measure(self, images):
        raise RuntimeError("never")
'''


def test_a_property_that_fails_costs_only_its_own_credits(tmp_path):
    (tmp_path / "failing_properties.py").write_text(FAILING_PROPERTIES)
    names = ["failing_properties:Moody", "failing_properties:Never", "colourfulness"]
    file = write_small(tmp_path, {"properties": names})
    assert {evaluation.status for evaluation in run_here(file)} == {"done"}
    failed = [key[3] for key, value in recorded_values(tmp_path).items() if value is None]
    assert sorted(failed) == ["Moody"] * 2 + ["Never"] * 10
    errors = rows(tmp_path, "SELECT error FROM property_values WHERE error <> ''")
    assert {error.splitlines()[-1] for (error,) in errors} == {"RuntimeError: not today", "RuntimeError: never"}
    with pytest.warns(DiffcreditWarning, match="^Never: no credits: empty: no value of the empty coalition"):
        moody, colourful = credit_tables(Study.load(file))
    assert (moody.property, moody.evaluations, moody.failed) == ("Moody", 6, 2)
    assert (colourful.property, colourful.evaluations, colourful.failed) == ("colourfulness", 8, 0)


FRAGILE_RETRAINING = '''
from pathlib import Path
from diffcredit.retraining.fine_tune import FineTune

class Fragile(FineTune):
    """Fails for coalitions without the first contributor while the file ``broken`` lies beside it."""

    def models_for(self, coalitions, seeds):
        for coalition, seed in zip(coalitions, seeds):
            if coalition.any() and not coalition[0] and Path(__file__).with_name("broken").exists():
                raise RuntimeError("the GPU is on fire")
            yield from super().models_for(coalition[None], [seed])
'''


def test_a_failed_evaluation_is_recorded_and_tried_again(tmp_path):
    (tmp_path / "fragile_retraining.py").write_text(FRAGILE_RETRAINING)
    (tmp_path / "broken").touch()
    retraining = {"method": "fragile_retraining:Fragile", "steps": 1}
    file = write_small(tmp_path, {"retraining": retraining, "stop.evaluations": 5})
    schedule = Study.load(file).schedule()
    tasks = [*schedule.endpoints, *schedule.coalitions()]
    doomed = [task for task in tasks if task.coalition[0] == "0" and "1" in task.coalition]
    assert 0 < len(doomed) < len(tasks)

    run_here(file)
    assert sorted(statuses(tmp_path)) == ["done"] * (len(tasks) - len(doomed)) + ["failed"] * len(doomed)
    assert len(recorded_values(tmp_path)) == len(tasks) - len(doomed)
    errors = rows(tmp_path, "SELECT error FROM evaluations WHERE status = 'failed'")
    assert {error.splitlines()[-1] for (error,) in errors} == {"RuntimeError: the GPU is on fire"}

    run_here(file)  # still broken: a second attempt of each
    assert statuses(tmp_path).count("failed") == 2 * len(doomed)

    (tmp_path / "broken").unlink()
    again = run_here(file)
    assert sorted(evaluation.coalition for evaluation in again) == sorted(task.coalition for task in doomed)
    assert len(recorded_values(tmp_path)) == len(tasks)
    assert statuses(tmp_path).count("failed") == 2 * len(doomed)
    (table,) = credit_tables(Study.load(file))
    assert (table.evaluations, table.failed) == (5, 0)


DUCK = '''
class Duck:
    """Has the methods of a retraining and inherits from nothing."""

    def prepare(self, context):
        self.weights = context.base.fingerprint

    def rehearse(self, start, training, contributions): ...

    def models_for(self, coalitions, seeds): ...
'''


def test_a_retraining_that_inherits_from_nothing_gets_the_optional_members(tmp_path):
    (tmp_path / "duck_retraining.py").write_text(DUCK)
    retraining = Study.load(write_small(tmp_path, {"retraining": {"method": "duck_retraining:Duck"}})).recipe.retraining
    assert (len(retraining.weights), retraining.at_once, retraining.fine_tunes) == (64, 1, True)


def test_a_study_travels_as_its_settings(tmp_path):
    study = Study.load(write_small(tmp_path))
    assert len(study.contributions.images) == 18
    twin = copy.copy(study)  # by way of __reduce__, as a worker gets it
    assert twin.config == study.config
    assert set(vars(twin)) == {"config", "file", "progress", "name", "folder", "checked", "compared"}
    assert len(ForkingPickler.dumps(study.recipe.evaluator)) < 10_000


def test_another_source_loads_from_a_study_file(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", images=images, label=np.arange(12) % 2)
    section = {"path": "data.npz", "contributor": "label", "resolution": 16, "holdout": 0.2}
    contributions = Study.load(write_study(tmp_path, {"contributions": section})).contributions
    assert (contributions.n, len(contributions.images), len(contributions.heldout)) == (2, 10, 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"properties": ["colorfulness"]}, "properties.0: 'colorfulness' is unknown; accepted: colourfulness, "),
        ({"properties": [{"name": "cluster_entropy", "clusters": 5}]}, "properties.0: cluster_entropy.clusters: 5 "),
        ({"properties": ["heldout_loss"]}, "properties.0: heldout_loss: the study keeps no images out"),
        ({"contributions": {"path": "nowhere"}}, "contributions: {folder}/nowhere: does not exist"),
        ({"contributions": {"source": "openmojis"}}, "contributions: source: 'openmojis'; auto, folders, "),
        ({"contributions.resolution": 18}, "contributions.resolution: 18 does not fit model.preset 'tiny'"),
        ({"contributions.resolution": 4096}, "contributions: resolution: 4096; 4 to 1024 pixels are accepted"),
        ({"retraining.parameters": 0.001}, "retraining: parameters: "),
        ({"retraining.parameters": 1.5}, "retraining.parameters: 1.5 is not accepted; "),
        (
            {"validation": {"retrainings": [{"method": "fine_tune"}, {"method": "lora", "stepz": 1}]}},
            "validation.retrainings.1.stepz: unknown; lora accepts steps, ",
        ),
        (
            {"validation": {"retrainings": [{"method": "sparsified", "name": "lean", "parameters": 0.001}]}},
            "validation.retrainings.0: parameters: ",
        ),
        ({"retraining.stepz": 1}, "retraining.stepz: unknown; sparsified accepts steps, batch_size, "),
        ({"retraining.method": "loar"}, "retraining: 'loar' is unknown; accepted: from_scratch, fine_tune, "),
        ({"design.distribution": "exhaustive", "stop.evaluations": 5000}, "stop.evaluations: coalitions 0 to 5000: "),
        ({"stop": {"any": [{"hours": 1}, {"top": {"k": 3}}]}}, "stop: top.k: 3 of 3 contributors; fewer than all"),
        ({"model.presets": "x"}, "model.presets: unknown; ddpm accepts preset, pretrained"),
        ({"model.preset": "huge"}, "model.preset: 'huge' is unknown; accepted: tiny, mini, light, small, ddpm-cifar, "),
        ({"model.family": "gan"}, "model: 'gan' is unknown; accepted: ddpm, latent, lora, or a plug-in"),
        ({"model.preset": None}, "model: {{}} is not accepted by ddpm; exactly one of preset and pretrained"),
        ({"model.family": "latent"}, "model: {{'preset': 'tiny'}} is not accepted by latent; autoencoder is missing"),
        ({"sampling.guidance": 3.0}, "sampling.guidance: this model follows nothing"),
    ],
)
def test_mistakes_show_before_anything_is_trained(tmp_path, changes, said):
    file = write_small(tmp_path, {"retraining": CONFIG["retraining"], **changes})
    with pytest.raises(UserError) as raised:
        run_here(file)
    assert str(raised.value).startswith(f"{file}: {said.format(folder=tmp_path)}")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "results").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"device: 'cuda:1', but torch sees no CUDA devices here; accepted: auto, cpu"):
        run_here(write_study(tmp_path, {"device": "cuda:1"}))


def test_looking_leaves_nothing_behind(tmp_path):
    study = Study.load(write_study(tmp_path))
    assert study.schedule().finished == 0
    with pytest.raises(UserError, match=r"ledger\.db: there is no ledger"):
        study.credits()
    assert files_below(tmp_path) == {"study.yaml"}


def test_a_ledger_file_lies_where_the_study_file_says(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    study = Study.load(write_study(tmp_path, {"ledger": "records/all.db"}))
    study.ledger().close()
    assert files_below(tmp_path) == {"study.yaml", "records/all.db"}


DRAWN = {**SMALL, "contributions": {"path": "images", "resolution": 16, "draw": 2, "holdout": 0.5}}


def test_seeds_of_data_model_and_evaluations(tmp_path):
    """Each seed fixes its own part; where a section names none, the study's does."""

    def parts(**changes):
        study = Study.load(write_small(tmp_path, {**DRAWN, **changes}, "ada bob cem dan"))
        start = study.prepared.start().fingerprint, study.prepared.start_and_seed()[1]
        return study.contributions.fingerprint, (study.prepared.base_identity, *start), study.recipe.settings

    data, model, recipe = parts()
    assert parts(**{"contributions.seed": 0, "model.seed": 0}) == (data, model, recipe)  # as if nothing were said
    assert "seed" not in recipe["model"]
    others = [parts(**{"contributions.seed": seed})[0] for seed in range(1, 5)]
    assert parts(seed=3)[0] == others[2] != data
    assert len({data, *others}) == 5
    moved = parts(**{"seed": 3, "contributions.seed": 0, "model.seed": 0})
    assert (moved[0], moved[1]) == (data, model)
    assert differences(recipe, moved[2]) == ["model.seed (absent) → 0", "seed 0 → 3"]
    by_model = parts(**{"model.seed": 3})
    assert by_model[0] == data
    assert all(now != before for now, before in zip(by_model[1], model, strict=True))
    assert differences(recipe, by_model[2]) == ["model.seed (absent) → 3"]
