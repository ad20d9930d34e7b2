"""Measurements that get ready side by side, which is mostly compiling on the CPU, and then measure one after another
with the GPU to themselves."""

import multiprocessing
import traceback
from collections.abc import Callable
from typing import Any

Job = tuple[Callable[..., Callable[[], Any]], tuple[Any, ...]]
"""A function that gets ready and returns what measures, and its arguments."""


def in_turns(jobs: dict[str, Job], told: Callable[[str, Any], None]) -> None:
    """Runs ``jobs`` in processes of their own; ``told`` hears of each result as it comes, or of what went wrong."""
    context = multiprocessing.get_context("spawn")
    ready, turn, results = context.Barrier(len(jobs)), context.Lock(), context.Queue()
    crew = [context.Process(target=_work, args=(name, *job, ready, turn, results)) for name, job in jobs.items()]
    for worker in crew:
        worker.start()
    for _ in crew:
        told(*results.get())
    for worker in crew:
        worker.join()


def _work(name: str, prepare: Any, given: tuple[Any, ...], ready: Any, turn: Any, results: Any) -> None:
    measure = None
    try:
        measure = prepare(*given)
    except Exception:
        results.put((name, {"error": traceback.format_exc()}))
    ready.wait()
    if measure is not None:
        with turn:
            try:
                results.put((name, measure()))
            except Exception:
                results.put((name, {"error": traceback.format_exc()}))
