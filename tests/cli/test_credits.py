"""``diffcredit credits``: the same numbers in three forms, by every method, and for mixes of properties."""

import csv
import io
import json
import re
import warnings

import numpy as np
import pytest
from rich.console import Console

from diffcredit.credit import METHODS
from diffcredit.report import tables as diffcredit_tables
from diffcredit.report.page import render
from diffcredit.report.tables import credit_tables
from diffcredit.study.study import Study
from planted_study import additive, plant
from report.made_up import report, table
from tiny_study import write_study
from validated_study import WEIGHTS, planted

SHAPLEY = ("shapley", "unshrunk", "kernelshap", "permutation", "exact")


def headings(out):
    return next(line for line in out.splitlines() if " contributor " in line).split()


def parsed(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_three_forms(diffcredit, finished, monkeypatch):
    monkeypatch.setattr("diffcredit.cli.credit_tables.console", Console(width=140))
    forms = (diffcredit("credits", finished, "--shares", "--format", form) for form in ("table", "csv", "json"))
    shown, text, content = forms
    assert [code for code, _, _ in (shown, text, content)] == [0, 0, 0]
    lines = parsed(text[1])
    assert len(lines) == 3 * 12
    (loss, colour, _) = json.loads(content[1])
    assert (loss["property"], loss["higher_is_better"], loss["evaluations"]) == ("heldout_loss", False, 16)
    assert sum(colour["credit"]) == pytest.approx(colour["full"] - colour["empty"], abs=1e-9)
    assert "95% interval" in shown[1]
    # the same numbers in all three forms, as the credits themselves have them
    credits = Study.load(finished).credits()["colourfulness"]
    rank_low, rank_high = credits.rank_intervals()
    helps = {"help": credits.help(), "help_low": credits.help_intervals()[0], "help_high": credits.help_intervals()[1]}
    expected = {
        "credit": credits.values,
        "rank": credits.rank(),
        "rank_low": rank_low,
        "rank_high": rank_high,
        "share": credits.shares,
        "share_low": credits.share_intervals()[0],
        "share_high": credits.share_intervals()[1],
        "contrast_half_width": credits.contrast_half_width,
        **helps,
    }
    rows = {row["contributor"]: row for row in lines if row["property"] == "colourfulness"}
    for key, numbers in expected.items():
        if key.startswith("share") and not credits.surely_help():
            assert colour[key] == [None] * 12
            assert {rows[name][key] for name in rows} == {""}
        else:
            assert colour[key] == pytest.approx(numbers.tolist(), rel=1e-12, abs=1e-15)
            assert [float(rows[name][key]) for name in colour["contributors"]] == colour[key]
    for name, rank, low, high in zip(colour["contributors"], credits.rank(), rank_low, rank_high, strict=True):
        assert shown[1].count(name) == 3
        assert re.search(rf"{rank} \({low}–{high}\) +{name} ", shown[1])


def test_one_property_and_what_cannot_be_had(diffcredit, finished, tmp_path):
    out = diffcredit.printed("credits", finished, "--property", "colourfulness", "--confidence", 0.999)
    assert "colourfulness (higher is better)" in out
    assert "heldout_loss" not in out
    assert "99.9% interval" in out
    measured = "heldout_loss, colourfulness, cluster_entropy"
    for option, said in (
        (("--property", "beauty"), f"--property: 'beauty' is not measured in this study; accepted: {measured}"),
        (("--method", "guess"), f"--method: 'guess' is unknown; accepted: {', '.join(METHODS)}"),
    ):
        assert diffcredit("credits", finished, *option) == (2, "", f"error: {said}\n")
    for method in ("permutation", "exact", "banzhaf", "leave-one-out", "add-one-in"):  # 16 evaluations by `uniform`
        code, out, err = diffcredit("credits", finished, "--method", method, "--property", "colourfulness")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert method in err.partition("no credits yet: ")[2]
    said = diffcredit.refused("credits", write_study(tmp_path / "new"))
    assert said == f"error: {tmp_path}/new/results/ledger.db: there is no ledger\n"
    write_study(finished, {"name": "other"})
    said = diffcredit.refused("credits", finished)
    assert said == f"error: {finished}/results/ledger.db: no study 'other'; there is 'tiny'\n"


@pytest.fixture(scope="module")
def every_coalition(tmp_path_factory):
    """A game of four, evaluated in full."""
    changes = {"design": {"distribution": "exhaustive", "full_replicates": 1}, "stop": {"evaluations": 14}}
    names = ("ada", "bob", "cem", "dan")
    return planted(tmp_path_factory.mktemp("exhaustive"), changes, noise=1.0, names=names).study.file


def test_every_method(diffcredit, every_coalition, monkeypatch):
    monkeypatch.setattr("diffcredit.cli.credit_tables.console", Console(width=140))
    for method in METHODS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of scikit-learn's solver
            asked = ("credits", every_coalition, "--method", method, "--shares")
            code, out, err = diffcredit(*asked)
            assert (code, err) == (0, ""), method
            content = json.loads(diffcredit(*asked, "--format", "json")[1])[0]
            page = render(report(credit_tables(Study.load(every_coalition), method)[0]))
        assert all(name in out for name in ("ada", "bob", "cem", "dan"))
        assert method in page
        efficient = method in SHAPLEY
        assert (sum(content["credit"]) == pytest.approx(content["full"] - content["empty"])) == efficient
        assert (content["share"] == [None] * 4) == (not efficient), method
        assert ("= F(all)" in out) == ("share" in headings(out)) == efficient


def test_intervals_that_are_not_known(diffcredit, every_coalition):
    """Without a replicate the noise of single coalitions is not known."""
    asked = ("credits", every_coalition, "--property", "colourfulness", "--method", "leave-one-out")
    out = diffcredit(*asked)[1]
    assert (out.count("not known"), out.count("(1–4)")) == (4, 4)
    (content,) = json.loads(diffcredit.printed(*asked, "--format", "json"))
    assert content["low"] == content["high"] == [None] * 4
    for row in parsed(diffcredit(*asked, "--format", "csv")[1]):
        assert {row[key] for key in ("low", "high", "share", "share_low", "share_high", "contrast_half_width")} == {""}
    assert diffcredit("status", every_coalition)[0] == 0


def test_a_mix_of_properties(diffcredit, finished):
    arguments = ("credits", finished, "--mix", "colourfulness=1, heldout_loss=-2.5,cluster_entropy=0")
    out = diffcredit.printed(*arguments)
    assert "1 × colourfulness − 2.5 × heldout_loss (higher is better)" in out
    (content,) = json.loads(diffcredit(*arguments, "--format", "json")[1])
    credits = Study.load(finished).credits()
    expected = credits["colourfulness"].values - 2.5 * credits["heldout_loss"].values
    assert content["credit"] == pytest.approx(expected)
    assert content["rank"] == [1 + int((expected > value).sum()) for value in expected]
    rows = parsed(diffcredit(*arguments, "--format", "csv")[1])
    assert {row["property"] for row in rows} == {"colourfulness=1,heldout_loss=-2.5"}
    # a method whose mixes are linear in all, and one whose credits are no parts of a total
    assert "= F(all)" in diffcredit(*arguments, "--method", "unshrunk")[1]
    assert "share" not in headings(diffcredit(*arguments, "--method", "datamodel")[1])


MEASURED = "heldout_loss, colourfulness, cluster_entropy"


def test_a_mix_that_cannot_be(diffcredit, finished):
    for mix, said in (
        ("colourfulness", "'colourfulness' is not NAME=WEIGHT; accepted: properties with numbers, separated by "),
        ("colourfulness=one", "'colourfulness=one' is not NAME=WEIGHT; "),
        ("colourfulness=1,", "'' is not NAME=WEIGHT; "),
        ("=1", "'=1' is not NAME=WEIGHT; "),
        ("colourfulness=inf", "'colourfulness=inf' is not NAME=WEIGHT; "),
        ("colourfulness=1,colourfulness=2", "'colourfulness' has two weights; one is accepted"),
        ("colourfulness=0", "weights: all are 0"),
        ("beauty=1", f"weights: 'beauty' has no credits; accepted: {MEASURED}"),
    ):
        code, out, err = diffcredit("credits", finished, "--mix", mix)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"--mix: {said}" in err
    assert diffcredit("credits", finished, "--mix", "colourfulness=1", "--property", "colourfulness")[0] == 2


def test_ranks_where_lower_is_better_and_lines_of_a_hundred_columns(diffcredit, recorded, monkeypatch):
    (loss,) = json.loads(diffcredit("credits", recorded, "--property", "heldout_loss", "--format", "json")[1])
    best, *_, worst = np.argsort(loss["credit"])  # the most negative helps most
    assert loss["rank_high"][best] < loss["rank_low"][worst]
    monkeypatch.setattr("diffcredit.cli.credit_tables.console", Console(width=100))
    out = diffcredit("credits", recorded)[1]
    lines = [line for line in out.splitlines() if re.match(r" *\d+ \(", line)]
    assert len(lines) == 3 * 12  # none folded
    assert max(map(len, lines)) <= 100


def test_help_names_every_method(diffcredit):
    assert set(METHODS) <= set(re.split(r"[\s,.:]+", diffcredit("credits", "--help")[1]))


def test_a_name_is_never_broken_within_a_word(diffcredit, tmp_path):
    """Columns that do not fit in 80 columns beside it are left out, and named."""
    name = "Leonardo_di_ser_Piero_da_Vinci"
    planted(tmp_path, names=[name, "Camille_Pissarro", "Vincent van Gogh"], noise=1e-5)
    out = diffcredit.printed("credits", tmp_path)
    assert max(map(len, out.splitlines()[4:])) <= 80
    assert [out.count(each) for each in (name, "Camille_Pissarro", "Vincent van Gogh")] == [2, 2, 2]
    assert "not shown at this width: images, credit ± 95% interval" in out
    first = out.splitlines()[0]
    assert re.match(r"colourfulness: (use with care|do not use)\. ", first), "the verdict stands first"


def test_shares_are_shown_only_where_they_mean_something(diffcredit, tmp_path):
    """All help against nobody: colourfulness rises from 0 to 12.25, heldout_loss falls as far."""
    file = planted(tmp_path).study.file
    shown = diffcredit.printed("credits", file)
    assert shown.count("No shares: they would be parts of the way from an untrained network") == 1
    rows = parsed(diffcredit.printed("credits", file, "--format", "csv"))
    assert {row[key] for row in rows for key in ("share", "share_low", "share_high")} == {""}
    asked = parsed(diffcredit.printed("credits", file, "--format", "csv", "--shares"))
    for name in ("colourfulness", "heldout_loss"):
        some = [row for row in asked if row["property"] == name]
        assert [float(row["share"]) for row in some] == pytest.approx(np.array(WEIGHTS) / sum(WEIGHTS))
        assert [float(row["help"]) for row in some] == pytest.approx(np.array(WEIGHTS) - np.mean(WEIGHTS))


def test_long_names_are_not_cut(diffcredit, tmp_path):
    long = "Wolfeschlegelsteinhausenbergerdorff " * 3
    planted(tmp_path, names=[long.strip(), "bob", "cem"])
    out = diffcredit("credits", tmp_path, "--property", "colourfulness")[1]
    assert "…" not in out
    assert max(map(len, out.splitlines()[:5])) <= 80
    header = next(line for line in out.splitlines() if "contributor " in line and "help ±" in line)
    # names begin below their header; numbers, right-aligned, never reach as far left as the next one begins
    column = slice(header.index("contributor"), header.index("help"))
    names = "".join(line[column] for line in out.splitlines()).replace(" ", "")
    assert "Wolfeschlegelsteinhausenbergerdorff" * 3 in names


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_values_that_do_not_fit_are_warned_of_once(diffcredit, tmp_path, monkeypatch, form):
    odd = table(property="odd", title="odd", diagnostics={"residual_100": 9.0, "studentised_100": 20.0})
    even = table(property="even", title="even", diagnostics={"sigma": 1.0})
    monkeypatch.setattr(diffcredit_tables, "credit_tables", lambda *_, **options: (odd, even))
    file = plant(tmp_path, ["A", "B", "C"], {"odd": additive([1, 2, 3])}, evaluations=6)
    code, _, err = diffcredit("credits", file, "--format", form, warned=True)
    assert code == 0
    assert err.count("the value of") == err.count("odd: the value of A alone is 9 above") == 1
    assert "--method exact" in err


def test_credits_are_by_the_designs_own_method(diffcredit, tmp_path):
    """Of an additive game, whose weights are the credits by leave-one-out too."""
    changes = {"design": {"distribution": "leave-one-out", "full_replicates": 2}, "stop": {"evaluations": 8}}
    file = planted(tmp_path, changes).study.file
    out = diffcredit.printed("credits", file)
    assert out.count("0 failed; leave-one-out\n") == " ".join(out.split()).count(", by leave-one-out") == 2
    out = diffcredit.printed("credits", file, "--mix", "colourfulness=1,heldout_loss=-1", "--format", "json")
    (mixed,) = json.loads(out)
    assert mixed["method"] == "leave-one-out"
    assert mixed["credit"] == pytest.approx(2 * WEIGHTS)
    out = diffcredit.printed("status", file)
    assert out.count("; by leave-one-out\n") == 2
