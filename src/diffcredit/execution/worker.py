"""What runs inside a worker process.

It is sent a factory and the task that it is for (``Build``), which it answers with ``Ready`` or ``CannotStart``, and
then tuples of tasks, which it answers with one evaluation for each, in order, as they come. Where the evaluator takes
one task at once, it begins with that of the factory; where it takes several, it waits for them all. Another factory
takes the place of the first. It ends when the connection does, or when its machine is in trouble, which it tells as
``InTrouble``: what it held is free for the one that takes its place.
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
from diffcredit.execution.tasks import EvaluatorFactory, Task, at_once, evaluate_all
from diffcredit.execution.threads import limited_threads
from diffcredit.execution.troubles import MachineTrouble, Trouble, told


@dataclass(frozen=True)
class Build:
    """Builds the evaluator, for the task that comes first."""

    factory: EvaluatorFactory
    first: Task


@dataclass(frozen=True)
class Ready:
    """The evaluator is built, and evaluates so many tasks best ``at_once``."""

    at_once: int


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
        build = connection.recv()
        while build is not None:
            build = _serve(connection, build)


def _serve(connection: Connection, build: Build) -> Build | None:
    """Builds an evaluator and evaluates with it, until another is to be built; None: this worker is of no more use.
    The first is gone before the other is built: both may not fit into memory."""
    try:
        evaluator = build.factory()
        most = at_once(evaluator)
    except UserError as error:
        connection.send(CannotStart(str(error), users_mistake=True))
        return None
    except Exception as error:
        message = f"a worker could not build its evaluator:\n{traceback.format_exc()}"
        trouble = told(error)
        connection.send(InTrouble(trouble.trouble, message) if trouble else CannotStart(message, users_mistake=False))
        return None
    connection.send(Ready(most))
    asked = (build.first,) if most == 1 else connection.recv()
    while not isinstance(asked, Build):
        try:
            for evaluation in evaluate_all(evaluator, asked):
                connection.send(evaluation)
        except MachineTrouble as trouble:
            connection.send(InTrouble(trouble.trouble, str(trouble)))
            return None
        asked = connection.recv()
    return asked


def _leave_with(driver: int) -> None:
    """Ends this process when the driver is gone, which may have been killed without a chance to say so."""
    while os.getppid() == driver:
        time.sleep(0.5)
    os._exit(1)
