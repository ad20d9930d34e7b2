import csv
import shutil

import numpy as np
import pytest
from scipy.stats import spearmanr

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.errors import UserError
from diffcredit.study.manifest import enter_terms
from diffcredit.study.study import Study
from diffcredit.validation.compare import compare_studies, comparison_csv, difference_half_width
from diffcredit.validation.data import ValidationData
from planted_study import additive, plant
from validated_study import WEIGHTS, record, validated

NAMES = ("ann", "bob", "cy", "dee", "eve", "fay", "gus", "hal", "=ida", "jo")
A = np.array([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
B = np.array([9.0, 0.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 8.0])  # bob and jo change places


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A study of ten, and one of the first nine in another order with one more, each with noise 0.1."""
    tmp_path = tmp_path_factory.mktemp("two")
    a = plant(tmp_path / "a", NAMES, {"fid": additive(A, 0.1), "only": additive(A)})
    names = ("new", *NAMES[:0:-1])
    b = plant(tmp_path / "b", names, {"fid": additive([1.5, *B[:0:-1]], 0.1, 1)}, steps=5, evaluations=60)
    return str(a), str(b)


def test_the_planted_difference_is_found(two):
    found = compare_studies(*two)
    assert (found.only_a, found.only_b) == (("ann",), ("new",))
    assert "retraining.steps 1 → 5" in found.differing
    (fid,) = found.properties
    assert (fid.property, fid.higher_is_better, fid.evaluations) == ("fid", True, (40, 60))
    rows = {row.contributor: row for row in fid.rows}
    assert next(iter(rows)) == "bob"  # most helpful in a
    assert set(rows) == set(NAMES[1:])
    for name, a, b in zip(NAMES[1:], A[1:], B[1:], strict=True):
        row = rows[name]
        assert (row.a.value, row.b.value) == pytest.approx((a, b), abs=0.15)
        assert row.difference.value == pytest.approx(row.b.value - row.a.value)
        # two independent errors: wider than either interval, narrower than both together
        widths = [each.high - each.low for each in (row.a, row.b, row.difference)]
        assert max(widths[:2]) < widths[2] < sum(widths[:2])
    assert [row.contributor for row in fid.rows if row.apart] == ["bob", "jo"]
    assert {"bob", "jo"} <= {row.contributor for row in fid.rows if row.differs}
    assert (rows["bob"].rank_a, rows["bob"].rank_b, rows["jo"].rank_a, rows["jo"].rank_b) == (1, 9, 9, 1)
    truth = spearmanr(A[1:], B[1:]).statistic
    assert fid.correlation == pytest.approx(truth)
    assert fid.true_correlation.low <= truth + 1e-9
    assert fid.true_correlation.high >= truth - 1e-9
    assert (fid.top, fid.shared_top) == (2, 1)  # bob and cy; jo and cy


def test_the_difference_covers_at_its_rate():
    """Pure arithmetic on the intervals of the two: of unshrunk credits with normal noise nine in ten at 90 %."""
    covered = []
    for seed in range(15):
        both = []
        for side, weights in enumerate((A, B)):
            coalitions = make_design("uniform", 2 * seed + side).draw(10, 0, 60)
            game = additive(weights, 1.0, 2 * seed + side)
            values = [game(row) for row in coalitions]
            ends = {"empty": 0.0, "full": float(weights.sum())}
            both.append(estimate(coalitions, values, **ends, method="unshrunk", confidence=0.9))
        half = difference_half_width(*both, np.arange(10), np.arange(10))
        covered += (np.abs(both[1].values - both[0].values - (B - A)) <= half).tolist()
    assert 0.82 < np.mean(covered) < 0.97


def test_where_less_is_better_the_most_negative_is_first(tmp_path):
    a = plant(tmp_path / "a", NAMES, {"fid": additive(-A)}, lower=["fid"])
    b = plant(tmp_path / "b", NAMES, {"fid": additive(-B)}, lower=["fid"])
    (fid,) = compare_studies(str(a), str(b)).properties
    assert fid.rows[0].contributor == "ann"
    assert (fid.top, fid.shared_top) == (2, 1)
    assert fid.correlation == pytest.approx(spearmanr(A, B).statistic)


def test_two_recipes_of_one_study(tmp_path):
    file = plant(tmp_path / "a", NAMES, {"fid": additive(A)})
    plant(tmp_path / "a", NAMES, {"fid": additive(2 * A)}, recipe="fine_tune")
    found = compare_studies(str(file.parent), f"{file}:fine_tune")
    rows = {row.contributor: row for row in found.properties[0].rows}
    assert [rows[name].difference.value for name in NAMES] == pytest.approx(A, abs=1e-6)
    assert 'retraining.method "sparsified" → "fine_tune"' in found.differing


def test_equal_credits_have_no_order(tmp_path):
    a = plant(tmp_path / "a", NAMES, {"fid": additive([0.1] * 10)})
    b = plant(tmp_path / "b", NAMES, {"fid": additive(B)})
    (fid,) = compare_studies(str(a), str(b)).properties
    assert {row.rank_a for row in fid.rows} == {1}
    assert np.isnan([fid.correlation, fid.true_correlation.value]).all()
    assert (fid.top, fid.shared_top) == (2, 2)


def test_csv(two, tmp_path):
    text = comparison_csv(compare_studies(*two))
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["contributor"] for row in rows][:2] == ["bob", "cy"]
    assert "'=ida" in [row["contributor"] for row in rows]
    bob = rows[0]
    assert float(bob["credit_a"]) == pytest.approx(8, abs=0.15)
    assert float(bob["difference_low"]) < -7.9 < float(bob["difference_high"]) + 0.2
    assert (bob["property"], bob["rank_a"], bob["rank_b"], bob["differs"], bob["apart"]) == (
        "fid",
        "1",
        "9",
        "yes",
        "yes",
    )


def test_what_cannot_be_compared(two, tmp_path):
    a, b = two
    with pytest.raises(UserError, match="one and the same recipe 'tiny:sparsified'; two are needed"):
        compare_studies(a, f"{a}:sparsified")
    with pytest.raises(UserError, match=r"has no recipe 'lora'; there is 'sparsified'"):
        compare_studies(a, f"{b}:lora")
    other = plant(tmp_path / "c", [f"c{i}" for i in range(10)], {"fid": additive(A)})
    with pytest.raises(
        UserError, match="no contributor is in both; they have ann, bob, cy, dee, eve and 5 more, and c0"
    ):
        compare_studies(a, str(other))
    other = plant(tmp_path / "d", NAMES, {"fid": additive(A)}, lower=["fid"])
    with pytest.raises(UserError, match="no property has credits in both; they have fid, only, and fid"):
        compare_studies(a, str(other))
    (tmp_path / "d" / "results" / "ledger.db").unlink()
    with pytest.raises(UserError, match=r"d/study\.yaml: .*ledger"):
        compare_studies(a, str(other))


def test_designs_of_other_methods_answer_other_questions(tmp_path):
    changes = {"design": {"distribution": "leave-one-out", "full_replicates": 2}, "stop": {"evaluations": 8}}
    data = ValidationData(Study.load(validated(tmp_path / "a", changes)))
    for each in data.recipes:
        record(each, data.design(each).tasks, {"colourfulness": additive(WEIGHTS)})
    file = str(data.study.file)
    found = compare_studies(file, f"{file}:from_scratch")
    assert found.method == "leave-one-out"
    assert [row.a.value for row in found.properties[0].rows] == pytest.approx(sorted(WEIGHTS, reverse=True))
    other = plant(tmp_path / "b", NAMES, {"colourfulness": additive(A)})
    with pytest.raises(UserError, match=r"credits by leave-one-out and by shapley, .* answer different questions"):
        compare_studies(file, str(other))


def test_another_reference_is_another_level_alone(small, tmp_path):
    other = shutil.copytree(small, tmp_path / "other")
    with (other / "study.yaml").open("a", encoding="utf-8") as file:
        file.write("reference: {colourfulness: 5}\n")
    study = Study.load(other)
    with study.ledger() as ledger:
        enter_terms(study, ledger)
    found = compare_studies(str(small), str(other))
    assert found.differing == ('reference "untrained" → {"colourfulness":5.0}',)
    (differences,) = [{round(row.b.value - row.a.value, 9) for row in each.rows} for each in found.properties]
    assert len(differences) == 1
