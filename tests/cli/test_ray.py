"""``diffcredit run --on ray``: the same numbers, also from a node that sees none of the study's files."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tiny_study import ENVIRONMENT, command, images_of, recorded_values, rows, run_here, write_study

pytest.importorskip("ray", reason='ray is not installed: pip install "diffcredit[cluster]"')

CHANGES = {
    "stop.evaluations": 5,
    "contributions": {"path": "images", "resolution": 16, "holdout": 0.25},
    "properties": [
        "warmth:warmth",
        {"name": "kid", "features": "pixels", "reference": "reference"},
        {"name": "cluster_entropy", "clusters": 2},
    ],
}
WARMTH = """
from shades import red, blue

def warmth(images):
    return float(red(images) - blue(images))
"""
SHADES = """
def red(images):
    return images[..., 0].mean()

def blue(images):
    return images[..., 2].mean()
"""


def study_in(folder: Path) -> Path:
    images_of(folder / "images", ["ann", "bob", "cid"])
    images_of(folder / "reference", ["any"])
    (folder / "warmth.py").write_text(WARMTH)
    (folder / "shades.py").write_text(SHADES)
    return write_study(folder, CHANGES)


@pytest.fixture
def head() -> Iterator[Any]:
    """The head of a cluster, which has no room for workers."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        yield cluster
        cluster.shutdown()


@contextmanager
def blind_node(address: str, hidden: Path, temporary: Path) -> Iterator[None]:
    """A node to which ``hidden`` is an empty folder; its temporary files go to ``temporary``."""
    script = 'mount -t tmpfs none "$0" && exec "$@"'
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--address", address, "--num-cpus", "1", "--block"]
    # its user has allowed no plug-ins; the driver's has
    environment = {**ENVIRONMENT, "DIFFCREDIT_ALLOW_PLUGINS": "0", "RAY_TMPDIR": "/tmp", "TMPDIR": str(temporary)}
    source = os.pathsep.join(path for path in sys.path if path.endswith("src"))
    process = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script, str(hidden), *ray],
        env={**environment, "PYTHONPATH": source},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def may_hide_folders() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not may_hide_folders(), reason="this user may not hide folders from a process (unshare --mount)")
def test_the_same_numbers_from_a_node_that_sees_none_of_the_files(head, tmp_path):
    here, there, node = tmp_path / "here", tmp_path / "there", tmp_path / "node"
    node.mkdir()
    run_here(study_in(here))
    file = study_in(there)
    with blind_node(head.address, there, node):
        done = subprocess.run(
            command("run", file, "--on", "ray", "--address", head.address),
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    assert recorded_values(there) == recorded_values(here)
    assert len(recorded_values(there)) >= 5 * 3
    assert len({worker for (worker,) in rows(there, "SELECT worker FROM evaluations")}) == 1
    for noise in ("ray::", "(raylet", "INFO", "pid="):  # Ray's own words
        assert noise not in done.stdout + done.stderr
    # the files came, and what was prepared here was not made anew there
    (models,) = node.glob("diffcredit-*/*/*/results/models")
    assert {path.name for path in models.iterdir()} <= {path.name for path in (there / "results/models").iterdir()}
    assert len(list(models.glob("property-*"))) == 2
    assert not list((there / "results").glob(".driver-*"))
