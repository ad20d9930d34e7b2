"""Several processes and machines that prepare, keep and measure one study."""

import os
import re
import shutil
import signal
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import pytest
import torch

from diffcredit.cli.export import export, restore
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.errors import UserError
from diffcredit.execution import InProcess
from diffcredit.execution.threads import limited_threads
from diffcredit.study.checks import check_not_lost
from diffcredit.study.reevaluate import measure_kept, outlook
from diffcredit.study.study import Study
from diffcredit.util.artifacts import exclusive_lock
from diffcredit.util.store import Store
from running_study import BASE, read_until, running
from tiny_study import CONFIG, files_below, recorded_values, run_here, write_small, write_study

PROPERTIES = ["colourfulness", {"name": "cluster_entropy", "clusters": 2}]


class Machine:
    """A study in a folder of its own, and what it tells."""

    def __init__(self, folder: Path, changes: dict[str, object]) -> None:
        self.told: list[str] = []
        file = write_small(folder, {"retraining": CONFIG["retraining"], "properties": PROPERTIES, **changes})
        self.study = Study.load(file, lambda what, done, total: self.hear(what))

    def hear(self, what: str) -> None:
        self.told.append(what)

    def prepare(self) -> None:
        with limited_threads(1):
            self.study.prepare()


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/shared"


def test_a_second_machine_finds_what_the_first_made(tmp_path, url):
    first, second = (Machine(tmp_path / name, {"artifacts": url}) for name in "ab")
    first.prepare()
    second.prepare()
    assert {BASE, "recovering the pruned model", "fitting properties"} <= set(first.told)
    assert set(second.told) == set()
    models = [tmp_path / name / "results" / "models" for name in "ab"]
    assert files_below(models[0]) == files_below(models[1])
    for name in files_below(models[0]):
        assert (models[0] / name).read_bytes() == (models[1] / name).read_bytes()


def test_who_trains_second_takes_the_firsts(tmp_path, url):
    class Slow(Machine):
        def hear(self, what: str) -> None:
            if what == BASE and not self.told:  # in the middle of its training
                Store(url).put(tmp_path / "other", f"models/{self.study.prepared.base_folder.name}")
            super().hear(what)

    other = DDPM.create("tiny", 16, seed=99)
    (tmp_path / "other").mkdir()
    other.save(tmp_path / "other")
    slow = Slow(tmp_path / "a", {"artifacts": url})
    with limited_threads(1):
        assert slow.study.prepared.base.fingerprint == other.fingerprint
    assert BASE in slow.told


def test_a_folder_elsewhere_takes_the_place_of_the_results(tmp_path):
    machine = Machine(tmp_path / "a", {"artifacts": "../large", "keep": "images", "stop.evaluations": 1})
    with limited_threads(1):
        list(machine.study.evaluate(InProcess()))
    assert {path.name for path in (tmp_path / "large").iterdir()} == {"models", "kept", ".locks"}
    assert not {"kept", "models"} & {path.name for path in (tmp_path / "a" / "results").iterdir()}
    files = machine.study.recipe.worker_files()
    assert files.roots[tmp_path / "large"] == [tmp_path / "large" / "models"]
    assert files.written == "keep: images writes files"


def test_what_is_kept_lies_at_the_url_alone(tmp_path, url):
    changes = {"artifacts": url, "keep": "images", "stop.evaluations": 1}
    here = Machine(tmp_path / "a", changes)
    assert here.study.recipe.worker_files().written == ""
    with limited_threads(1):
        list(here.study.evaluate(InProcess()))
    assert not (tmp_path / "a" / "results" / "kept").exists()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    again = {"name": "colourfulness", "as": "again"}
    elsewhere = Machine(tmp_path / "b", changes | {"properties": [*PROPERTIES, again]})
    with limited_threads(1):
        measured = list(measure_kept(elsewhere.study, InProcess(), outlook(elsewhere.study, ["again"]).kept))
    values = recorded_values(tmp_path / "b")
    assert len(measured) >= 3
    assert {key[:3]: value for key, value in values.items() if key[3] == "again"} == {
        key[:3]: value for key, value in values.items() if key[3] == "colourfulness"
    }


HOLD = """
import sys
from pathlib import Path
from diffcredit.util.artifacts import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), lambda: print("waits", flush=True)) as waited:
    print("within", waited, flush=True)
    sys.stdin.readline()
"""


def test_a_lock_ends_with_its_holder(tmp_path):
    file = tmp_path / "locks" / "x.lock"
    arguments = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    first, second = (subprocess.Popen([sys.executable, "-c", HOLD, str(file)], **arguments) for _ in range(2))
    try:
        said = {process: process.stdout.readline() for process in (first, second)}
        assert sorted(said.values()) == ["waits\n", "within False\n"]
        holder, waiting = sorted(said, key=said.get, reverse=True)
        holder.send_signal(signal.SIGKILL)
        assert waiting.stdout.readline() == "within True\n"
        waiting.communicate("\n", timeout=30)
        assert waiting.returncode == 0
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
    with exclusive_lock(file, lambda: pytest.fail("nobody holds it")) as waited:
        assert not waited


@pytest.mark.slow
def test_of_two_runs_one_trains_and_the_other_goes_on_if_it_is_killed(tmp_path):
    file = write_study(tmp_path, {"model.train.steps": 300})  # so many that it is stopped long before its end
    with running(file, workers=1) as first:
        read_until(first, BASE, 3)
        os.killpg(first.pid, signal.SIGSTOP)  # it holds the lock however long the other takes to start
        with running(file, workers=1) as second:
            read_until(second, "another process prepares the base model", 1)
            os.killpg(first.pid, signal.SIGKILL)
            told = second.communicate(timeout=200)[0]
            assert second.returncode == 0, told
    steps = [int(done) for done in re.findall(rf"{BASE}: (\d+)/300", told)]
    assert steps[0] > 1  # it took up the other's checkpoint, and did not train beside it
    assert steps[-1] == 300


def test_two_that_measure_share_the_work(tmp_path):
    run_here(write_small(tmp_path, {"keep": "images"}))
    twice = ["colourfulness", {"name": "colourfulness", "as": "again"}]
    file = write_small(tmp_path, {"keep": "images", "properties": twice})
    studies = Study.load(file), Study.load(file)
    with limited_threads(1):
        both = [measure_kept(each, InProcess(), outlook(each, ["again"]).kept) for each in studies]
        made = [each.key for pair in zip_longest(*both) for each in pair if each]  # a step of one, a step of the other
    assert 10 <= len(made) <= 12  # alone, each would make all ten
    assert sum(key[3] == "again" for key in recorded_values(tmp_path)) == 10


def test_a_lost_base_model_is_named_before_another_is_trained_in_its_place(finished):
    study = Study.load(finished / "study.yaml")
    folder = study.prepared.base_folder
    vars(study.prepared)["device"] = torch.device("cuda")
    with study.ledger() as ledger:
        check_not_lost(study.recipe, ledger)
        shutil.rmtree(folder)
        with pytest.raises(UserError, match=f"the base model {folder.name} is missing from models/ of .*--with-models"):
            check_not_lost(study.recipe, ledger)
        vars(study.prepared)["device"] = torch.device("cpu")
        check_not_lost(study.recipe, ledger)  # a CPU makes the same again


def test_an_exported_study_with_its_models_goes_on(finished, tmp_path):
    archive, folder = tmp_path / "study.zip", tmp_path / "restored"
    export(finished, archive, with_models=True)
    restore(archive, folder)
    models = finished / "results" / "models"
    for name in files_below(folder / "models"):
        assert (folder / "models" / name).read_bytes() == (models / name).read_bytes()
    told: list[str] = []
    with limited_threads(1):
        study = Study.load(folder / "study.yaml", lambda what, done, total: told.append(what))
        study.prepare()
    assert told == []  # and the ledger took the weights for what they were
