import pytest

from diffcredit.report import tables as diffcredit_tables
from planted_study import additive, plant
from report.made_up import table


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
