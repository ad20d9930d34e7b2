"""The contract between a worker pool, which decides, and the place where its workers run.

A back end only starts workers, carries messages and kills. There are two: processes of this machine (``local.py``) and
actors of a Ray cluster (``ray/cluster.py``). A worker goes through these states; ``Worker.awaiting`` names the message
that the pool waits for:

1. *starting* (``"start"``), until it sends :class:`Started`. A back end whose workers are up at once skips this;
2. *idle* (None, and no batch), until the pool gives it a task;
3. *building* (``"evaluator"``), until :class:`Ready`; skipped where it has the right evaluator;
4. *evaluating* (``"evaluation"``), until it has sent one evaluation for each task of its batch; then it is idle.

:class:`~diffcredit.execution.assignments.WorkerFailure` may come instead of any message. The pool then kills the
worker, and a new one takes its place.

One thread calls all methods. None of them may block for long, except ``wait``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from diffcredit.execution.assignments import TaskBatch, WorkerFailure
from diffcredit.execution.tasks import EvaluatorFactory, Task
from diffcredit.ledger import Evaluation


@dataclass(frozen=True)
class Started:
    """The worker's process is up."""


@dataclass(frozen=True)
class Ready:
    """The evaluator is built; it is best at ``at_once`` tasks together."""

    at_once: int


@dataclass(frozen=True)
class BuildError:
    """The factory raised an error. ``message`` states the user's mistake, or is a traceback."""

    message: str
    user_error: bool


Awaited = Literal["start", "evaluator", "evaluation"]
Message = Started | Ready | BuildError | Evaluation | WorkerFailure


class Worker(ABC):
    """A worker as the pool sees it. The pool writes the attributes, apart from ``name``."""

    def __init__(self) -> None:
        self.name = ""  # empty until known
        self.awaiting: Awaited | None = None
        self.asked = 0.0  # when it was last sent something, or became idle, by the clock of the run
        self.payload: Any = None  # what its evaluator was built from
        self.ready = False  # whether that evaluator is built
        self.at_once = 1
        self.batch: TaskBatch | None = None

    @property
    def alive(self) -> bool:
        """Whether an idle worker can be given a task. True where only :meth:`ping` could find out."""
        return True

    def ping(self) -> bool:
        """Ask an idle worker to send :class:`Started` again. Return False where :attr:`alive` says as much."""
        return False

    @abstractmethod
    def build(self, payload: Any) -> None:
        """Have it build an evaluator, in place of any that it has."""

    @abstractmethod
    def evaluate(self, tasks: Sequence[Task]) -> None:
        """Send it tasks; the evaluator is built."""

    @abstractmethod
    def receive(self) -> Sequence[Message]:
        """Return the messages that are there once ``wait`` has returned the worker; none if what it was asked for will
        come later, and its time starts anew."""

    @abstractmethod
    def kill(self) -> list[Evaluation]:
        """End it at once, whatever it does, and return the evaluations that it had sent and nobody has received."""


WorkerT = TypeVar("WorkerT", bound=Worker)


class Backend(ABC, Generic[WorkerT]):
    """Where the workers of one pool run."""

    drains = False
    """Whether the first Ctrl-C lets the evaluations under way finish."""

    @property
    def places(self) -> int:
        """How many places each get their own tries to start a worker, before the pool gives up."""
        return 1

    @abstractmethod
    def payload(self, factory: EvaluatorFactory) -> AbstractContextManager[Any]:
        """Connect, where that is needed, and return what workers build their evaluator from in this run. Workers with
        an equal payload do not build again."""

    @abstractmethod
    def recruit(self, workers: Sequence[WorkerT]) -> Sequence[WorkerT]:
        """Return new workers where there is room for more than ``workers``."""

    @abstractmethod
    def wait(self, workers: Sequence[WorkerT], seconds: float) -> list[WorkerT]:
        """Wait until one of the workers has sent a message or died, at most ``seconds``; return those that have."""

    @abstractmethod
    def retire(self, worker: WorkerT, failure: WorkerFailure) -> bool:
        """Have one worker less from now on: its device failed twice over one task. Return False if none can be
        spared."""

    @abstractmethod
    def end(self, workers: Sequence[WorkerT]) -> None:
        """End workers that are no longer needed."""

    @abstractmethod
    def close(self) -> None:
        """Release what the back end holds, once all workers have ended."""
