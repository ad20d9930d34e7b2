"""The runner of studies/cifar20-paper, on a study that takes seconds."""

import shutil
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from diffcredit.study import Study
from diffcredit.study.recipe import Recipe
from diffcredit.study.sections import ValidationSection
from tiny_study import images_of, write_study

FOLDER = Path(__file__).parents[2] / "studies" / "cifar20-paper"
NAMES = ["ada", "bob", "cem", "dan", "eve", "fay", "gus", "hal"]
SMALL = {
    "contributions": {"path": "images", "resolution": 16},
    "properties": ["colourfulness", {"name": "nearest_distance"}],  # the second is fitted
    "stop.evaluations": 6,
    "validation": {
        "shares": [0.25, 0.5, 0.75],
        "coalitions": 12,
        "evaluations": 5,
        "retrainings": [{"method": "fine_tune", "steps": 1}],
    },
}


@pytest.fixture
def work(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import work

    for name, value in {"FEW": 3, "MORE": 4, "SPARSIFIED": 4, "FINE_TUNED": 3, "FROM_SCRATCH": 2}.items():
        monkeypatch.setattr(work, name, value)
    yield work
    sys.modules.pop("work", None)


@pytest.fixture
def only_truth(work, monkeypatch):
    """Only the first piece: three truth models, without a base model."""
    monkeypatch.setattr(work, "BASE", 1e6)
    monkeypatch.setattr(work, "pieces", lambda data: iter([work.truth(data, 0.5, 0, slice(3))]))


@pytest.fixture
def file(tmp_path):
    images_of(tmp_path / "images", NAMES, each=2)
    return write_study(tmp_path, SMALL)


def run(work, monkeypatch, file: Path, minutes: float, *more: str) -> None:
    monkeypatch.setattr(sys, "argv", ["work.py", "--study", str(file), "--minutes", str(minutes), *more])
    work.main()


def done(file: Path) -> dict[str, Counter[str]]:
    """How many evaluations each recipe has, by their purpose."""
    with Study.load(file).ledger(create=False) as ledger:
        (study,) = ledger.studies()
        return {
            recipe.name: Counter(each.purpose for each in ledger.evaluations(study, recipe.name, status="done"))
            for recipe in ledger.recipes(study)
        }


def left(capsys) -> list[int]:
    """Of each piece, how many evaluations the runner says are left."""
    lines = [line for line in capsys.readouterr().out.splitlines() if line.endswith(" left")]
    return [int(line.rsplit(": ", 1)[1].split()[0]) for line in lines]


def test_truth_comes_first_and_needs_no_base_model(work, monkeypatch, file, tmp_path, capsys):
    """And its values are those of a study with a base model."""
    monkeypatch.setattr(work, "BASE", 1e6)
    run(work, monkeypatch, file, 60)
    assert done(file) == {"from_scratch": {"truth": 13, "estimate": 2, "endpoint": 2}}
    assert not Study.load(file).prepared.has_base
    assert left(capsys) == [0, 6, 5, 0, 0, 0, 0, 0]
    other = tmp_path / "other"
    shutil.copytree(file.parent, other, ignore=shutil.ignore_patterns("results", "other"))
    with_base = property(lambda self: Recipe(self.study, ValidationSection().truth, 1))
    monkeypatch.setattr(work.Runner, "from_scratch", with_base)
    monkeypatch.setattr(work, "pieces", lambda data: iter([work.truth(data, 0.5, 0, slice(3))]))
    run(work, monkeypatch, other / file.name, 60)

    def recorded(study):
        with study.ledger(create=False) as ledger:
            truth = ledger.evaluations(study.name, "from_scratch", purpose="truth")
            (recipe,) = (each for each in ledger.recipes(study.name) if each.name == "from_scratch")
            return ledger.properties(study.name), recipe, [(each.key, each.values) for each in truth[:3]]

    assert recorded(Study.load(file)) == recorded(Study.load(other / file.name))


def test_what_would_not_finish_is_not_begun(work, monkeypatch, file, capsys):
    run(work, monkeypatch, file, 1)
    assert done(file) == {"from_scratch": {}}
    assert left(capsys) == [3, 6, 5, 3, 4, 1, 3, 3]


def test_a_run_goes_on_from_a_copy_of_the_ledger(work, only_truth, monkeypatch, file, capsys):
    evaluated = []
    monkeypatch.setattr(work, "tell", lambda recipe, evaluation: evaluated.append(evaluation))
    with monkeypatch.context() as stopped:
        stopped.setattr(work.Runner, "left", lambda self: 1e4 if len(evaluated) < 2 else 0.0)
        run(work, stopped, file, 60)
    assert done(file) == {"from_scratch": {"truth": 2}}
    ledger, copy = Study.load(file).folder / "ledger.db", file.with_name("copy.db")
    with closing(sqlite3.connect(ledger)) as connection:
        connection.execute("VACUUM INTO ?", [str(copy)])
    shutil.rmtree(ledger.parent)
    ledger.parent.mkdir()
    copy.rename(ledger)
    run(work, monkeypatch, file, 60)
    assert left(capsys) == [1, 0]
    assert len(evaluated) == len({each.key for each in evaluated}) == 3


@pytest.mark.slow
def test_all_of_it_with_fleets(work, monkeypatch, file, capsys):
    run(work, monkeypatch, file, 60, "--fleet", "2")
    assert left(capsys) == [0] * 8
    assert done(file) == {
        "from_scratch": {"truth": 13, "estimate": 2, "endpoint": 2},
        "sparsified": {"estimate": 4, "endpoint": 2},
        "fine_tune": {"estimate": 3, "endpoint": 2},
    }


def test_values_that_could_not_be_measured_are_added_later(work, only_truth, monkeypatch, file, tmp_path):
    """A file that a property needs is gone for a while: nothing more is begun, and the values are added later."""
    (tmp_path / "needy.py").write_text(
        "from pathlib import Path\n"
        "def brightness(images):\n"
        "    Path(__file__).with_name('needed').read_text()\n"
        "    return float(images.mean())\n"
    )
    file = write_study(tmp_path, SMALL | {"properties": ["colourfulness", "needy:brightness"]})
    with pytest.raises(SystemExit, match="brightness"):
        run(work, monkeypatch, file, 60)
    assert done(file) == {"from_scratch": {"truth": 1}}
    (tmp_path / "needed").touch()
    run(work, monkeypatch, file, 60, "--complete")
    study = Study.load(file)
    with study.ledger(create=False) as ledger:
        evaluations = ledger.evaluations(study.name, "from_scratch", status="done")
    assert len(evaluations) == 3
    assert all(value.value is not None for each in evaluations for value in each.values)
