"""A Ray cluster of a run's own, which nobody else reaches: it listens on this machine alone, and asks for a token.

Whoever reaches a Ray cluster can run programs on it, and Ray listens on all interfaces, whatever address it is given.
It does not where it takes the machine for one that joins no clusters, which is its default on macOS and Windows.
"""

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from diffcredit.errors import DiffcreditError
from diffcredit.execution.threads import environment

LOOPBACK = "127.0.0.1"
JOINS_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
MODE, TOKEN, TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"

_token = secrets.token_hex(32)  # one for a process: Ray reads it once


@contextmanager
def own_cluster() -> Generator[None]:
    """Start a cluster within, and use it: on the loopback interface, with a token of its own unless this user has one.
    Ray would write a new one to a file that others may read. ``RAY_AUTH_MODE=disabled`` does without."""
    constants, mode = vars(import_module("ray._private.ray_constants")), os.environ.get(MODE)
    joins = constants.get("ENABLE_RAY_CLUSTER", True)
    constants["ENABLE_RAY_CLUSTER"] = False
    try:
        with environment({JOINS_CLUSTERS: "0"} | ({} if _has_token() else {TOKEN: _token})):
            yield
    finally:
        constants["ENABLE_RAY_CLUSTER"] = joins
        if mode is None:  # Ray sets it for all that this process starts later
            os.environ.pop(MODE, None)


def check_own_cluster(ray: Any) -> None:
    """Refuse a cluster, just started, that other machines reach."""
    if other := {node["NodeManagerAddress"] for node in ray.nodes()} - {LOOPBACK}:
        ray.shutdown()
        raise DiffcreditError(
            f"ray {ray.__version__} listens on {', '.join(sorted(other))} and not on this machine alone; start a "
            "cluster yourself where that is meant (ray start --head) and give its --address, or run without --on ray"
        )


def refusal(address: str | None, reason: str) -> str:
    """Return why the cluster at ``address`` was not joined, or none was started here."""
    if address is None:
        return f"--on ray: no cluster can be joined or started here ({reason})"
    return (
        f"--address {address}: no Ray cluster can be reached there ({reason.partition('. ')[0]}); if it asks for a "
        f"token, set {MODE}=token, and {TOKEN} or {TOKEN_FILE} as on its head"
    )


def _has_token() -> bool:
    return TOKEN in os.environ or TOKEN_FILE in os.environ or (Path.home() / ".ray" / "auth_token").exists()
