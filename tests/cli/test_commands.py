"""What all commands share: help, exit codes, and complaints of one line."""

import subprocess

import pytest

from diffcredit.execution.versions import package_versions
from tiny_study import ENVIRONMENT, command, files_below, write_study


def test_as_a_module():
    failed = subprocess.run(command("status", "nowhere.yaml"), capture_output=True, text=True, env=ENVIRONMENT)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr == (
        "error: nowhere.yaml: cannot be read (No such file or directory); a study file is expected\n"
    )


def test_version_and_help(diffcredit):
    assert diffcredit("--version")[1] == f"diffcredit {package_versions().get('diffcredit', '(not installed)')}\n"
    out = diffcredit.printed("--help")
    for name in ("demo", "init", "plan", "pilot", "run", "measure", "status", "credits", "report"):
        assert f" {name} " in out
        assert diffcredit(name, "--help")[0] == 0


@pytest.mark.parametrize(
    "arguments", [["rum"], ["run"], ["run", "x.yaml", "--workers", "0"], ["credits", "x.yaml", "--confidence", "95"]]
)
def test_wrong_usage(diffcredit, arguments):
    code, out, err = diffcredit(*arguments)
    assert (code, out, "Traceback" in err) == (2, "", False)


@pytest.mark.parametrize("name", ["plan", "pilot", "run", "status", "credits", "report"])
def test_a_mistake_in_a_file_is_one_line(diffcredit, tmp_path, name):
    file = write_study(tmp_path, {"sampling.imgs": 3})
    code, out, err = diffcredit(name, file)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: {file}: sampling.imgs: unknown key; accepted: ")
    assert files_below(tmp_path) == {"study.yaml"}


@pytest.mark.parametrize("name", ["run", "status", "credits"])
def test_a_ledger_that_is_no_database(diffcredit, tmp_path, name):
    file = write_study(tmp_path, {"ledger": "other.db"})
    (tmp_path / "other.db").write_text("not a database, but long enough to be mistaken for one\n" * 10)
    code, _, err = diffcredit(name, file)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"error: {tmp_path}/other.db: cannot be opened as a ledger (")


def test_results_that_cannot_be_written(diffcredit, tmp_path):
    (tmp_path / "taken").write_text("a file where the folder should be")
    code, _, err = diffcredit("run", write_study(tmp_path, {"results": "taken/here"}))
    assert (code, err) == (1, f"error: {tmp_path}/taken/here: Not a directory\n")


def test_plan_and_baselines_find_mistakes_before_a_model_is_trained(diffcredit, tmp_path):
    file = write_study(tmp_path, {"properties": [{"name": "colorfulness"}]})
    for arguments in (["plan"], ["baselines"], ["baselines", "--method", "image_count"]):
        code, out, err = diffcredit(arguments[0], file, *arguments[1:])
        assert (code, err.count(str(file)), err.count("\n"), "training" in out) == (2, 1, 1, False), err
        assert err.startswith(f"error: {file}: properties.0: 'colorfulness' is unknown; accepted: colourfulness, ")
