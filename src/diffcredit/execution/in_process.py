"""Evaluations in this very process, one after another."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from diffcredit.errors import UserError
from diffcredit.execution.tasks import ASK_AGAIN, EvaluatorFactory, Task, evaluate_one
from diffcredit.execution.threads import limited_threads
from diffcredit.ledger import Evaluation


@dataclass(frozen=True)
class InProcess:
    """Runs tasks here with ``threads`` threads; between two results the caller has its own number back."""

    threads: int = 1

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise UserError(f"threads: {self.threads}; must be at least 1")

    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        evaluator = None
        for task in tasks:
            if task is None:
                time.sleep(ASK_AGAIN)
                continue
            with limited_threads(self.threads):
                evaluator = evaluator or factory()
                evaluation = evaluate_one(evaluator, task)
            yield evaluation
