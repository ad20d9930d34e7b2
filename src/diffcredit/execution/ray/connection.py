"""A driver's connection to a Ray cluster."""

import logging
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from diffcredit.errors import UserError

ANSWER_WITHIN = 10.0  # seconds, of a cluster's head


def imported_ray() -> Any:
    # before it is imported; set it to 1 to send Ray's makers usage reports
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise UserError('a Ray cluster needs ray: pip install "diffcredit[cluster]"') from None
    return ray


@contextmanager
def connected(ray: Any, address: str | None) -> Generator[None]:
    """Connect to the cluster within. An existing connection is used, and stays."""
    if ray.is_initialized():
        yield
        return
    if address is not None:
        _check_address(address)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        try:
            ray.init(address=address or "auto", **quiet)
        except ConnectionError:
            if address is not None:
                raise
            ray.init(address="local", include_dashboard=False, **quiet)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise UserError(f"--address {address}: no Ray cluster can be reached there ({one_line(error)})") from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Refuse an address at which nobody answers; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(f"--address {address}: HOST:PORT is accepted, such as 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), ANSWER_WITHIN).close()
    except OSError as error:
        raise UserError(f"--address {address}: nobody answers there ({error}); is the cluster's head up?") from None


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]
