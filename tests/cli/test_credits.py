import json

import pytest

from diffcredit.report import tables as diffcredit_tables
from planted_study import additive, plant
from report.made_up import table
from validated_study import WEIGHTS, planted


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_values_that_do_not_fit_are_warned_of_once(diffcredit, tmp_path, monkeypatch, form):
    odd = table(property="odd", title="odd", diagnostics={"residual_100": 9.0, "studentised_100": 20.0})
    even = table(property="even", title="even", diagnostics={"sigma": 1.0})
    monkeypatch.setattr(diffcredit_tables, "credit_tables", lambda study, method, confidence: (odd, even))
    file = plant(tmp_path, ["A", "B", "C"], {"odd": additive([1, 2, 3])}, evaluations=6)
    code, _, err = diffcredit("credits", file, "--format", form, warned=True)
    assert code == 0
    assert err.count("the value of") == err.count("odd: the value of A alone is 9 above") == 1
    assert "--method exact" in err


def test_credits_are_by_the_designs_own_method(diffcredit, tmp_path):
    """Of an additive game, whose weights are the credits by leave-one-out too."""
    changes = {"design": {"distribution": "leave-one-out", "full_replicates": 2}, "stop": {"evaluations": 8}}
    file = planted(tmp_path, changes).study.file
    code, out, err = diffcredit("credits", file)
    assert (code, err) == (0, "")
    assert out.count("0 failed; leave-one-out\n") == " ".join(out.split()).count(", by leave-one-out") == 2
    code, out, err = diffcredit("credits", file, "--mix", "colourfulness=1,heldout_loss=-1", "--format", "json")
    assert (code, err) == (0, "")
    (mixed,) = json.loads(out)
    assert mixed["method"] == "leave-one-out"
    assert mixed["credit"] == pytest.approx(2 * WEIGHTS)
    code, out, err = diffcredit("status", file)
    assert (code, err) == (0, "")
    assert out.count("; by leave-one-out\n") == 2
