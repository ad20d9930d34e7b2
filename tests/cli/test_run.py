"""``diffcredit run`` and ``diffcredit report``: what they print, log and write."""

import csv
import io
import json
import re
import subprocess
import sys
from datetime import datetime

import pytest

from diffcredit.cli.run import _Printer
from diffcredit.study.study import Study
from tiny_study import ENVIRONMENT, SMALL, images_of, rows, write_small, write_study


def test_from_nothing_to_the_report(diffcredit, tmp_path):
    """Plain lines where there is no terminal, files where the study file says; the log has every row of the ledger."""
    images_of(tmp_path / "images", ["ada", "[red]bob", "=cem()"])
    file = write_study(tmp_path, SMALL)
    out = diffcredit.printed("run", file, "--workers", 1)
    assert out.startswith("tiny: 18 images of 3 contributors, 0 held out\n")
    assert "training the base model: 2/2" in out
    assert "evaluating coalitions: 10/10" in out
    assert "Enough: 8 evaluations.\n" in out
    assert "[red]bob" in out  # a name is data, never markup
    assert "\x1b" not in out
    assert out.endswith(f"Report: {tmp_path}/results/report.html\nTable:  {tmp_path}/results/credits.csv\n")
    table = list(csv.reader(io.StringIO((tmp_path / "results/credits.csv").read_text(encoding="utf-8"))))
    assert sorted(row[1] for row in table[1:]) == ["'=cem()", "[red]bob", "ada"]
    check_log(tmp_path)

    again = diffcredit.printed("run", file, "--workers", 1)
    assert "training the base model" not in again
    assert "evaluating" not in again


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of sizes")
def test_a_model_that_cannot_be_saved_ends_a_run_in_one_line(tmp_path):
    """As on a full disk: no file may be larger than 500,000 bytes, which the model's weights are."""
    file = write_small(tmp_path)
    limited = "import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, (500_000,) * 2); "
    run = [sys.executable, "-c", f"{limited}runpy.run_module('diffcredit', run_name='__main__')", "run", str(file)]
    ended = subprocess.run([*run, "--workers", "1"], capture_output=True, text=True, env=ENVIRONMENT)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert re.fullmatch(rf"error: {re.escape(str(tmp_path))}/results/models/base-\w+: File too large", last)


def check_log(folder):
    log = [json.loads(line) for line in (folder / "results/log.jsonl").read_text().splitlines()]
    fields = ("coalition", "replicate", "purpose", "status", "worker")
    recorded = [each for each in log if each["event"] == "evaluation recorded"]
    found = rows(folder, f"SELECT {', '.join(fields)}, started, finished FROM evaluations ORDER BY id")
    assert [tuple(each[field] for field in fields) for each in recorded] == [row[:5] for row in found]
    for each, (*_, start, finish) in zip(recorded, found, strict=True):
        taken = datetime.fromisoformat(finish) - datetime.fromisoformat(start)
        assert each["seconds"] == pytest.approx(taken.total_seconds(), abs=0.001)
        assert each["recipe"] == "fine_tune"
    assert (log[0]["event"], log[-1]["event"]) == ("study opened", "finished")
    assert log[0]["ledger"].endswith("ledger.db")
    assert {each["driver"] for each in log} == {recorded[0]["worker"]}
    started = [each["stage"] for each in log if each["event"] == "stage started"]
    assert sorted(started) == sorted(each["stage"] for each in log if each["event"] == "stage finished")
    assert {"contributions", "base model", "retraining", "properties"} <= set(started)


def test_a_command_that_fails_says_why_in_the_log(diffcredit, small):
    write_study(small, SMALL | {"sampling.steps": 3})  # another recipe under the same name
    err = diffcredit.refused("run", small, "--workers", 1, warned=True)
    last = json.loads((small / "results/log.jsonl").read_text().splitlines()[-1])
    assert (last["event"], last["level"]) == ("failed", "error")
    assert last["error"] in " ".join(err.split())


def test_duplicates_and_who_is_left_out_are_named(tmp_path, capsys):
    images_of(tmp_path / "images", ["dan"], each=1)
    file = write_small(tmp_path, {"contributions": {"path": "images", "resolution": 16, "at_least": 2}})
    for index in range(6):
        (tmp_path / f"images/bob/{index}.png").write_bytes((tmp_path / f"images/ada/{index}.png").read_bytes())
    study = Study.load(file)
    _Printer(study).on_contributions(study.contributions)
    out = capsys.readouterr().out
    assert out.startswith("tiny: 18 images of 3 contributors, 0 held out\nleft out dan (1 image)\n")
    assert out.count("the same image from ada, bob: ada/") == 5
    assert "and 1 more images from several contributors" in out


def test_failures_and_surrogates(diffcredit, tmp_path):
    (tmp_path / "burning.py").write_text(
        "from diffcredit.retraining.fine_tune import FineTune\n"
        "class Burning(FineTune):\n"
        "    def models_for(self, coalitions, seeds):\n"
        "        for coalition, seed in zip(coalitions, seeds):\n"
        "            if coalition.sum() == 1:\n"
        "                raise RuntimeError('[red]fire[/red]')\n"
        "            yield from super().models_for(coalition[None], [seed])\n"
    )
    changes = {
        "contributions": {"path": "images", "resolution": 16, "holdout": 0.2},
        "properties": ["colourfulness", {"name": "heldout_loss", "time_steps": 2}],
        "retraining": {"method": "burning:Burning", "steps": 1},
        "surrogates": ["pools"],
        "stop.evaluations": 15,
    }
    out = diffcredit.printed("run", write_small(tmp_path, changes, "ada bob cem dan"), "--workers", 1)
    (failed,) = rows(tmp_path, "SELECT count(*) FROM evaluations WHERE status = 'failed'")[0]
    assert failed == 5  # a third of the sizes 1, 2, 3
    assert out.count("failed: RuntimeError: [red]fire[/red]") == failed
    assert f"{failed} evaluations failed; the ledger has their errors, and the next run tries them again." in out
    assert out.count("no surrogate stands in for heldout_loss: credited by its evaluations alone") == 1
    assert "These surrogates: pools." in (tmp_path / "results/report.html").read_text(encoding="utf-8")


def test_the_report_is_written_again(diffcredit, small):
    out = diffcredit.printed("report", small)
    assert out.endswith(f"Report: {small}/results/report.html\n")
    assert (small / "results/report.html").stat().st_size > 10_000
    assert (small / "results/credits.csv").exists()
