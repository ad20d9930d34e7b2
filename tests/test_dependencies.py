"""Versions: what users may bring, what the tests use, and what a release locks."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from release.lock import EXTRAS, LOCK, read_lock

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORE = PROJECT["dependencies"]
OPTIONAL = PROJECT["optional-dependencies"]
FOR_GPUS = {"8bit", "timm"}  # extras that no test installs
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINS = {canonicalize_name(name): Version(version) for name, version in (line.split("==") for line in LINES[1:])}

TESTED = [*CORE, *(each for extra, several in OPTIONAL.items() if extra not in FOR_GPUS for each in several)]


@pytest.mark.parametrize("line", sorted(set(TESTED)))
def test_a_requirement_has_a_floor_that_the_tested_version_reaches(line):
    requirement = Requirement(line)
    assert [each.operator for each in requirement.specifier] == [">="]
    assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)], prereleases=True)


def test_a_package_has_one_floor():
    floors = {}
    for line in [*CORE, *(each for several in OPTIONAL.values() for each in several)]:
        requirement = Requirement(line)
        floors.setdefault(canonicalize_name(requirement.name), set()).add(str(requirement.specifier))
    assert {name: found for name, found in floors.items() if len(found) > 1} == {}


def test_the_lock_has_what_a_release_runs_with_in_the_tested_versions():
    locked = {each.name: Version(each.version) for each in read_lock(LOCK.read_text(encoding="utf-8"))}
    asked = [*CORE, *(each for extra in EXTRAS for each in OPTIONAL[extra])]
    missing = {canonicalize_name(Requirement(line).name) for line in asked} - {"torch", *locked}
    assert missing == set()
    assert {name: version for name, version in locked.items() if PINS.get(name, version) != version} == {}


def test_the_lock_has_no_torch_no_index_and_no_path():
    text = LOCK.read_text(encoding="utf-8")
    names = {each.name for each in read_lock(text)}
    assert names.isdisjoint({"torch", "triton"})
    assert not any(name.startswith(("cuda-", "nvidia-")) for name in names)
    assert re.findall(r"^\s*--(?!hash=)|://| @ |^\s*[./]", text, re.MULTILINE) == []


def test_the_docs_install_the_tested_torch():
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert re.findall(r"torch==([\d.]+)", text) == [str(PINS["torch"])]
