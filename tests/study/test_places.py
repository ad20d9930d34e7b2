"""Where a study may write."""

import os
from pathlib import Path

import pytest

from diffcredit.errors import UserError
from diffcredit.study.places import FOLDERS, OUTSIDE, project_of
from diffcredit.study.study import Study
from tiny_study import write_study


@pytest.fixture
def project(tmp_path):
    """A repository with a study in one of its folders, and what lies beside it."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "project"


def loaded(project, **changes):
    return Study.load(write_study(project / "studies" / "one", changes))


def refused(project, **changes):
    with pytest.raises(UserError) as raised:
        loaded(project, **changes)
    assert "\n" not in str(raised.value)
    return str(raised.value)


PLACES = {
    "results": ["../../results", ".", "deep/er", "{project}/results"],
    "artifacts": ["../../artifacts", "file://{project}/artifacts", "s3://bucket/prefix", "memory://x"],
    "ledger": [
        "../../ledger.db",
        "sqlite:///{project}/x.db",
        "sqlite://",
        "postgresql+psycopg://u:p@host/db?sslmode=require",
    ],
}
REFUSED = {
    "results": ["../../../elsewhere", "{project}/../elsewhere/new", "../../../project-two", "/etc"],
    "artifacts": ["../../../elsewhere", "file://{project}/../elsewhere", "file://~/elsewhere", "/"],
    "ledger": ["../../../elsewhere/ledger.db", "sqlite:///{project}/../x.db", "sqlite+pysqlite:////etc/x.db"],
}


@pytest.mark.parametrize(("key", "place"), [(key, place) for key, places in PLACES.items() for place in places])
def test_within_the_project(project, key, place):
    loaded(project, **{key: place.format(project=project)})


@pytest.mark.parametrize(("key", "place"), [(key, place) for key, places in REFUSED.items() for place in places])
def test_outside_of_it(project, key, place, monkeypatch):
    place = place.format(project=project)
    said = refused(project, **{key: place})
    assert said.startswith(f"{project / 'studies/one/study.yaml'}: {key}: /")
    assert said.endswith(
        f"is outside the study's project {project}; --outside DIR, or {OUTSIDE}, allows what lies in DIR"
    )
    elsewhere = [project.parent, "/etc", Path.home()] if place != "/" else ["/"]
    monkeypatch.setenv(OUTSIDE, os.pathsep.join(map(str, elsewhere)))
    loaded(project, **{key: place})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"artifacts": "reference://x"}, "artifacts: reference://x: unknown kind of URL; accepted: a folder, or one"),
        ({"artifacts": "simplecache::s3://me:pw@b"}, "unknown kind of URL"),
        (
            {"ledger": "mysql://me:pw@host/x"},
            "ledger: 'mysql'://… is not accepted; a file is, or a URL that begins with",
        ),
        ({"ledger": "postgresql+asyncpg://me:pw@host/x"}, "ledger: 'postgresql+asyncpg'://… is not accepted"),
        ({"ledger": "sqlite:///file:/etc/x?uri=true"}, "ledger: sqlite://…?uri=… is not accepted; leave it out"),
        ({"ledger": "postgresql://host/x?plugin=mine"}, "ledger: postgresql://…?plugin=… is not accepted"),
    ],
)
def test_other_kinds_of_place(project, changes, said):
    message = refused(project, **changes)
    assert said in message
    assert "pw" not in message


def test_without_a_repository_the_folder_above_belongs_to_it(project):
    (project / ".git").rmdir()
    loaded(project, results="../results")
    assert "is outside the study's project" in refused(project, results="../../results")
    assert project_of(Path("/study/study.yaml")) == Path("/study")  # not all there is


def test_a_repository_of_the_whole_home_is_no_project(project, monkeypatch):
    monkeypatch.setenv("HOME", str(project))
    assert "is outside the study's project" in refused(project, results="../../results")


@pytest.mark.parametrize("name", [*FOLDERS, "ledger.db", "ledger.db-wal", "models/contributors", "kept/recipe"])
def test_links_that_lead_out(project, name, monkeypatch):
    link = project / "studies/one/results" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(project.parent / "elsewhere")
    said = refused(project)
    assert (
        f"results: {project.parent / 'elsewhere'} is outside the study's project {project}, through the link {link};"
        in said
    )
    monkeypatch.setenv(OUTSIDE, str(project.parent / "elsewhere"))
    loaded(project)
    monkeypatch.delenv(OUTSIDE)
    link.unlink()
    link.symlink_to(project / "inside")
    loaded(project)


def test_the_results_themselves_as_a_link(project):
    (project / "studies/one").mkdir(parents=True)
    (project / "studies/one/results").symlink_to(project.parent / "elsewhere")
    assert f"results: {project.parent / 'elsewhere'} is outside" in refused(project)


def test_other_links_are_not_our_business(project):
    (project / "studies/one").mkdir(parents=True)
    (project / "studies/one/images").symlink_to(project.parent / "elsewhere")
    loaded(project, results=".")
