"""A stranger's study through the command line: what it may run and write."""

import inspect
import os
import shutil
import subprocess
import sys

import pytest

from diffcredit.cli import app
from diffcredit.study.places import OUTSIDE
from diffcredit.util import consent
from diffcredit.util.consent import ALLOW_PLUGINS
from tiny_study import ENVIRONMENT, SMALL, command, recorded_values, run_here, write_small, write_study

PROPERTIES = ["colourfulness", "tempting:warmth"]
CODE = """
from pathlib import Path
Path(__file__).with_suffix('.ran').touch()

def warmth(images):
    return float(images[..., 0].mean())
"""
COMMANDS = [
    command.callback.__name__
    for command in app.registered_commands
    if {"study", "a"} & set(inspect.signature(command.callback).parameters)
]


@pytest.fixture(scope="module")
def _tempting(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tempting")
    (folder / "tempting.py").write_text(CODE)
    run_here(write_small(folder, {"properties": PROPERTIES}))
    return folder


@pytest.fixture
def tempting(_tempting, tmp_path, monkeypatch):
    """A stranger's finished study with a plug-in, which this user has never seen."""
    folder = shutil.copytree(_tempting, tmp_path / "tempting")
    (folder / "tempting.ran").unlink()
    monkeypatch.delenv(ALLOW_PLUGINS)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.setenv("DIFFCREDIT_NOTES", str(tmp_path / "notes"))
    monkeypatch.delitem(sys.modules, "tempting", raising=False)
    return folder


def changes(evaluations):
    return {**SMALL, "properties": PROPERTIES, "stop.evaluations": evaluations}


def ran(folder):
    return (folder / "tempting.ran").exists()


RUNNING = ["plan", "pilot", "run", "measure", "baselines", "explain 0", "validate", "report", "verify --recompute 1"]
"""They need a study's code."""
READING = [name for name in COMMANDS if name not in {each.partition(" ")[0] for each in RUNNING}]


@pytest.mark.parametrize("line", RUNNING)
def test_a_command_refuses_code_that_nobody_allowed(tempting, line, diffcredit):
    name, *more = line.split()
    said = diffcredit.refused(name, tempting, *more)
    file = tempting / "tempting.py"
    assert said.startswith(f"error: {tempting / 'study.yaml'}: properties.1")
    assert (
        f"'tempting:warmth' would run {file} (sha256 {consent.code_hash(file)[:16]}…), and you have not allowed" in said
    )
    assert f"diffcredit trust {file}, or --allow-plugins" in said
    assert not ran(tempting)


@pytest.mark.parametrize("name", [*READING, "verify"])
def test_a_command_that_reads_runs_none(tempting, name, diffcredit):
    more = {"compare": [tempting], "export": [tempting / "study.zip"]}.get(name, [])
    code, _, said = diffcredit(name, tempting, *more, warned=True)
    assert not ran(tempting)
    assert "tempting:warmth" not in said
    assert code == 0 or name not in ("status", "credits", "verify", "export")


def test_what_is_allowed_runs(tempting, diffcredit, monkeypatch):
    file = tempting / "tempting.py"
    assert diffcredit.printed("trust", file).startswith(f"allowed: {file} (sha256 ")
    assert f"  {file}\n" in diffcredit.printed("trust", "--list")
    diffcredit.printed("report", tempting)
    assert ran(tempting)
    file.write_text(CODE + "# again\n")
    assert diffcredit.printed("trust", "--list").endswith(f"{file} (changed since)\n")
    assert "it has changed since you allowed it" in diffcredit.refused("verify", tempting, "--recompute", "1")
    diffcredit.printed("trust", tempting)  # all code in the folder
    assert diffcredit.printed("trust", "--forget", file) == "forgot 1\n"
    assert "is not allowed so far" in diffcredit.refused("trust", "--forget", file)
    assert "no file of Python code" in diffcredit.refused("trust", tempting / "study.yaml")
    assert "are expected" in diffcredit.refused("trust")


def consenting(tempting, *arguments, **environment):
    """Run a command in a process of its own, which has this test's environment."""
    environment = {**ENVIRONMENT, "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"], ALLOW_PLUGINS: "0", **environment}
    return subprocess.run(
        command(*arguments), env=environment, cwd=tempting, capture_output=True, text=True, timeout=300
    )


def test_consent_reaches_the_workers(tempting, tmp_path):
    """Of a command that is allowed by hash, by an option, or by the environment."""
    study = tempting / "study.yaml"
    for evaluations, options, variable in ((10, ["--allow-plugins"], "0"), (12, [], "1"), (14, [], "0")):
        write_study(tempting, changes(evaluations))
        refusal = consenting(tempting, "run", study, "--workers", "2")
        assert (refusal.returncode, ran(tempting)) == (2, False), refusal.stderr
        if evaluations == 14:
            assert consenting(tempting, "trust", tempting / "tempting.py").returncode == 0
        done = consenting(tempting, "run", study, "--workers", "2", *options, **{ALLOW_PLUGINS: variable})
        assert done.returncode == 0, done.stderr
        (tempting / "tempting.ran").unlink()
    assert {property for *_, property in recorded_values(tempting)} == {"colourfulness", "warmth"}
    assert len(recorded_values(tempting)) >= 14 * 2


def test_a_module_of_the_working_folder_stands_in_for_no_package(tempting):
    """``python -m`` puts that folder first."""
    for name in ("yaml", "typer", "tempting"):
        (tempting / f"{name}.py").write_text(CODE)
    done = consenting(tempting, "status", tempting)
    assert done.returncode == 0, done.stderr
    assert not list(tempting.glob("*.ran"))


@pytest.mark.parametrize("name", ["log.jsonl", "credits.csv", "report.html", "near-copies.html"])
def test_a_link_in_the_results_overwrites_nothing_elsewhere(small, tmp_path, name, diffcredit):
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    (small / "results" / name).unlink(missing_ok=True)
    (small / "results" / name).symlink_to(mine)
    diffcredit.printed("run", small, warned=True)
    diffcredit.printed("report", small, warned=True)
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("name", ["ledger.db", "models", "validation", ".locks"])
def test_a_link_out_of_the_project_is_refused(small, tmp_path, name, diffcredit, monkeypatch):
    monkeypatch.setenv(OUTSIDE, "")  # and is put back after what the option does
    (small / ".git").mkdir()
    (small / "results" / name).rename(small / "moved") if (small / "results" / name).exists() else None
    mine = tmp_path / "mine"
    mine.mkdir()
    (small / "results" / name).symlink_to(mine)
    for reading in ("run", "status", "credits", "report", "plan"):
        said = diffcredit.refused(reading, small)
        assert said.startswith(
            f"error: {small / 'study.yaml'}: results: {mine} is outside the study's project {small}, "
        )
    assert list(mine.iterdir()) == []


def test_results_may_be_elsewhere_where_the_user_says_so(tmp_path, diffcredit, monkeypatch):
    monkeypatch.setenv(OUTSIDE, "")
    study = write_small(tmp_path / "a" / "study", {"results": str(tmp_path / "results")})
    (study.parent / ".git").mkdir()
    assert "results: " in diffcredit.refused("run", study)
    assert not (tmp_path / "results").exists()
    diffcredit.printed("run", study, "--outside", tmp_path / "results", warned=True)
    assert (tmp_path / "results" / "report.html").exists()


def test_what_is_written_has_the_permissions_that_the_umask_leaves(tmp_path):
    study = write_small(tmp_path / "study", {"keep": "images"})
    script = ["sh", "-c", 'umask 077 && exec "$@"', "sh"]
    done = subprocess.run([*script, *command("run", study)], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    written = [*(tmp_path / "study" / "results").rglob("*")]
    assert {"report.html", "credits.csv", "ledger.db", "log.jsonl"} <= {place.name for place in written}
    assert any(place.name.startswith("images-") for place in written)
    assert any(place.suffix == ".safetensors" for place in (tmp_path / "study" / "results" / "models").rglob("*"))
    assert [place for place in written if place.stat().st_mode & 0o077] == []


@pytest.mark.parametrize(
    "links", [{"circle.png": "circle.png"}, {"a": "b", "b": "a"}, {"a.png": "b.png", "b.png": "a.png"}]
)
def test_links_in_a_circle_among_images(tmp_path, links, diffcredit):
    study = write_small(tmp_path)
    for name, target in links.items():
        (tmp_path / "images" / "ada" / name).symlink_to(target)
    if "a" in links:  # no image by its name
        diffcredit.printed("run", study, warned=True)
    else:
        said = diffcredit.refused("run", study)
        assert said.startswith(f"error: {study}: contributions: {tmp_path / 'images'}: ada/")
        assert "not a regular file; repair or remove it" in said


@pytest.mark.parametrize("key", ["contributions.path", "contributions.holdout", "results"])
def test_links_in_a_circle_where_a_study_file_points(tmp_path, key, diffcredit):
    (tmp_path / "circle").symlink_to("circle")
    code, _, said = diffcredit("run", write_small(tmp_path, {key: "circle/x"}))
    assert (code in (1, 2), said.count("\n")) == (True, 1)
    assert str(tmp_path / "circle") in said
