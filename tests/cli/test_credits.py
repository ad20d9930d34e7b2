import pytest

from diffcredit.report import tables as diffcredit_tables
from planted_study import additive, plant
from report.made_up import table
from validated_study import planted


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


@pytest.mark.parametrize(
    ("distribution", "method"), [("leave-one-out", "leave-one-out"), ("subset(0.5)", "datamodel"), ("half", "shapley")]
)
def test_credits_are_by_the_designs_own_method(diffcredit, tmp_path, distribution, method):
    changes = {"design": {"distribution": distribution, "full_replicates": 2}, "validation": None}
    evaluations = 8 if distribution == "leave-one-out" else 30
    file = planted(tmp_path, {**changes, "stop": {"evaluations": evaluations}}).study.file
    code, out, err = diffcredit("credits", file)
    assert (code, err) == (0, "")
    assert out.count(f"0 failed; {method}\n") == 2
    assert (f", by {method}" in " ".join(out.split())) == (method != "shapley")
    rows = diffcredit("credits", file, "--mix", "colourfulness=1,heldout_loss=-1")[1]
    assert f"0 failed; {method}\n" in rows
    code, out, err = diffcredit("status", file)
    assert (code, err) == (0, "")
    assert out.count(f"; by {method}\n") == (0 if method == "shapley" else 2)
    assert out.count("predicted correlation") == (2 if method == "shapley" else 0)
