"""Measurements that get ready side by side, which is mostly compiling on the CPU, and then measure one after another
with the GPU to themselves. One that takes far longer than the others is not waited for."""

import multiprocessing
import queue
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

PATIENCE = 120  # seconds after which those who are ready begin

Job = tuple[Callable[..., Callable[[], Any]], tuple[Any, ...]]
"""A function that gets ready and returns what measures, and its arguments."""


def in_turns(jobs: dict[str, Job], told: Callable[[str, Any], None]) -> None:
    """Runs ``jobs`` in processes of their own; ``told`` hears of each result as it comes, or of what went wrong."""
    context = multiprocessing.get_context("spawn")
    ready, turn, results = context.Barrier(len(jobs)), context.Lock(), context.Queue()
    crew = [context.Process(target=_work, args=(name, *job, ready, turn, results)) for name, job in jobs.items()]
    for worker in crew:
        worker.start()
    owing = dict(zip(jobs, crew, strict=True))
    while owing:
        try:
            name, found = results.get(timeout=1)
        except queue.Empty:
            for name in [name for name, worker in owing.items() if worker.exitcode not in (None, 0)]:
                ready.abort()  # nobody is to wait for it
                told(name, {"error": f"its process ended with {owing.pop(name).exitcode}"})
            continue
        owing.pop(name)
        told(name, found)
    for worker in crew:
        worker.join()


def _work(name: str, prepare: Any, given: tuple[Any, ...], ready: Any, turn: Any, results: Any) -> None:
    measure, began = None, time.monotonic()
    try:
        measure = prepare(*given)
        print(f"{name}: ready after {time.monotonic() - began:.0f} s", flush=True)
    except Exception:
        results.put((name, {"error": traceback.format_exc()}))
    with suppress(threading.BrokenBarrierError):  # one has died or is late; the others measure all the same
        ready.wait(PATIENCE)
    if measure is not None:
        with turn:
            try:
                results.put((name, measure()))
            except Exception:
                results.put((name, {"error": traceback.format_exc()}))
