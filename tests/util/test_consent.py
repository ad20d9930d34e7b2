"""Consent to run code: by the hash of a file, in the user's own configuration."""

import py_compile
import shutil
import stat
import sys
from pathlib import Path

import pytest

from diffcredit.errors import UserError
from diffcredit.util import consent
from diffcredit.util.consent import ALLOW_PLUGINS, NO_PLUGINS, code_hash, grant, trust
from diffcredit.util.plugins import build

CODE = "from pathlib import Path\nPath(__file__).with_name('{0}.ran').touch()\nclass Thing:\n    pass\n"


@pytest.fixture(autouse=True)
def nobody_asked(tmp_path, monkeypatch):
    """A user who has allowed nothing, and no modules of other tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.delenv(ALLOW_PLUGINS)
    monkeypatch.delenv(NO_PLUGINS, raising=False)
    monkeypatch.setattr("diffcredit.util.guarded._folders", [])
    before = set(sys.modules)
    yield
    grant(())
    for name in set(sys.modules) - before:
        if "stranger" in name:
            del sys.modules[name]


@pytest.fixture
def beside(tmp_path):
    """A stranger's folder, whose modules leave traces when they run."""
    folder = tmp_path / "beside"
    folder.mkdir()
    (folder / "stranger.py").write_text(CODE.format("stranger"))
    return folder


def made(beside, reference="stranger:Thing", **options):
    return build(reference, options, {}, where="s.yaml: properties.0", beside=beside)


def refused(beside, reference="stranger:Thing", **options):
    with pytest.raises(UserError) as raised:
        made(beside, reference, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def ran(beside):
    return sorted(file.stem for file in beside.rglob("*.ran"))


def test_a_file_runs_once_its_hash_is_allowed_and_until_it_changes(beside):
    file = beside / "stranger.py"
    said = refused(beside)
    assert said.startswith(f"s.yaml: properties.0: 'stranger:Thing' would run {file} (sha256 {code_hash(file)[:16]}…)")
    assert f"you have not allowed it: read it, then diffcredit trust {file}, or --allow-plugins" in said
    assert ran(beside) == []
    trust([file])
    made(beside)
    assert ran(beside) == ["stranger"]
    file.write_text(file.read_text() + "# another\n")
    assert "it has changed since you allowed it" in refused(beside)
    trust([file])
    made(beside)
    assert list(consent.trusted().items()) == [(code_hash(file), str(file))]  # no longer as it was
    consent.forget([code_hash(file)])
    assert "you have not allowed it" in refused(beside)


def test_consent_is_kept_where_only_its_user_writes(beside):
    trust([beside / "stranger.py"])
    assert stat.S_IMODE(consent.trust_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(consent.trust_file().parent.stat().st_mode) == 0o700
    consent.trust_file().chmod(0o620)
    assert "others may write it" in refused(beside)


def test_the_switches(beside, monkeypatch):
    monkeypatch.setenv(ALLOW_PLUGINS, "0")
    refused(beside)
    monkeypatch.setenv(ALLOW_PLUGINS, "1")
    monkeypatch.setenv(NO_PLUGINS, "1")  # the stronger
    assert "is a plug-in, and they are off" in refused(beside)
    trust([beside / "stranger.py"])
    assert "is a plug-in, and they are off" in refused(beside)
    assert ran(beside) == []
    consent.forget(consent.trusted())
    monkeypatch.delenv(NO_PLUGINS)
    made(beside)
    assert ran(beside) == ["stranger"]


def test_what_a_driver_grants_is_for_its_own_code(beside):
    grant([code_hash(beside / "stranger.py")])
    made(beside)
    grant(["0" * 64])
    refused(beside)


@pytest.mark.parametrize("helper", ["stranger_help.py", "stranger_help/__init__.py", "stranger_help/parts/colour.py"])
def test_what_a_plug_in_imports_from_beside_is_asked_about_too(beside, helper):
    """In a module, a package, and a folder without ``__init__``."""
    (beside / helper).parent.mkdir(parents=True, exist_ok=True)
    (beside / helper).write_text(CODE.format("helper"))
    module = helper.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    (beside / "stranger.py").write_text(f"from {module} import Thing\n")
    trust([beside / "stranger.py"])
    assert f"import {module} would run {beside / helper} " in refused(beside)
    assert ran(beside) == []
    trust([beside / helper])
    made(beside)
    assert len(ran(beside / helper.rpartition("/")[0])) == 1


def test_bytecode_beside_it_is_not_what_runs(beside):
    """It may be of another program, for Python compares only the source's size and time with what it says itself."""
    file, cached = beside / "stranger.py", beside / "__pycache__" / f"stranger.{sys.implementation.cache_tag}.pyc"
    (beside / "evil.py").write_text(CODE.format("evil"))
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(beside / "evil.py"), str(cached), dfile=str(file), invalidation_mode=mode)
    trust([file])
    made(beside)
    assert ran(beside) == ["stranger"]


def test_modules_of_a_virtual_environment_within_the_folder_are_installed_ones(beside, monkeypatch):
    packages = beside / ".venv" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "stranger_installed.py").write_text(CODE.format("installed"))
    monkeypatch.syspath_prepend(str(packages))
    (beside / "stranger.py").write_text("import stranger_installed\nclass Thing: pass\n")
    trust([beside / "stranger.py"])
    made(beside)
    assert ran(packages) == ["installed"]


@pytest.mark.parametrize(
    ("reference", "options"),
    [
        ("subprocess:getoutput", {"cmd": "touch {0}/shell.ran"}),
        ("os:system", {"command": "touch {0}/shell.ran"}),
        ("posix:system", {"command": "touch {0}/shell.ran"}),
        ("builtins:open", {"file": "{0}/opened.ran", "mode": "w"}),
        ("diffcredit.util.artifacts:write_text", {"path": "{0}/written.ran", "text": ""}),
        ("stranger:getoutput", {"cmd": "touch {0}/shell.ran"}),
    ],
)
def test_a_study_file_calls_no_function_of_what_is_installed(beside, reference, options):
    (beside / "stranger.py").write_text("from subprocess import getoutput\nclass Thing: pass\n")
    trust([beside / "stranger.py"])
    refused(beside, reference, **{name: text.format(beside) for name, text in options.items()})
    assert ran(beside) == []
    made(beside)


def test_an_installed_plug_in_is_allowed_by_its_file(beside, tmp_path, monkeypatch):
    package = tmp_path / "site" / "stranger_package"
    shutil.copytree(beside, package)
    (package / "__init__.py").write_text("from stranger_package.stranger import Thing\n")
    monkeypatch.syspath_prepend(str(package.parent))
    assert f"would run {package / '__init__.py'} " in refused(Path(), "stranger_package:Thing")
    assert ran(package) == []
    trust([package / "__init__.py"])  # the rest of it was installed with it
    made(Path(), "stranger_package:Thing")
