"""The runner of studies/cifar20-h200, on a study that takes seconds."""

import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from diffcredit.execution import Task
from diffcredit.execution.tasks import failed_evaluation, utc_now
from diffcredit.study.config import read_config
from diffcredit.study.study import Study
from diffcredit.validation.data import ValidationData
from diffcredit.validation.parts import unlearning
from tiny_study import images_of, rows, write_study

FOLDER = Path(__file__).parents[2] / "studies" / "cifar20-h200"
NAMES = ["ada", "bob", "cem", "dan", "eve", "fay", "gus", "hal"]
SMALL = {
    "contributions": {"path": "images", "resolution": 16},
    "properties": ["colourfulness"],
    "surrogates": ["real_data"],
    "stop.evaluations": 12,
    "validation": {
        "shares": [0.25, 0.5, 0.75],
        "coalitions": 12,
        "evaluations": 10,
        "retrainings": [
            {"method": "fine_tune", "steps": 1},
            {"method": "soup", "steps": 1},
            {"method": "fine_tune", "name": "shorter", "steps": 1},
            {"method": "sparsified", "name": "longer", "steps": 3, "parameters": 0.5, "recover_steps": 1},
        ],
    },
}


@pytest.fixture
def work(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import work

    monkeypatch.setattr(work, "OTHERS", 10)
    yield work
    sys.modules.pop("work", None)


@pytest.fixture
def file(tmp_path):
    images_of(tmp_path / "images", NAMES, each=2)
    return write_study(tmp_path, SMALL)


def run(work, monkeypatch, file: Path, minutes: float, part: str = "1/1") -> None:
    options = {"--study": str(file), "--minutes": str(minutes), "--part": part}
    monkeypatch.setattr(sys, "argv", ["work.py", *(each for option in options.items() for each in option)])
    work.main()


def test_what_matters_most_comes_first(work, file):
    contest = ValidationData(Study.load(file))
    first, own, fine_tuned, scratch, others, *rest = work.pieces(contest)
    assert {task.coalition.count("1") for task in first.tasks} == {4}
    assert len(first.tasks) == 12 * 2
    assert Counter(task.coalition.count("1") for task in others.tasks) == {2: 10 * 2, 6: 10 * 2}
    seeds = Counter(task.coalition for task in others.tasks)
    assert set(seeds.values()) == {2}
    assert [each.recipe.name for each in (own, fine_tuned, scratch)] == ["sparsified", "fine_tune", "from_scratch"]
    left_out = ["sparsified", "fine_tune", "soup"]
    assert [each.recipe.name for each in rest] == [
        *left_out,
        "soup",
        "shorter",
        "longer",
        "from_scratch",
        "sparsified",
    ]
    assert {task.coalition for task in rest[-1].tasks} == {task.coalition for task in first.tasks}


def test_a_fleet_is_begun_only_if_it_will_be_done(work, tmp_path):
    clock = work.time.monotonic()
    turns = work.Turns(work.FileLock(tmp_path / "turn"), until=clock + 100)
    with turns.turn("short", first=50):
        pass
    for recipe, first in (("unknown", 150), ("long", 0)):
        turns.paces |= {"long": 200.0}
        with pytest.raises(work.TimeIsUp), turns.turn(recipe, first):
            pytest.fail("begun")
        assert not turns.lock.is_locked
    with turns.turn("short", first=150):  # known by now to take no time
        assert turns.lock.is_locked


def test_fleets_are_full_but_for_a_recipes_last(work, file, monkeypatch):
    given, done = [], set()

    def evaluate(recipe, executor, tasks, what):
        given.append((recipe.name, len(tasks)))
        done.update((recipe.name, task) for task in tasks)
        return iter(())

    monkeypatch.setattr(work, "evaluate_tasks", evaluate)
    monkeypatch.setattr(
        work.PartWork, "missing", lambda self: [task for task in self.tasks if (self.recipe.name, task) not in done]
    )
    run(work, monkeypatch, file, 60)
    for recipe in ("sparsified", "fine_tune", "soup", "shorter", "longer", "from_scratch"):
        counts = [count for name, count in given if name == recipe]
        assert all(count % work.FLEET == 0 for count in counts[:-1])
    assert sum(count for name, count in given if name == "from_scratch") == 24 + 12 + 40 + 8


@pytest.mark.slow
def test_all_of_it_once(work, file, tmp_path, monkeypatch):
    run(work, monkeypatch, file, 0)
    assert rows(tmp_path, "SELECT count(*) FROM evaluations") == [(0,)]
    run(work, monkeypatch, file, 60, "2/3")
    ((some,),) = rows(tmp_path, "SELECT count(*) FROM evaluations WHERE purpose = 'truth'")
    assert some == 12 * 2 / 3 + (2 * 10 * 2) // 3  # the second, fifth, … of each list
    run(work, monkeypatch, file, 60)
    found = rows(
        tmp_path,
        "SELECT recipes.name, purpose, count(*) FROM evaluations JOIN recipes ON recipe_id = recipes.id "
        "WHERE status = 'done' GROUP BY recipes.name, purpose",
    )
    recipes = ("sparsified", "fine_tune", "soup", "from_scratch")
    assert sorted(found) == sorted(
        [
            *((name, "estimate", 12 if name == "sparsified" else 10) for name in recipes),
            *((name, "endpoint", 2) for name in recipes),
            *((name, "validation", 8 + 12 * (name == "sparsified")) for name in recipes),
            ("from_scratch", "truth", 12 * 2 + 2 * 10 * 2),
            *((name, "endpoint", 2) for name in ("longer", "shorter")),
            *((name, "estimate", 10) for name in ("longer", "shorter")),
        ]
    )
    run(work, monkeypatch, file, 0)
    assert rows(tmp_path, "SELECT count(*) FROM evaluations") == [(sum(count for *_, count in found),)]


def test_surrogates_before_anything_is_evaluated(work, file, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["work.py", "--study", str(file), "--surrogates"])
    work.main()
    study = Study.load(file)
    with study.ledger(create=False) as ledger:
        entries = [each.content for each in ledger.entries(study.name, "surrogate")]
    known = {text for each in entries for text in each["values"] or ()}
    tasks = ValidationData(study).design(study.recipe).tasks
    assert {task.coalition for task in tasks if task.purpose == "estimate"} <= known
    assert study.evaluations() == []


def test_of_a_design_nothing_else_is_evaluated(work, file, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["work.py", "--study", str(file), "--design"])
    work.main()
    found = rows(tmp_path, "SELECT purpose, count(*) FROM evaluations WHERE status = 'done' GROUP BY purpose")
    assert sorted(found) == [("endpoint", 2), ("estimate", 12)]


@pytest.mark.slow
def test_of_evidence_what_it_rests_on(work, tmp_path, monkeypatch):
    images_of(tmp_path / "images", NAMES, each=2)
    file = write_study(tmp_path, SMALL | {"validation": {"shares": [0.5], "coalitions": 12}})
    Study.load(file).prepare()
    monkeypatch.setattr(
        sys, "argv", ["work.py", "--study", str(file), "--evidence", "unlearning", "--properties", "colourfulness"]
    )
    work.main()
    contest = ValidationData(Study.load(file))
    assert all(each.missing() == [] for each in unlearning.work(contest))
    assert rows(tmp_path, "SELECT DISTINCT purpose FROM evaluations") == [("validation",)]
    recorded = rows(tmp_path, "SELECT count(*) FROM evaluations")
    shutil.rmtree(tmp_path / "results" / "kept")  # the images lay on a machine that is gone
    assert unlearning.work(contest)[0].without_images()
    work.main()
    assert all(each.without_images() == [] for each in unlearning.work(contest))
    assert rows(tmp_path, "SELECT count(*) FROM evaluations") == recorded


def test_what_is_one_fleet_stays_together(work):
    tasks = [Task("10", replicate, "validation") for replicate in range(40)]
    whole = [work.PartWork(None, tasks[:9], name) for name in "abc"]
    every = [work.PartWork(None, tasks, "large"), *whole, work.PartWork(None, tasks[:24], "last")]
    first, second = (work.shared_out(every, work.part_of(part)) for part in ("1/2", "2/2"))
    assert [each.what for each in first] == ["large", "a", "c", "last"]
    assert [each.what for each in second] == ["large", "b", "last"]
    assert [len(each.tasks) for each in first] == [20, 9, 9, 12]
    for own, other, all_of_it in ((first[0], second[0], every[0]), (first[-1], second[-1], every[-1])):
        assert sorted([*own.tasks, *other.tasks], key=lambda task: task.replicate) == all_of_it.tasks
    assert [each.tasks for each in work.shared_out(every, slice(None))] == [each.tasks for each in every]


def test_the_papers_draws_are_all_that_is_other_there():
    own, drawn = (read_config(FOLDER / name) for name in ("study.yaml", "paper.yaml"))
    for part in ("contributions", "model", "retraining", "sampling", "properties", "seed"):
        assert getattr(own, part) == getattr(drawn, part)
    assert drawn.design.distribution == "kernel"
    assert drawn.validation is not None
    assert own.validation is not None
    for setting in ("shares", "coalitions", "seeds"):  # so that no truth is among them
        assert getattr(own.validation, setting) == getattr(drawn.validation, setting)
    assert drawn.artifacts == str(own.results)


def test_only_one_trains_at_a_time_and_measures_while_another_does(work, tmp_path):
    turn = work.FileLock(tmp_path / "turn")
    failed = failed_evaluation(Task("01", 1, "truth"), "no memory", "w", utc_now())

    class Source:
        def observe(self, tasks, properties):
            for task in tasks:
                assert turn.is_locked
                yield failed if task.replicate else task.coalition

    class Evaluator:
        at_once, source, properties = 3, Source(), ()

        def measure(self, observed):
            assert not turn.is_locked
            return f"measured {observed}"

    shared = work.InTurn(Evaluator(), lambda: turn)
    assert shared.at_once == 3
    tasks = [Task("10", 0, "truth"), Task("01", 1, "truth"), Task("11", 0, "truth")]
    assert list(shared.evaluate(tasks)) == ["measured 10", failed, "measured 11"]


def test_parts_that_there_are(work):
    tasks = list(range(7))
    assert [tasks[work.part_of(f"{number}/3")] for number in (1, 2, 3)] == [[0, 3, 6], [1, 4], [2, 5]]
    for wrong in ("0/3", "4/3", "3", "a/b"):
        with pytest.raises(ValueError, match=r".*"):
            work.part_of(wrong)
