"""``diffcredit run --on ray``: the same numbers, also from a node that sees none of the study's files."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tiny_study import ENVIRONMENT, command, images_of, recorded_values, rows, run_here, write_small, write_study

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

HEAD = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


def study_in(folder: Path) -> Path:
    images_of(folder / "images", ["ann", "bob", "cid"])
    images_of(folder / "reference", ["any"])
    (folder / "warmth.py").write_text(WARMTH)
    (folder / "shades.py").write_text(SHADES)
    return write_study(folder, CHANGES)


def listening(process: subprocess.Popen) -> set[tuple[str, str]]:
    """The programs that listen, with their interfaces, among the children of a process until it ends."""
    psutil = pytest.importorskip("psutil")
    found = set()
    while process.poll() is None:
        with suppress(psutil.Error):
            driver = psutil.Process(process.pid)
            for each in [driver, *driver.children(recursive=True)]:
                with suppress(psutil.Error):
                    sockets = each.net_connections("inet")
                    found |= {(each.name(), socket.laddr.ip) for socket in sockets if socket.status == "LISTEN"}
        time.sleep(0.05)
    return found


def test_a_cluster_of_its_own_is_reached_from_this_machine_alone(tmp_path):
    """And only with its token, which is left in no file."""
    study = write_small(tmp_path / "study", {"stop.evaluations": 5})
    (tmp_path / "home").mkdir()
    environment = {**ENVIRONMENT, "HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home")}
    line = command("run", study, "--on", "ray", "--workers", "1")
    process = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    found = listening(process)
    assert process.returncode == 0, process.stderr.read()
    assert {"gcs_server", "raylet"} <= {program for program, _ in found}
    assert {interface.removeprefix("::ffff:") for _, interface in found} == {"127.0.0.1"}
    assert not (tmp_path / "home/.ray").exists()


def test_a_cluster_that_asks_for_a_token(tmp_path):
    """Joined with its token, and refused with a reason without."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
    program = [sys.executable, "-c", HEAD]
    environment = {**ENVIRONMENT, "HOME": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(program, env={**environment, **token}, text=True, **pipes) as cluster:
        address = cluster.stdout.readline().strip()
        line = command("run", write_small(tmp_path, {"stop.evaluations": 5}), "--on", "ray", "--address", address)
        ours = {"RAY_AUTH_MODE": "token"}
        without, joined = (
            subprocess.run(line, env={**environment, **each}, capture_output=True, text=True) for each in (ours, token)
        )
        cluster.stdin.close()
    assert (without.returncode, without.stderr.count("\n")) == (2, 1)
    assert f"--address {address}: no Ray cluster can be reached there (Token authentication is" in without.stderr
    assert "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH as on its head" in without.stderr
    assert joined.returncode == 0, joined.stderr


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
