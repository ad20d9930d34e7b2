"""What runs inside a worker process.

It is sent a factory and then tasks, one at a time; it answers with ``Ready`` or ``CannotStart`` and then with one
evaluation for each task. Another factory takes the place of the first. It ends when the connection does, or when its
machine is in trouble, which it tells as ``InTrouble``: what it held is free for the one that takes its place.
"""

import os
import signal
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from diffcredit.errors import UserError
from diffcredit.execution.tasks import Evaluator, EvaluatorFactory, Task, evaluate_one
from diffcredit.execution.threads import limited_threads
from diffcredit.execution.troubles import MachineTrouble, Trouble, told


@dataclass(frozen=True)
class Ready:
    """The evaluator is built."""


@dataclass(frozen=True)
class CannotStart:
    """The factory raised: a user's mistake with its message, or something else with its traceback."""

    message: str
    users_mistake: bool


@dataclass(frozen=True)
class InTrouble:
    """Memory or disk ran out, or the like, with the traceback; the worker is of no more use."""

    trouble: Trouble
    message: str


def work(connection: Connection, threads: int, driver: int) -> None:
    """A worker's life; ``driver`` is the process that started it."""
    # Ctrl-C reaches every process of the terminal; the driver alone decides what it means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(driver,), daemon=True).start()
    with limited_threads(threads), suppress(EOFError, BrokenPipeError, ConnectionResetError):
        # received, not given at the start, so that what the factory imports finds the threads limited
        evaluator = _build(connection, connection.recv())
        while evaluator is not None:
            message = connection.recv()
            if isinstance(message, Task):
                try:
                    connection.send(evaluate_one(evaluator, message))
                except MachineTrouble as trouble:
                    connection.send(InTrouble(trouble.trouble, str(trouble)))
                    return
            else:
                evaluator = None  # before the next one is built: both may not fit into memory
                evaluator = _build(connection, message)


def _build(connection: Connection, factory: EvaluatorFactory) -> Evaluator | None:
    try:
        evaluator = factory()
    except UserError as error:
        connection.send(CannotStart(str(error), users_mistake=True))
    except Exception as error:
        message = f"a worker could not build its evaluator:\n{traceback.format_exc()}"
        trouble = told(error)
        connection.send(InTrouble(trouble.trouble, message) if trouble else CannotStart(message, users_mistake=False))
    else:
        connection.send(Ready())
        return evaluator
    return None


def _leave_with(driver: int) -> None:
    """Ends this process when the driver is gone, which may have been killed without a chance to say so."""
    while os.getppid() == driver:
        time.sleep(0.5)
    os._exit(1)
