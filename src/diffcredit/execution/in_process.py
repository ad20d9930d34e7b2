"""Evaluations in this very process, one after another."""

import gc
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from diffcredit.errors import UserError
from diffcredit.events import event
from diffcredit.execution.assignments import Assignment, Assignments, Loss, tell_loss
from diffcredit.execution.tasks import ASK_AGAIN, Evaluator, EvaluatorFactory, Task, evaluate_one, worker_name
from diffcredit.execution.threads import limited_threads
from diffcredit.execution.troubles import MachineTrouble
from diffcredit.ledger import Evaluation


@dataclass(frozen=True)
class InProcess:
    """Runs tasks here with ``threads`` threads; between two results the caller has its own number back. A task over
    which memory or disk runs out is repeated up to ``retries`` times; then it is a failed evaluation."""

    threads: int = 1
    retries: int = 2

    def __post_init__(self) -> None:
        for name, least in (("threads", 1), ("retries", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name}: {getattr(self, name)}; must be at least {least}")

    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        evaluator = None
        todo = Assignments(tasks)
        while (assignment := todo.next()) or todo.left:
            if assignment is None:
                time.sleep(ASK_AGAIN)
                continue
            with limited_threads(self.threads):
                if evaluator is None:
                    evaluator = factory()
                    event("worker ready", worker=worker_name())
                evaluation = self._evaluate(evaluator, assignment)
            if evaluation is None:
                todo.repeat(assignment)
            else:
                yield evaluation

    def _evaluate(self, evaluator: Evaluator, assignment: Assignment) -> Evaluation | None:
        """The evaluation; None: it is to be tried again."""
        name, clock = worker_name(), time.perf_counter()
        assignment.given(name)
        try:
            evaluation = evaluate_one(evaluator, assignment.task)
        except MachineTrouble as trouble:
            loss = Loss(name, trouble.trouble, str(trouble))
        else:
            assignment.answered(name, time.perf_counter() - clock)
            return evaluation
        tell_loss(loss, assignment, time.perf_counter() - clock)
        _free_memory()
        return assignment.lost(loss, self.retries)


def _free_memory() -> None:
    """Gives back what a failed attempt has left behind."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
