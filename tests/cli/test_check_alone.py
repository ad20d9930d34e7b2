"""``diffcredit check`` with as little installed as docs/statements.md says: nothing else can be imported."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.report.made_up_payout import recorded

import diffcredit
from diffcredit.proofs.signing import load_key, new_key
from diffcredit.report.statements import Statement, statement_json

OF_TYPER = "click rich pygments markdown_it mdurl shellingham annotated_doc pydantic pydantic_core annotated_types"
NEEDED = {
    "typer": [*OF_TYPER.split(), "typing_extensions", "typing_inspection"],
    "pyyaml": ["yaml"],
    "cryptography": ["cffi", "_cffi_backend", "pycparser"],
    "pillow": ["PIL", "pillow.libs"],
    "numpy": ["numpy", "numpy.libs"],
}
"""What each of the packages on the page brings, beside its own name."""
PAGE = (Path(__file__).parents[2] / "docs" / "statements.md").read_text(encoding="utf-8")


def linked(folder: Path, *names: str) -> Path:
    """A folder that has these packages and no other."""
    folder.mkdir()
    (folder / "diffcredit").symlink_to(Path(diffcredit.__file__).parent)
    wanted = {part for package in names for part in (package, *NEEDED[package])}
    for found in Path(find_spec("typer").origin).parents[1].iterdir():
        if found.name in wanted or (found.suffix in (".py", ".so") and found.name.split(".")[0] in wanted):
            (folder / found.name).symlink_to(found)
    return folder


def ran(packages: Path, *arguments: object) -> subprocess.CompletedProcess:
    """``diffcredit`` with those packages alone. -S leaves out what else is installed."""
    code = f"import sys; sys.path.insert(0, {str(packages)!r}); from diffcredit.cli import main; main()"
    command = [sys.executable, "-I", "-S", "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def statement(tmp_path):
    new_key(tmp_path / "payer.key", "")
    for name, key in (("ann.json", None), ("signed.json", load_key(tmp_path / "payer.key"))):
        each = Statement(recorded(), recorded().payout.row("Ann"), "study.yaml", name, key=key)
        (tmp_path / name).write_text(statement_json(each), encoding="utf-8")
    return tmp_path / "ann.json"


def test_the_page_says_what_is_needed():
    (small,) = re.findall(r"^pip install (typer .*)$", PAGE, re.M)
    assert small.split() == ["typer", "pyyaml", "cryptography", "pillow", "numpy"]
    assert "pip install --no-deps ." in PAGE


def test_a_statement_alone(statement, tmp_path):
    packages = linked(tmp_path / "packages", "typer", "pyyaml")
    done = ran(packages, "check", statement, "--head", recorded().head)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"head after this payout is {recorded().head}. That is the head you gave." in done.stdout
    content = json.loads(statement.read_text())
    content["row"]["amount"] = "520.00"
    statement.write_text(json.dumps(content))
    done = ran(packages, "check", statement)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "its numbers do not lead to its head" in done.stderr
    for arguments in (["check", statement.with_name("signed.json")], ["keys", "new", tmp_path / "a.key"]):
        done = ran(packages, *arguments)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "this needs the package cryptography; pip install cryptography" in done.stderr


def test_with_a_signature_and_images(statement, tmp_path):
    packages = linked(tmp_path / "packages", *NEEDED)
    signed = statement.with_name("signed.json")
    done = ran(packages, "check", signed, "--key", tmp_path / "payer.key.pub")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"which is that of {tmp_path / 'payer.key.pub'}" in done.stdout
    code = "from diffcredit.contributions.works import files_by_hash; print(files_by_hash)"
    command = f"import sys; sys.path.insert(0, {str(packages)!r}); {code}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_check_could_have_failed(tmp_path):
    packages = linked(tmp_path / "packages", "typer", "pyyaml")
    assert find_spec("sqlalchemy")
    done = ran(packages, "verify", tmp_path)
    assert "ModuleNotFoundError" in done.stderr
