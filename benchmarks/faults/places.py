"""Where a campaign runs: on a file, on a server, on a cluster; and how that place itself fails."""

import os
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.postgres_server import Server, binaries, running_server

from benchmarks.faults.drivers import ENVIRONMENT

ROOM = 4_000_000  # bytes of the small disk that a ledger lies on
CPUS = 3  # of a node
AWAY = 1.5  # seconds that a database is away or locked


@dataclass(frozen=True)
class Place:
    """``ledger``: its URL or file; ``disk``: the small disk that it lies on; ``server`` or ``cluster``: what can be
    stopped."""

    name: str
    ledger: str
    disk: Path | None = None
    server: Server | None = None
    cluster: "Cluster | None" = None

    @property
    def address(self) -> str | None:
        return self.cluster.address if self.cluster else None

    @contextmanager
    def full_disk(self) -> Generator[None]:
        """Within, the ledger's disk has no room."""
        assert self.disk is not None
        filler = self.disk / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass
        try:
            yield
        finally:
            filler.unlink()


class Cluster:
    """A Ray cluster of two nodes beside its head, with room for three drivers' workers."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster as RayCluster

        os.environ |= {name: ENVIRONMENT[name] for name in ("PYTHONPATH", "RAY_USAGE_STATS_ENABLED")}
        head = {"num_cpus": 0, "include_dashboard": False}
        self._cluster: Any = RayCluster(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address
        self._nodes = [self._join(), self._join()]

    def kill_node(self, worker: int) -> None:
        """The raylet that a worker's process belongs to and all its workers; another node joins."""
        parent = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
        (node,) = [each for each in self._nodes if each.all_processes["raylet"][0].process.pid == parent]
        self._cluster.remove_node(node, allow_graceful=False)
        self._nodes.remove(node)
        self._nodes.append(self._join())

    def shutdown(self) -> None:
        self._cluster.shutdown()

    def _join(self) -> Any:
        return self._cluster.add_node(num_cpus=CPUS)


@contextmanager
def sqlite_place(folder: Path) -> Generator[Place]:
    """On a small disk of its own, where this process may mount one."""
    with small_disk() as disk:
        yield Place("SQLite", str((disk or folder) / "ledger.db"), disk)


@contextmanager
def postgres_place(folder: Path) -> Generator[Place]:
    programs = binaries()
    if programs is None:
        raise FileNotFoundError("PostgreSQL is not installed: initdb is not there")
    with running_server(programs) as server:
        yield Place("PostgreSQL", server.new_schema(), server=server)


@contextmanager
def ray_place(folder: Path) -> Generator[Place]:
    cluster = Cluster()
    try:
        yield Place("Ray", str(folder / "ledger.db"), cluster=cluster)
    finally:
        cluster.shutdown()


@contextmanager
def small_disk() -> Generator[Path | None]:
    """A file system in memory with room for :data:`ROOM` bytes; None where nobody may mount it."""
    with tempfile.TemporaryDirectory(prefix="diffcredit-disk-") as folder:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", folder]
        try:
            mounted = subprocess.run(mount, capture_output=True).returncode == 0
        except FileNotFoundError:
            mounted = False
        if not mounted:
            yield None
            return
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


@contextmanager
def server_away(server: Server) -> Generator[None]:
    """Stopped as by a crash."""
    server.stop()
    try:
        yield
    finally:
        server.start()


def restart(server: Server) -> None:
    with server_away(server):
        time.sleep(AWAY)
