"""A stranger's study under ``--no-plugins``: refused by its key, and nothing that lies beside it is imported."""

import inspect
import sys

import pytest

from diffcredit.cli import app
from diffcredit.study.prepared import build_family, build_properties
from diffcredit.study.study import Study
from diffcredit.util.plugins import NO_PLUGINS
from tiny_study import write_study

KEYS = {
    "contributions.source": {"contributions": {"source": "hostile_plugin:Thing", "path": "."}},
    "model.family": {"model.family": "hostile_plugin:Thing"},
    "retraining.method": {"retraining": {"method": "hostile_plugin:Thing"}},
    "properties.0.name": {"properties": ["hostile_plugin:Thing"]},
    "properties.0.features": {"properties": [{"name": "cluster_entropy", "features": "hostile_plugin:Thing"}]},
    "properties.0.features.name": {
        "properties": [{"name": "cluster_entropy", "features": {"name": "hostile_plugin:Thing"}}]
    },
    "surrogates.0.name": {"surrogates": ["hostile_plugin:Thing"]},
    "validation.retrainings.0.method": {"validation": {"retrainings": [{"method": "hostile_plugin:Thing"}]}},
}
COMMANDS = [
    command.callback.__name__
    for command in app.registered_commands
    if {"study", "a"} & set(inspect.signature(command.callback).parameters)
]


@pytest.fixture
def hostile(tmp_path):
    """A folder with a module that leaves a trace when it is imported."""
    code = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"
    (tmp_path / "hostile_plugin.py").write_text(code)
    yield tmp_path
    sys.modules.pop("hostile_plugin", None)


def ran(folder):
    return [file.name for file in folder.rglob("*.ran")]


@pytest.mark.parametrize("key", KEYS)
def test_the_key_is_named(hostile, key, diffcredit, monkeypatch):
    monkeypatch.setenv(NO_PLUGINS, "1")
    study = write_study(hostile, KEYS[key])
    code, _, said = diffcredit("run", study)
    assert (code, ran(hostile)) == (2, [])
    assert said == (
        f"error: {study}: {key}: 'hostile_plugin:Thing' is a plug-in, and they are off "
        "(--no-plugins or DIFFCREDIT_NO_PLUGINS)\n"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_reads_a_study_has_the_option(hostile, name, diffcredit, monkeypatch):
    monkeypatch.setenv(NO_PLUGINS, "0")  # and is put back after what the option does
    study = write_study(hostile, KEYS["properties.0.name"])
    more = {"explain": ["0"], "compare": [study], "export": [hostile / "study.zip"]}.get(name, [])
    code, _, said = diffcredit(name, study, *more, "--no-plugins")
    assert code == 2
    assert "properties.0.name: 'hostile_plugin:Thing' is a plug-in" in said
    assert ran(hostile) == []


@pytest.mark.parametrize(
    ("name", "option"), [("baselines", "--method"), ("measure", "--property"), ("explain", "--method")]
)
def test_nor_from_the_command_line(hostile, name, option, diffcredit, monkeypatch):
    monkeypatch.setenv(NO_PLUGINS, "0")
    more = ["0"] if name == "explain" else []
    study = write_study(hostile)
    code, _, said = diffcredit(name, study, *more, option, "hostile_plugin:Thing", "--no-plugins")
    assert code == 2
    assert "'hostile_plugin:Thing' is a plug-in" in said
    assert ran(hostile) == []


def test_our_own_components_need_no_plug_ins(hostile, monkeypatch):
    """And no module beside the study can stand in for a package that is not installed."""
    monkeypatch.setenv(NO_PLUGINS, "1")
    monkeypatch.setattr(sys, "path", list(sys.path))
    study = Study.load(write_study(hostile))
    build_family(study.config, study.file)
    build_properties(study.config, study.file)
    study.recipe.build()
    assert str(hostile) not in sys.path
    assert ran(hostile) == []


def test_without_the_switch_a_plug_in_runs(hostile, diffcredit, monkeypatch):
    """So that the tests above could have failed."""
    monkeypatch.setenv(NO_PLUGINS, "0")
    monkeypatch.setattr(sys, "path", list(sys.path))
    code, _, said = diffcredit("run", write_study(hostile, KEYS["contributions.source"]))
    assert code == 2
    assert "'hostile_plugin:Thing' cannot be loaded (AttributeError" in said
    assert ran(hostile) == ["hostile_plugin.ran"]
