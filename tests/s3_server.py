"""A server of the S3 protocol in a thread of this process, and a line to it that stalls."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

ACCOUNT = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}


class Server:
    """What it holds outlives a stop."""

    def __init__(self) -> None:
        self.port = 0
        self.start()

    def start(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server: Any = ThreadedMotoServer("127.0.0.1", self.port, verbose=False)
        self._server.start()
        self.port = self._server.get_host_and_port()[1]

    def stop(self) -> None:
        self._server.stop()


@contextmanager
def stalling_line(port: int, after: int) -> Iterator[tuple[int, threading.Event]]:
    """A port that leads to ``port`` and lets nothing more through once ``after`` bytes have gone there; the event tells
    that it has come to that."""
    stalled = threading.Event()
    passed = 0

    def forward(source: socket.socket, target: socket.socket, counted: bool) -> None:
        nonlocal passed
        with suppress(OSError), source, target:
            while block := source.recv(65_536):
                passed += len(block) if counted else 0
                if counted and passed > after:
                    stalled.set()
                    while source.recv(65_536):  # until the sender is gone
                        stalled.wait()
                    return
                target.sendall(block)

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", port))
                for arguments in ((near, far, True), (far, near, False)):
                    threading.Thread(target=forward, args=arguments, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1], stalled
