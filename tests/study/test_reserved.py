"""Which coalitions are truth's, and that no study's design evaluates them."""

from collections import Counter
from math import comb

import pytest

from diffcredit.coalitions import encode
from diffcredit.study.config import StudyConfig
from diffcredit.study.reserved import reserved, truth_coalitions, truth_tasks
from diffcredit.study.schedule import Schedule
from tiny_study import CONFIG, changed

N = 8


def config(validation, **changes):
    return StudyConfig.model_validate(changed(CONFIG, {"validation": validation, **changes}))


def texts(rows):
    return [encode(row) for row in rows]


def design_of(settings, n=N):
    """The coalitions that the study evaluates, in their order."""
    schedule = Schedule(settings, n, {}, lambda some: {})
    return [task.coalition for task in schedule.coalitions()]


@pytest.mark.parametrize(
    ("share", "n", "size"), [(0.25, 8, 2), (0.5, 8, 4), (0.5, 31, 16), (0.01, 8, 1), (0.99, 8, 7), (0.5, 2, 1)]
)
def test_as_many_as_asked_for_and_at_most_half_of_a_size(share, n, size):
    rows = truth_coalitions(config({"coalitions": 12}), n, share)
    assert set(rows.sum(axis=1)) == {size}
    assert len(set(texts(rows))) == len(rows) == max(1, min(12, comb(n, size) // 2))


def test_more_coalitions_go_on_where_fewer_ended():
    few, many = (truth_coalitions(config({"coalitions": count}), N, 0.5) for count in (12, 30))
    assert texts(few) == texts(many)[:12]


def test_they_follow_from_the_study_seed_alone():
    section = {"coalitions": 12}
    truth = texts(reserved(config(section), N))
    assert truth == texts(reserved(config(section, **{"design.seed": 3, "name": "other"}), N))
    assert truth != texts(reserved(config(section, seed=1), N))


@pytest.mark.parametrize("distribution", ["uniform", "permutation"])
def test_the_design_leaves_them_out(distribution):
    changes = {"design.distribution": distribution, "stop.evaluations": 500}
    validated = config({"coalitions": 12}, **changes)
    truth = set(texts(reserved(validated, N)))
    assert len(truth) == 36
    evaluated = design_of(validated)
    assert len(evaluated) == 500
    assert not truth & set(evaluated)
    assert truth & set(design_of(StudyConfig.model_validate(changed(CONFIG, changes))))  # who has no validation, meets


def test_the_design_is_the_same_as_far_as_it_meets_none():
    changes = {"stop.evaluations": 60}
    plain, validated = StudyConfig.model_validate(changed(CONFIG, changes)), config({"coalitions": 12}, **changes)
    n = 31  # of so many coalitions, few are truth's
    truth = set(texts(reserved(validated, n)))
    without, with_truth = design_of(plain, n), design_of(validated, n)
    met = next((place for place, each in enumerate(without) if each in truth), len(without))
    assert met > 20
    assert with_truth[:met] == without[:met]


@pytest.mark.parametrize("distribution", ["exhaustive", "leave-one-out", "add-one-in"])
def test_a_design_that_needs_all_of_its_coalitions_keeps_them(distribution):
    settings = config({"coalitions": 12}, **{"design.distribution": distribution, "stop.evaluations": 1000})
    assert reserved(settings, N).shape == (0, N)
    assert len(set(design_of(settings))) == {"exhaustive": 2**N - 2}.get(distribution, N)
    assert len(reserved(StudyConfig.model_validate(CONFIG), N)) == 0  # without validation, neither


def test_all_with_the_first_seed_come_before_the_next():
    tasks = truth_tasks(config({"coalitions": 12, "seeds": 3, "shares": [0.5]}), N)
    assert len(tasks) == 36
    assert {task.purpose for task in tasks} == {"truth"}
    replicates = [task.replicate for task in tasks]
    assert replicates == sorted(replicates)
    assert set(Counter(task.coalition for task in tasks).values()) == {3}
    assert len({task.key for task in tasks}) == 36


def test_shares_of_one_size_are_retrained_once():
    tasks = truth_tasks(config({"coalitions": 12, "seeds": 1, "shares": [0.49, 0.5]}), N)
    assert len({task.key for task in tasks}) == len(tasks)


def test_a_share_with_too_few_for_an_interval_is_not_retrained():
    tasks = truth_tasks(config({"coalitions": 100, "seeds": 1}), 6)  # half of 15, 20 and 15
    sizes = Counter(task.coalition.count("1") for task in tasks)
    assert sizes == {3: 10}
    assert truth_tasks(config({"coalitions": 9}), N) == []
