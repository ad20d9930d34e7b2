"""The main function of a local worker process.

It receives a factory and answers :class:`Ready` or :class:`BuildError`. Then it receives tuples of tasks and answers
one evaluation for each, in order, as they are made. Another factory replaces the first. The process ends when the
connection does, or after a machine error, which it sends as a :class:`WorkerFailure`: what it held is then free for
the worker that takes its place.
"""

import os
import signal
import threading
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection

from diffcredit.errors import UserError
from diffcredit.execution.assignments import WorkerFailure
from diffcredit.execution.backend import BuildError, Ready
from diffcredit.execution.machine_errors import MachineError, machine_error
from diffcredit.execution.tasks import EvaluatorFactory, evaluate_all, worker_name
from diffcredit.execution.threads import limited_threads


def main(connection: Connection, threads: int, driver: int) -> None:
    """Serve the process ``driver``, which started this one, with ``threads`` threads."""
    # Ctrl-C reaches every process of the terminal; the driver alone decides what it means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(driver,), daemon=True).start()
    with limited_threads(threads), suppress(EOFError, BrokenPipeError, ConnectionResetError):
        # received, not passed at the start, so that what the factory imports finds the threads limited
        factory = connection.recv()
        while factory is not None:
            factory = _serve(connection, factory)


def _serve(connection: Connection, factory: EvaluatorFactory) -> EvaluatorFactory | None:
    """Build an evaluator and evaluate, until another factory comes; None if this process is of no more use. The first
    evaluator is freed before the next is built: both may not fit into memory."""
    try:
        evaluator = factory()
        ready = Ready(evaluator.at_once)
    except UserError as error:
        connection.send(BuildError(str(error), user_error=True))
        return None
    except Exception as error:
        message = f"a worker could not build its evaluator:\n{traceback.format_exc()}"
        found = machine_error(error)
        failure = WorkerFailure(worker_name(), found.kind, message) if found else BuildError(message, user_error=False)
        connection.send(failure)
        return None
    connection.send(ready)
    while not callable(message := connection.recv()):
        try:
            for evaluation in evaluate_all(evaluator, message):
                connection.send(evaluation)
        except MachineError as error:
            connection.send(WorkerFailure(worker_name(), error.kind, str(error)))
            return None
    return message


def _end_with(driver: int) -> None:
    """End this process when the driver is gone, which may have been killed without a chance to say so."""
    while os.getppid() == driver:
        time.sleep(0.5)
    os._exit(1)
