"""Evaluations in this very process."""

import gc
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from diffcredit.errors import UserError
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
from diffcredit.util.events import event


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
        """Of a bundle, and of those that follow while its last are being measured; one that is given alone stays so."""
        clock, bundles = time.perf_counter(), deque([bundle])

        def more() -> tuple[Task, ...]:
            assignment = todo.next(among_others=True)
            if assignment is None:
                return ()
            bundles.append(Bundle(worker_name(), assignment))
            bundles[-1].fill(todo, portion.of(at_once(evaluator)))
            return bundles[-1].tasks

        evaluations = evaluate_all(evaluator, bundle.tasks, None if bundle.alone else more)
        try:
            while bundles:
                with limited_threads(self.threads):
                    evaluation = next(evaluations)
                bundles[0].answered(evaluation, time.perf_counter() - clock)
                if not bundles[0].unanswered:
                    bundles.popleft()
                yield evaluation
            return
        except MachineTrouble as trouble:
            loss = Loss(bundle.worker, trouble.trouble, str(trouble))
        _free_memory()
        for lost in bundles:
            portion.learn(loss, lost)
            yield from lost.lost(loss, time.perf_counter() - clock, todo, self.retries)


def _free_memory() -> None:
    """Gives back what a failed attempt has left behind."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
