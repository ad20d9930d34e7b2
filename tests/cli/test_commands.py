import csv
import dataclasses
import io
import itertools
import json
import re
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import yaml
from rich.console import Console

from diffcredit.cli.credits import _content
from diffcredit.cli.run import _Printer
from diffcredit.credit import METHODS
from diffcredit.execution.versions import package_versions
from diffcredit.ledger import Value
from diffcredit.report import Report
from diffcredit.report.page import render
from diffcredit.report.tables import credit_tables
from diffcredit.study.plan import expected_total
from diffcredit.study.run import why_enough
from diffcredit.study.schedule import Total
from diffcredit.study.study import Study
from tiny_study import (
    CONFIG,
    ENVIRONMENT,
    SMALL,
    changed,
    command,
    files_below,
    images_of,
    rows,
    run_here,
    write_small,
    write_study,
)


def headings(out):
    return next(line for line in out.splitlines() if " contributor " in line).split()


def report_of(*tables):
    return Report("tiny", "today", "0", tables, (), {}, {}, {}, ("This base model.",))


def test_as_a_module():
    failed = subprocess.run(command("run", "nowhere.yaml"), capture_output=True, text=True, env=ENVIRONMENT)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr == (
        "error: nowhere.yaml: cannot be read (No such file or directory); a study file is expected\n"
    )


def test_version(diffcredit):
    assert diffcredit("--version")[1] == f"diffcredit {package_versions().get('diffcredit', '(not installed)')}\n"


def test_help_names_every_command(diffcredit):
    code, out, _ = diffcredit("--help")
    assert code == 0
    for name in ("demo", "init", "plan", "pilot", "run", "measure", "status", "credits", "report"):
        assert f" {name} " in out
        assert diffcredit(name, "--help")[0] == 0


@pytest.mark.parametrize(
    "arguments", [["rum"], ["run"], ["run", "x.yaml", "--workers", "0"], ["credits", "x.yaml", "--confidence", "95"]]
)
def test_wrong_usage(diffcredit, arguments):
    code, out, err = diffcredit(*arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err


@pytest.mark.parametrize("name", ["plan", "pilot", "run", "status", "credits", "report"])
def test_a_bad_study_file_is_one_line(diffcredit, tmp_path, name):
    file = write_study(tmp_path, {"sampling.imgs": 3})
    code, out, err = diffcredit(name, file)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {file}: sampling.imgs: unknown key; accepted: ")
    assert err.count("\n") == 1
    assert files_below(tmp_path) == {"study.yaml"}


def test_run_to_the_report(diffcredit, tmp_path):
    """From nothing to credits: plain lines where there is no terminal, files where the study file says."""
    images_of(tmp_path / "images", ["ada", "[red]bob", "=cem()"])
    file = write_study(tmp_path, SMALL)
    code, out, err = diffcredit("run", file, "--workers", 1)
    assert (code, err) == (0, "")
    assert out.startswith("tiny: 18 images of 3 contributors, 0 held out\n")
    assert "training the base model: 2/2" in out
    assert "evaluating coalitions: 10/10" in out
    assert "Enough: 8 evaluations.\n" in out
    assert "[red]bob" in out  # a name is data, never markup
    assert "\x1b" not in out
    assert out.endswith(f"Report: {tmp_path}/results/report.html\nTable:  {tmp_path}/results/credits.csv\n")
    table = list(csv.reader(io.StringIO((tmp_path / "results/credits.csv").read_text(encoding="utf-8"))))
    assert sorted(row[1] for row in table[1:]) == ["'=cem()", "[red]bob", "ada"]

    code, again, _ = diffcredit("run", file, "--workers", 1)
    assert code == 0
    assert "training" not in again
    assert "evaluating" not in again


def test_a_run_names_duplicates_and_who_is_left_out(tmp_path, capsys):
    images_of(tmp_path / "images", ["dan"], each=1)
    file = write_small(tmp_path, {"contributions": {"path": "images", "resolution": 16, "at_least": 2}})
    for index in range(6):
        (tmp_path / f"images/bob/{index}.png").write_bytes((tmp_path / f"images/ada/{index}.png").read_bytes())
    _Printer("tiny").on_contributions(Study.load(file).contributions)
    out = capsys.readouterr().out
    assert out.startswith("tiny: 18 images of 3 contributors, 0 held out\nleft out dan (1 image)\n")
    assert out.count("the same image from ada, bob: ada/") == 5
    assert "and 1 more images from several contributors" in out


def test_plan_trains_nothing_and_leaves_nothing(diffcredit, tmp_path):
    file = write_study(tmp_path)
    code, out, err = diffcredit("plan", file, "--workers", 2)
    assert (code, err) == (0, "")
    lines = [line.strip() for line in out.splitlines() if not line.startswith("timing a few steps: ")]
    assert lines[1].startswith("base model: 2 steps, then 4 images")
    assert lines[2].startswith("preparing the retraining: 2 steps")
    assert lines[3].startswith("18 evaluations of 18, ")
    assert "(1 steps, 4 images), 2 at a time" in lines[3]
    assert lines[4].startswith("total left")
    assert "Splitting the budget: shown after 40 evaluations; there are 0." in out
    assert files_below(tmp_path) == {"study.yaml"}


@pytest.mark.parametrize(
    ("rule", "evaluations"),
    [
        ({"hours": 1}, 30),
        ({"hours": 1 / 60}, 12),  # 10 s each, two at a time
        ({"money": {"amount": 12 / 360, "per_hour": 1}}, 12),
    ],
)
def test_a_plan_turns_hours_and_money_into_evaluations(tmp_path, rule, evaluations):
    stop = {"any": [{"evaluations": 30}, {"correlation": 0.9}, rule]}
    schedule = Study.load(write_small(tmp_path, {"stop": stop})).schedule()
    assert expected_total(schedule, each=10.0, at_a_time=2) == Total(2 + evaluations, certain=False)


def with_records(folder, count, standard_error, scale=1.0):
    """The finished study's ledger with ``count`` evaluations, which nobody made: value and seconds are made up.
    ``scale`` is that of the credits, beside noise of deviation 1."""
    study = Study.load(folder)
    rng, credit = np.random.default_rng(0), scale * np.linspace(-1, 1, 12)
    schedule = study.schedule()
    with study.ledger() as ledger:
        done = {e.key for e in ledger.evaluations(study.name, study.recipe.name)}
        like = ledger.evaluations(study.name, study.recipe.name)[-1]
        for task in itertools.islice(schedule.coalitions(), count):
            if task.key in done:
                continue
            effect = float(np.array([member == "1" for member in task.coalition]) @ credit + rng.normal())
            values = tuple(
                Value(old.property, old.value + effect, None if old.property == "heldout_loss" else standard_error)
                for old in like.values
            )
            made = {"coalition": task.coalition, "replicate": task.replicate, "purpose": "estimate", "values": values}
            seconds = {"training": 3.0, "sampling": 1.0, "measuring": 0.0}
            ledger.record(study.name, study.recipe.name, dataclasses.replace(like, **made, seconds=seconds))


@pytest.fixture
def untimed(monkeypatch):
    """``plan`` without timing anything on this machine."""
    monkeypatch.setattr(Study, "plan", lambda study, workers: None)
    monkeypatch.setattr("diffcredit.cli.plan.print_plan", lambda study, planned: None)


@pytest.mark.usefixtures("untimed")
def test_plan_splits_the_budget(diffcredit, finished):
    write_study(finished, {"stop.evaluations": 200})
    with_records(finished, 200, standard_error=0.5)
    code, out, _ = diffcredit("plan", finished)
    assert code == 0
    table = {line.split()[0]: line.split() for line in out.splitlines() if " × " in line or "not known" in line}
    assert table["heldout_loss"][2:] == ["not", "known"]
    for name in ("colourfulness", "cluster_entropy"):
        assert table[name][4:7] == ["4", "×", "200"]
        assert table[name][8] == "×"
    # of a variance of 1 about the fit, 0.5² is the images', but for the first values, which are real
    assert 10 < float(table["cluster_entropy"][2]) < 40
    assert "sampling.images is part of the recipe" in out


@pytest.mark.usefixtures("untimed")
def test_plan_warns_of_noise(diffcredit, finished):
    write_study(finished, {"stop.evaluations": 60})
    with_records(finished, 60, standard_error=100.0, scale=1e-6)  # images far noisier than the values
    expected = {
        name: credit.diagnostics["tau"] ** 2 / credit.diagnostics["sigma"] ** 2
        for name, credit in Study.load(finished).credits().items()
    }
    sizes = [task.coalition.count("1") for task in itertools.islice(Study.load(finished).schedule().coalitions(), 60)]
    signal = np.mean([size * (12 - size) / 12 for size in sizes])
    noisy = {name for name, ratio in expected.items() if ratio * signal < 0.1}
    assert noisy  # contributors make nothing of these values
    code, out, err = diffcredit("plan", finished, warned=True)
    assert code == 0
    assert len(re.findall(r"4 × \d+ +not known", out)) == 2
    assert "share their initial noises" in out
    assert set(re.findall(r"warning: (\w+): signal/noise \S+ is under 0.1", err)) == noisy


def test_plan_of_what_is_done(diffcredit, finished):
    before = files_below(finished)
    code, out, _ = diffcredit("plan", finished)
    assert code == 0
    table = [line for line in out.splitlines() if not line.startswith("timing a few steps: ")]
    assert [line.split()[-1] for line in table[1:4]] == ["done"] * 3
    assert files_below(finished) == before


def test_plan_finds_mistakes(diffcredit, tmp_path):
    code, _, err = diffcredit("plan", write_study(tmp_path, {"properties": ["colorfulness"]}))
    assert code == 2
    assert "properties.0: 'colorfulness' is unknown; accepted: colourfulness, " in err


def test_status_before_during_and_after(diffcredit, finished, tmp_path):
    new = write_study(tmp_path / "new")
    code, out, _ = diffcredit("status", new)
    assert (code, out) == (0, "sparsified: 0 of 18 evaluations; the model is not ready for them yet\n")
    assert files_below(new.parent) == {"study.yaml"}

    code, out, _ = diffcredit("status", finished)
    assert code == 0
    assert out.splitlines()[1].split()[:4] == ["sparsified", "18", "of", "18"]
    assert "colourfulness: " in out

    write_study(finished, {"stop.evaluations": 30})  # as if it were still under way
    assert diffcredit("status", finished)[1].splitlines()[1].split()[:4] == ["sparsified", "18", "of", "32"]

    write_study(finished, {"retraining": {"method": "fine_tune", "name": "[b]other"}})
    out = diffcredit("status", finished)[1]
    assert out.startswith("[b]other: 0 of 18 evaluations; the model is not ready for them yet\n")
    assert "sparsified" in out


def test_status_of_a_rule_with_parts(diffcredit, finished, tmp_path):
    stop = {"any": [{"evaluations": 200}, {"all": [{"hours": 5}, {"correlation": 0.5}]}, {"width": 1e9}]}
    new = write_study(tmp_path / "new", {"stop": {"hours": 1}})
    out = diffcredit("status", new)[1]
    assert out == "sparsified: 0 evaluations; the model is not ready for them yet\n"

    write_study(finished, {"stop": stop})
    out = diffcredit("status", finished)[1]
    assert out.splitlines()[1].split()[:5] == ["sparsified", "18", "of", "about", "202"]
    lines = {line.strip().partition("  ")[0]: line for line in out.splitlines()}
    assert lines["200 evaluations"].split()[2:5] == ["16", "≈", "200"]
    assert "no look yet" in lines["correlation ≥ 0.5, 85 % sure"]
    assert "not known yet" in lines["width ≤ 1e+09"]
    assert lines["5 hours"].startswith("     ")  # below its parent
    assert "reached" not in lines["5 hours"]

    with_records(finished, 90, standard_error=None)
    out = diffcredit("status", finished)[1]
    lines = {line.strip().partition("  ")[0]: line for line in out.splitlines()}
    assert "reached" in lines["width ≤ 1e+09"]
    assert "1 of 3 reached" in lines["any of"]
    assert out.splitlines()[1].split()[-1] == "done"
    assert why_enough(Study.load(finished)).startswith("width ≤ 1e+09, now ")


def test_credits_in_three_forms(diffcredit, finished):
    table, text, content = (diffcredit("credits", finished, "--format", form) for form in ("table", "csv", "json"))
    assert [code for code, _, _ in (table, text, content)] == [0, 0, 0]
    parsed = list(csv.DictReader(io.StringIO(text[1], newline="")))
    assert len(parsed) == 3 * 12
    (loss, colour, _) = json.loads(content[1])
    assert (loss["property"], loss["higher_is_better"], loss["evaluations"]) == ("heldout_loss", False, 16)
    assert sum(colour["credit"]) == pytest.approx(colour["full"] - colour["empty"], abs=1e-9)
    credit = dict(zip(colour["contributors"], colour["credit"], strict=True))
    assert {row["contributor"]: float(row["credit"]) for row in parsed if row["property"] == "colourfulness"} == credit
    for name in credit:
        assert table[1].count(name) == 3
    assert "95% interval" in table[1]

    # the same intervals in all three forms, as the credits themselves have them
    credits = Study.load(finished).credits()["colourfulness"]
    rank_low, rank_high = credits.rank_intervals()
    expected = {
        "rank": credits.rank(),
        "rank_low": rank_low,
        "rank_high": rank_high,
        "share": credits.shares,
        "share_low": credits.share_intervals()[0],
        "share_high": credits.share_intervals()[1],
        "contrast_half_width": credits.contrast_half_width,
    }
    rows = {row["contributor"]: row for row in parsed if row["property"] == "colourfulness"}
    for key, numbers in expected.items():
        assert colour[key] == numbers.tolist()
        assert [float(rows[name][key]) for name in colour["contributors"]] == numbers.tolist()
    for name, rank, low, high in zip(colour["contributors"], credits.rank(), rank_low, rank_high, strict=True):
        assert re.search(rf"{rank} \({low}–{high}\) +{name} ", table[1])


def test_lower_is_better_turns_the_rank_intervals_round(diffcredit, finished):
    write_study(finished, {"stop.evaluations": 200})
    with_records(finished, 200, standard_error=None)
    (loss,) = json.loads(diffcredit("credits", finished, "--property", "heldout_loss", "--format", "json")[1])
    best, *_, worst = np.argsort(loss["credit"])  # the most negative helps most
    assert loss["rank_high"][best] < loss["rank_low"][worst]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_prints_or_says_why_not(diffcredit, finished, method):
    """The tiny study has 16 evaluations of 12 contributors, from the design `uniform`."""
    possible = {"shapley", "unshrunk", "kernelshap", "banzhaf-msr", "datamodel", "datamodel-lasso"}
    for form in ("table", "csv", "json"):
        arguments = ("credits", finished, "--method", method, "--format", form, "--property", "colourfulness")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of scikit-learn's solver
            code, out, err = diffcredit(*arguments)
        if method not in possible:
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert method in err.partition("no credits yet: ")[2]
            continue
        assert (code, err) == (0, "")
        if form == "table":
            shapley = method in ("shapley", "unshrunk", "kernelshap")
            assert ("= F(all)" in out) == ("share" in headings(out)) == shapley
        if form == "json":
            assert len(json.loads(out)[0]["rank_low"]) == 12


def test_every_method_can_be_shown_where_all_coalitions_are_evaluated(diffcredit, tmp_path):
    design = {"design.distribution": "exhaustive", "stop.evaluations": 14}
    file = write_small(tmp_path, design, "ada bob cem dan")
    run_here(file)
    for method in METHODS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of scikit-learn's solver
            code, out, err = diffcredit("credits", file, "--method", method)
            assert (code, err) == (0, ""), method
            assert all(name in out for name in ("ada", "bob", "cem", "dan"))
            (table,) = credit_tables(Study.load(file), method)
        assert method in render(report_of(table))
        content = _content(table)
        efficient = method in ("shapley", "unshrunk", "kernelshap", "permutation", "exact")
        assert (sum(content["credit"]) == pytest.approx(content["full"] - content["empty"])) == efficient
        assert (content["share"] == [None] * 4) == (not efficient)
        assert ("= F(all)" in out) == ("share" in headings(out)) == efficient
    # without a replicate the noise of single coalitions is not known
    out = diffcredit("credits", file, "--method", "leave-one-out")[1]
    assert out.count("not known") == 4
    assert out.count("(1–4)") == 4
    text = diffcredit("credits", file, "--method", "leave-one-out", "--format", "csv")[1]
    for row in csv.DictReader(io.StringIO(text, newline="")):
        assert {row[key] for key in ("low", "high", "share", "share_low", "share_high", "contrast_half_width")} == {""}
    assert diffcredit("status", file)[0] == 0


def test_a_mix_of_properties(diffcredit, finished):
    arguments = ("credits", finished, "--mix", "colourfulness=1, heldout_loss=-2.5,cluster_entropy=0")
    code, out, err = diffcredit(*arguments)
    assert (code, err) == (0, "")
    assert "1 × colourfulness − 2.5 × heldout_loss (higher is better)" in out
    (content,) = json.loads(diffcredit(*arguments, "--format", "json")[1])
    credits = Study.load(finished).credits()
    expected = credits["colourfulness"].values - 2.5 * credits["heldout_loss"].values
    assert content["credit"] == pytest.approx(expected)
    assert content["rank"] == [1 + int((expected > value).sum()) for value in expected]
    rows = list(csv.DictReader(io.StringIO(diffcredit(*arguments, "--format", "csv")[1], newline="")))
    assert {row["property"] for row in rows} == {"colourfulness=1,heldout_loss=-2.5"}
    # a method whose mixes are linear in all, and one whose credits are no parts of a total
    assert "= F(all)" in diffcredit(*arguments, "--method", "unshrunk")[1]
    assert "share" not in headings(diffcredit(*arguments, "--method", "datamodel")[1])


@pytest.mark.parametrize(
    ("mix", "said"),
    [
        (
            "colourfulness",
            "--mix: 'colourfulness' is not NAME=WEIGHT; accepted: properties with numbers, separated by ",
        ),
        ("colourfulness=one", "--mix: 'colourfulness=one' is not NAME=WEIGHT; "),
        ("colourfulness=1,", "--mix: '' is not NAME=WEIGHT; "),
        ("=1", "--mix: '=1' is not NAME=WEIGHT; "),
        ("colourfulness=inf", "--mix: 'colourfulness=inf' is not NAME=WEIGHT; "),
        ("colourfulness=1,colourfulness=2", "--mix: 'colourfulness' has two weights; one is accepted"),
        ("colourfulness=0", "--mix: weights: all are 0"),
        ("beauty=1", "--mix: weights: 'beauty' has no credits; accepted: heldout_loss, colourfulness, cluster_entropy"),
    ],
)
def test_a_mix_that_cannot_be(diffcredit, finished, mix, said):
    code, out, err = diffcredit("credits", finished, "--mix", mix)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_mix_takes_no_property(diffcredit, finished):
    arguments = ("--mix", "colourfulness=1", "--property", "colourfulness")
    assert diffcredit("credits", finished, *arguments)[0] == 2


def test_properties_of_different_evaluations_cannot_be_mixed(diffcredit, tmp_path):
    (tmp_path / "moody_for_mixes.py").write_text(
        "class Moody:\n    name = 'moody'\n    calls = 0\n    def measure(self, images):\n        self.calls += 1\n"
        "        return None if self.calls == 5 else float(images.mean())\n"
    )
    file = write_small(tmp_path, {"properties": ["moody_for_mixes:Moody", "colourfulness"]})
    run_here(file)
    code, out, err = diffcredit("credits", file, "--mix", "moody=1,colourfulness=1")
    assert (code, out) == (2, "")
    assert err == (
        "error: --mix: mix of 'moody' and 'colourfulness': their evaluations differ in 1 coalitions, which are "
        "missing from one of them or have other numbers of replicates; expected the same evaluations\n"
    )
    assert diffcredit("credits", file, "--mix", "colourfulness=2")[0] == 0


def test_the_table_fits_a_hundred_columns(diffcredit, finished, monkeypatch):
    monkeypatch.setattr("diffcredit.cli.credits.console", Console(width=100))
    write_study(finished, {"stop.evaluations": 200})
    with_records(finished, 200, standard_error=None)
    out = diffcredit("credits", finished)[1]
    lines = [line for line in out.splitlines() if re.match(r" *\d+ \(", line)]
    assert len(lines) == 3 * 12  # none folded
    assert max(map(len, lines)) <= 100


def test_help_names_every_method(diffcredit):
    words = set(re.split(r"[\s,.:]+", diffcredit("credits", "--help")[1]))
    assert set(METHODS) <= words


def test_credits_of_one_property(diffcredit, finished):
    code, out, _ = diffcredit("credits", finished, "--property", "colourfulness", "--confidence", 0.999)
    assert code == 0
    assert "colourfulness (higher is better)" in out
    assert "heldout_loss" not in out
    assert "99.9% interval" in out
    code, out, err = diffcredit("credits", finished, "--property", "beauty")
    assert (code, out) == (2, "")
    assert err == (
        "error: --property: 'beauty' is not measured in this study; "
        "accepted: heldout_loss, colourfulness, cluster_entropy\n"
    )


def test_credits_that_cannot_be_had(diffcredit, finished, tmp_path):
    code, _, err = diffcredit("credits", finished, "--method", "guess")
    assert (code, err.count("\n")) == (2, 1)
    assert err == f"error: --method: 'guess' is unknown; accepted: {', '.join(METHODS)}\n"
    code, _, err = diffcredit("credits", write_study(tmp_path / "new"))
    assert (code, err) == (2, f"error: {tmp_path}/new/results/ledger.db: there is no ledger\n")
    write_study(finished, {"name": "other"})
    code, _, err = diffcredit("credits", finished)
    assert (code, err) == (2, f"error: {finished}/results/ledger.db: no study 'other'; there is 'tiny'\n")


def test_long_names_are_not_cut(diffcredit, tmp_path):
    long = "Wolfeschlegelsteinhausenbergerdorff " * 3
    images_of(tmp_path / "images", [long.strip(), "bob"])
    run_here(write_study(tmp_path, SMALL))
    out = diffcredit("credits", tmp_path)[1]
    assert "…" not in out
    assert max(map(len, out.splitlines()[:5])) <= 80
    header = next(line for line in out.splitlines() if "contributor" in line)
    # names begin below their header; numbers, right-aligned, never reach as far left as the next one begins
    column = slice(header.index("contributor"), header.index("images"))
    names = "".join(line[column] for line in out.splitlines()).replace(" ", "")
    assert "Wolfeschlegelsteinhausenbergerdorff" * 3 in names


def test_report_is_written_again(diffcredit, finished):
    code, out, _ = diffcredit("report", finished)
    assert code == 0
    assert out.endswith(f"Report: {finished}/results/report.html\n")
    assert (finished / "results/report.html").stat().st_size > 10_000
    assert (finished / "results/credits.csv").exists()


def test_failures_are_told(diffcredit, tmp_path):
    (tmp_path / "burning.py").write_text(
        "from diffcredit.retraining.fine_tune import FineTune\n"
        "class Burning(FineTune):\n"
        "    def models_for(self, coalitions, seeds):\n"
        "        for coalition, seed in zip(coalitions, seeds):\n"
        "            if coalition.sum() == 1:\n"
        "                raise RuntimeError('[red]fire[/red]')\n"
        "            yield from super().models_for(coalition[None], [seed])\n"
    )
    changes = {"retraining": {"method": "burning:Burning", "steps": 1}, "stop.evaluations": 15}
    code, out, _ = diffcredit("run", write_small(tmp_path, changes, "ada bob cem dan"), "--workers", 1)
    assert code == 0
    (failed,) = rows(tmp_path, "SELECT count(*) FROM evaluations WHERE status = 'failed'")[0]
    assert failed == 5  # a third of the sizes 1, 2, 3
    assert out.count("failed: RuntimeError: [red]fire[/red]") == failed
    assert f"{failed} evaluations failed; the ledger has their errors, and the next run tries them again." in out


@pytest.mark.parametrize("name", ["run", "status", "credits", "report"])
def test_a_ledger_that_is_no_database(diffcredit, tmp_path, name):
    file = write_study(tmp_path, {"ledger": "other.db"})
    (tmp_path / "other.db").write_text("not a database, but long enough to be mistaken for one\n" * 10)
    code, _, err = diffcredit(name, file)
    assert code == 2
    assert err.startswith(f"error: {tmp_path}/other.db: cannot be opened as a ledger (")
    assert err.count("\n") == 1


def test_results_that_cannot_be_written(diffcredit, tmp_path):
    (tmp_path / "taken").write_text("a file where the folder should be")
    code, _, err = diffcredit("run", write_study(tmp_path, {**SMALL, "results": "taken/here", **OPENMOJI}))
    assert code == 1
    assert err == f"error: {tmp_path}/taken/here: Not a directory\n"


OPENMOJI = {"contributions": {"source": "openmoji", "resolution": 16}}


def test_a_property_without_credits_is_a_warning(diffcredit, tmp_path):
    (tmp_path / "silent.py").write_text("class Silent:\n    def measure(self, images):\n        return None\n")
    run_here(write_small(tmp_path, {"properties": ["silent:Silent", "colourfulness"]}, "ada bob"))
    code, out, err = diffcredit("credits", tmp_path, warned=True)
    assert (code, "colourfulness" in out) == (0, True)
    assert err == "warning: Silent: no credits: empty: no value of the empty coalition; at least one is expected\n"


def few_steps(file: Path) -> None:
    """Edits a study file down to what a test can wait for."""
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    few = {
        "device": "cpu",
        "model.preset": "tiny",
        "contributions.resolution": 16,
        "model.train.steps": 2,
        "retraining": {**content["retraining"], "recover_steps": 2, "steps": 1},
        "sampling.images": 20,
        "sampling.steps": 2,
        "stop.evaluations": 6,
        "design": CONFIG["design"],
    }
    file.write_text(yaml.safe_dump(changed(content, few), allow_unicode=True), encoding="utf-8")


@pytest.mark.parametrize("kind", ["folders", "imagefolder", "npz"])
def test_init_writes_a_file_that_run_accepts(diffcredit, tmp_path, kind):
    place = images_of(tmp_path / "Bilder von \"Zoë\" & 'Co' #1: 写真", ["ada", "bob"], each=5)
    options = []
    if kind == "imagefolder":
        lines = [{"file_name": f"{who}/{i}.png", "made by": who} for who in ("ada", "bob") for i in range(5)]
        (place / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        options = ["--contributor", "made by"]
    if kind == "npz":
        place = tmp_path / "123.npz"  # whose name is a number to YAML
        images = np.random.default_rng(0).integers(0, 256, (10, 16, 16, 3), dtype=np.uint8)
        np.savez(place, images=images, contributor=np.array(["ada", "bob"] * 5))
    output = tmp_path / "studies" / "study.yaml"
    code, out, _ = diffcredit("init", place, "--output", output, *options)
    assert code == 0
    assert out == (
        f"{output}: 10 images of 2 contributors (5 to 5 each). "
        f"Next: diffcredit plan {output}, then diffcredit run {output}\n"
    )
    content = yaml.safe_load(output.read_text(encoding="utf-8"))
    assert content["name"] == ("123" if kind == "npz" else "Bilder-von-Zoë-Co-1-写真")
    assert content["contributions"]["source"] == kind
    study = Study.load(output)
    assert (len(study.contributions.images), len(study.contributions.heldout)) == (8, 2)
    if kind == "folders":
        few_steps(output)
        code, out, err = diffcredit("run", output, "--workers", 1, warned=True)
        assert code == 0
        assert "pruning changed the model too much" in err
        assert "The pruned model, before any coalition" in out


@pytest.mark.parametrize("name", ["123", "true", "null", "1e3", "2024-01-01", "...", "- -", "x" * 200, "v1.2"])
def test_init_takes_any_folder_name(diffcredit, tmp_path, name):
    images_of(tmp_path / name, ["ada", "bob"], each=1)
    file = tmp_path / "study.yaml"
    assert diffcredit("init", tmp_path / name, "--output", file)[0] == 0
    assert diffcredit("status", file)[0] == 0
    assert "heldout_loss" not in file.read_text()  # one image each: nobody can spare one


def test_init_overwrites_nothing_unasked(diffcredit, tmp_path):
    images_of(tmp_path / "images", ["ada", "bob"], each=1)
    file = tmp_path / "study.yaml"
    file.write_text("mine")
    code, _, err = diffcredit("init", tmp_path / "images", "--output", file)
    assert (code, file.read_text()) == (2, "mine")
    assert err == f"error: {file}: exists already; choose another --output, or --force to overwrite it\n"
    assert diffcredit("init", tmp_path / "images", "--output", file, "--force")[0] == 0
    assert file.read_text().startswith("# A study")


@pytest.mark.parametrize(("name", "said"), [("nowhere", "does not exist"), ("empty", "no images there")])
def test_init_of_nothing(diffcredit, tmp_path, name, said):
    (tmp_path / "empty").mkdir()
    code, _, err = diffcredit("init", tmp_path / name, "--output", tmp_path / "study.yaml")
    assert (code, err) == (2, f"error: {tmp_path / name}: {said}\n")
    assert not (tmp_path / "study.yaml").exists()


def test_init_names_what_it_cannot_read(diffcredit, tmp_path):
    images_of(tmp_path / "images", ["ada", "bob"], each=2)
    (tmp_path / "images/ada/0.png").write_bytes(b"not a picture")
    code, out, _ = diffcredit("init", tmp_path / "images", "--output", tmp_path / "study.yaml")
    assert code == 0
    assert "unreadable: ada/0.png: " in out
    code, _, err = diffcredit("run", tmp_path / "study.yaml")
    assert code == 2
    assert "ada/0.png" in err
    assert "unreadable: skip" in err
