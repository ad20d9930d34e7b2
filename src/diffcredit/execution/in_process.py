"""Evaluations in this very process."""

import gc
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from diffcredit.execution.assignments import BatchLimit, TaskBatch, TaskQueue, WorkerFailure
from diffcredit.execution.machine_errors import MachineError
from diffcredit.execution.tasks import (
    ASK_AGAIN,
    Evaluator,
    EvaluatorFactory,
    Executor,
    Task,
    check_minimum,
    evaluate_all,
    worker_name,
)
from diffcredit.execution.threads import limited_threads
from diffcredit.ledger import Evaluation
from diffcredit.util.events import event


@dataclass(frozen=True)
class InProcess(Executor):
    """Run tasks in this process with ``threads`` threads; between two results the caller's number of threads applies.
    Where memory or disk runs out, tasks evaluated together are first repeated one by one, and a single one up to
    ``retries`` times; then it fails. Where it was memory, half as many are evaluated together from then on."""

    threads: int = 1
    retries: int = 2

    def __post_init__(self) -> None:
        check_minimum(self, threads=1, retries=0)

    def run(self, factory: EvaluatorFactory, tasks: Iterable[Task | None]) -> Iterator[Evaluation]:
        evaluator, queue, limit = None, TaskQueue(tasks), BatchLimit()
        while (assignment := queue.next()) or queue.open:
            if assignment is None:
                time.sleep(ASK_AGAIN)
                continue
            if evaluator is None:
                with limited_threads(self.threads):
                    evaluator = factory()
                event("worker ready", worker=worker_name())
            batch = TaskBatch(worker_name(), assignment)
            batch.fill(queue, min(limit.most, evaluator.at_once))
            yield from self._evaluate(evaluator, batch, queue, limit)

    def _evaluate(
        self, evaluator: Evaluator, batch: TaskBatch, queue: TaskQueue, limit: BatchLimit
    ) -> Iterator[Evaluation]:
        """Evaluate a batch and those that the evaluator asks for meanwhile; a task to be repeated alone stays alone."""
        clock, batches = time.perf_counter(), deque([batch])

        def more() -> tuple[Task, ...]:
            assignment = queue.next(among_others=True)
            if assignment is None:
                return ()
            batches.append(TaskBatch(worker_name(), assignment))
            batches[-1].fill(queue, min(limit.most, evaluator.at_once))
            return batches[-1].tasks

        evaluations = evaluate_all(evaluator, batch.tasks, tuple if batch.alone else more)
        try:
            while batches:
                with limited_threads(self.threads):
                    evaluation = next(evaluations)
                batches[0].answered(evaluation, time.perf_counter() - clock)
                if not batches[0].unanswered:
                    batches.popleft()
                yield evaluation
            return
        except MachineError as error:
            failure = WorkerFailure(batch.worker, error.kind, str(error))
        gc.collect()  # what the failed attempt has left in memory
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        for failed in batches:
            limit.lower(failure, failed)
            yield from failed.failed(failure, time.perf_counter() - clock, queue, self.retries)
