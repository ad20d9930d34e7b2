import hashlib
import json
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("cyclonedx", reason="SBOMs need the extra 'release'")

from release.lock import LOCK, read_lock

from release import sbom

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    sbom.main(tmp_path)
    return tmp_path / f"diffcredit-{PROJECT['version']}.cdx.json"


def test_every_locked_package_and_torch_are_listed(written):
    listed = {each["name"]: each for each in json.loads(written.read_text())["components"]}
    locked = read_lock(LOCK.read_text(encoding="utf-8"))
    bundled = {each.name for each in sbom.bundled_data().values()}
    assert listed.keys() == {each.name for each in locked} | {"torch"} | bundled
    for each in locked:
        files = listed[each.name]["externalReferences"][0]
        assert listed[each.name]["purl"] == f"pkg:pypi/{each.name}@{each.version}"
        assert {found["content"] for found in files["hashes"]} == set(each.hashes)
    assert "version" not in listed["torch"]
    assert listed["torch"]["properties"][0]["value"].startswith("torch>=")


def test_what_is_bundled_has_its_licence(written):
    of_others = set(PROJECT["license-files"]) - {"LICENSE"}
    assert sbom.bundled_data().keys() == of_others
    listed = {each["name"]: each for each in json.loads(written.read_text())["components"]}
    licences = {listed[each.name]["licenses"][0]["license"]["id"] for each in sbom.bundled_data().values()}
    own = json.loads(written.read_text())["metadata"]["component"]["licenses"][0]["expression"]
    assert licences | {"Apache-2.0"} == set(own.split(" AND "))


def test_it_says_what_needs_what(written):
    needs = {each["ref"]: set(each.get("dependsOn", ())) for each in json.loads(written.read_text())["dependencies"]}
    assert {"torch", "numpy", "openmoji-subset"} <= needs["diffcredit"]
    assert "mdurl" not in needs["diffcredit"]
    assert "mdurl" in needs["markdown-it-py"]


def test_the_same_release_gives_the_same_bytes(written, tmp_path):
    first = hashlib.sha256(written.read_bytes()).hexdigest()
    sbom.main(tmp_path)
    assert hashlib.sha256(written.read_bytes()).hexdigest() == first
    assert json.loads(written.read_text())["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
