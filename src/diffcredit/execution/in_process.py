"""Evaluations in this very process."""

import gc
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from diffcredit.errors import UserError
from diffcredit.events import event
from diffcredit.execution.assignments import Assignments, Bundle, Loss, Portion
from diffcredit.execution.tasks import (
    ASK_AGAIN,
    Evaluator,
    EvaluatorFactory,
    Task,
    at_once,
    evaluate_all,
    worker_name,
)
from diffcredit.execution.threads import limited_threads
from diffcredit.execution.troubles import MachineTrouble
from diffcredit.ledger import Evaluation


@dataclass(frozen=True)
class InProcess:
    """Runs tasks here with ``threads`` threads, as many at once as the evaluator takes at best; between two results the
    caller has its own number of threads back. A task over which memory or disk runs out is repeated up to ``retries``
    times; then it is a failed evaluation. Of several at once each is repeated alone first, and where memory did not
    hold them, there are half as many at once from then on."""

    threads: int = 1
    retries: int = 2

    def __post_init__(self) -> None:
        for name, least in (("threads", 1), ("retries", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name}: {getattr(self, name)}; must be at least {least}")

    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        evaluator, todo, portion = None, Assignments(tasks), Portion()
        while (assignment := todo.next()) or todo.left:
            if assignment is None:
                time.sleep(ASK_AGAIN)
                continue
            if evaluator is None:
                with limited_threads(self.threads):
                    evaluator = factory()
                event("worker ready", worker=worker_name())
            bundle = Bundle(worker_name(), assignment)
            bundle.fill(todo, portion.of(at_once(evaluator)))
            yield from self._evaluate(evaluator, bundle, todo, portion)

    def _evaluate(
        self, evaluator: Evaluator, bundle: Bundle, todo: Assignments, portion: Portion
    ) -> Iterator[Evaluation]:
        clock = time.perf_counter()
        evaluations = evaluate_all(evaluator, bundle.tasks)
        try:
            while bundle.unanswered:
                with limited_threads(self.threads):
                    evaluation = next(evaluations)
                bundle.answered(evaluation, time.perf_counter() - clock)
                yield evaluation
            return
        except MachineTrouble as trouble:
            loss = Loss(bundle.worker, trouble.trouble, str(trouble))
        _free_memory()
        portion.learn(loss, bundle)
        yield from bundle.lost(loss, time.perf_counter() - clock, todo, self.retries)


def _free_memory() -> None:
    """Gives back what a failed attempt has left behind."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
