"""The policy's entry in the ledger: when a run enters it, what fixes it, and what it binds."""

import hashlib
import json
from decimal import Decimal

import pytest
import yaml

from diffcredit.errors import UserError
from diffcredit.study.entered import enter_policy, policy_of
from diffcredit.study.study import Study
from paid_study import POLICY, evaluated, stated
from tiny_study import changed, files_below, rows, write_small

ENTRIES = "SELECT kind, name, content, entered FROM entries ORDER BY id"


def change(folder, changes):
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(changed(yaml.safe_load(file.read_text()), changes)))
    return file


def entered(folder):
    with Study.load(folder).ledger() as ledger:
        return ledger.entries("tiny", "policy")


def terms(folder):
    return [each.content["terms"] for each in entered(folder)]


def run(folder):
    """Enter the policy and what a run registers, as far as the first evaluation."""
    study = Study.load(folder)
    with study.ledger() as ledger:
        ledger.register_study(study.name, {"contributors": list(study.contributions.contributors)})
        policy, where = policy_of(study)
        return enter_policy(study, ledger, policy, where)


def test_a_run_enters_the_policy_before_anything_is_trained(tmp_path, monkeypatch):
    """Then it may still be changed; the last one counts."""
    file = write_small(tmp_path, {"payout": POLICY})
    trained = []

    def prepared(recipe):
        trained.append([json.loads(content)["terms"]["r"] for _, _, content, _ in rows(tmp_path, ENTRIES)])
        raise RuntimeError("no training today")

    monkeypatch.setattr("diffcredit.study.recipe.Recipe.record", property(prepared))
    for r in (0.4, 0.4, 0.25):
        change(tmp_path, {"payout.r": r})
        with pytest.raises(RuntimeError, match="no training today"):
            Study.load(file).prepare()
    assert trained == [["0.4"], ["0.4"], ["0.4", "0.25"]]
    assert "results/models" not in files_below(tmp_path)
    assert all(each.before_evaluations for each in entered(tmp_path))
    order = [kind for (kind,) in rows(tmp_path, "SELECT kind FROM chain ORDER BY number")]
    assert order == ["study", "entry", "entry"]
    change(tmp_path, {"payout.property": "warmth"})
    with pytest.raises(UserError, match=r"study\.yaml: payout: property: 'warmth' is no property of the study"):
        Study.load(file).prepare()
    assert len(entered(tmp_path)) == 2


def test_the_last_policy_before_the_evaluations_is_paid_by(tmp_path):
    stated(tmp_path, {"payout.r": 1})
    first = run(tmp_path)
    file = change(tmp_path, {"payout.r": 0.25})
    evaluated(file)
    made = Study.load(file).payout(pool="100.00")
    assert (made.r, made.before_evaluations) == (Decimal("0.25"), True)
    second = entered(tmp_path)[-1]
    assert (made.policy_hash, made.entered) == (second.content["hash"], second.entered)
    assert second.content["hash"] != first.content["hash"]
    with pytest.raises(UserError, match=r'r "0\.25" → "1"'):  # the first one is no longer the policy
        Study.load(change(tmp_path, {"payout.r": 1})).payout(pool="100.00", period="b")


def test_a_run_refuses_another_policy_after_evaluations(paying):
    before = rows(paying, ENTRIES)
    assert [each.before_evaluations for each in entered(paying)] == [True]
    for changes, said in (
        ({"payout.r": 0.1}, r'r "0\.4" → "0\.1"'),
        ({"payout.mix": {"colourfulness": 1}, "payout.property": None}, "mix null"),
    ):
        file = change(paying, changes)
        with pytest.raises(UserError, match=f"there are evaluations since: .*{said}.*; restore it, or start"):
            run(file)
    assert rows(paying, ENTRIES) == before


def test_without_a_policy_nothing_is_entered(tmp_path):
    evaluated(stated(tmp_path, {"payout": None}))
    assert entered(tmp_path) == []


def test_the_hash_by_hand(paying):
    (entry,) = entered(paying)
    text = json.dumps(
        [entry.content["terms"], {"kind": "untrained", "stated": {}}], sort_keys=True, separators=(",", ":")
    )
    assert entry.content["hash"] == hashlib.sha256(text.encode()).hexdigest()
    assert entry.content["terms"] == {
        **{"property": "colourfulness", "mix": None, "direction": None, "reference": None, "currency": "EUR"},
        **{"pool": None, "fixed": "equal", "merit": "help", "negatives": "zero", "r": "0.4", "r_at_most": "0.5"},
        **{"floor": "0", "cap": None, "minimum": "0", "rounding": "0.01", "verdict": "use with care"},
    }


@pytest.fixture
def on_numbers(tmp_path):
    """A study whose reference are stated numbers, one of them of a property that nobody is paid for."""
    numbers = {"colourfulness": -1.0, "heldout_loss": 2.0}
    return evaluated(stated(tmp_path, {"reference": numbers, "payout.reference": "stated"})).parent


def test_the_reference_is_bound(on_numbers):
    file = change(on_numbers, {"reference.colourfulness": -100.0})
    with pytest.raises(UserError, match=r"study's reference\.stated\.colourfulness -1\.0 → -100\.0"):
        Study.load(file).payout(pool="100.00")
    file = change(on_numbers, {"reference": "untrained"})
    with pytest.raises(UserError, match="reference: 'stated' is not the study's, which is 'untrained'; state that"):
        Study.load(file).payout(pool="100.00")
    file = change(on_numbers, {"payout.reference": None})
    with pytest.raises(UserError, match=r"reference.*stated.* → "):
        Study.load(file).payout(pool="100.00")
    assert [row[0] for row in rows(on_numbers, ENTRIES)].count("policy") == 1


def test_only_the_reference_of_what_is_paid_for_is_bound(on_numbers):
    made = Study.load(change(on_numbers, {"reference.heldout_loss": 3.0})).payout(pool="100.00")
    assert made.reference_kind == "stated"
    assert made.empty == -1.0


def test_the_file_of_a_policy_in_the_study_file(tmp_path):
    """A path is as good as the policy itself, and is relative to the study file."""
    file = stated(tmp_path, {"payout": "rules/policy.yaml"})
    (tmp_path / "rules").mkdir()
    policy = tmp_path / "rules" / "policy.yaml"
    policy.write_text(yaml.safe_dump(POLICY))
    evaluated(file)
    assert terms(tmp_path)[0]["r"] == "0.4"
    policy.write_text(yaml.safe_dump(POLICY | {"r": 1}))
    with pytest.raises(UserError, match=r"the policy of .*policy\.yaml is not the one that was entered on 20"):
        Study.load(file).payout(pool="100.00")
