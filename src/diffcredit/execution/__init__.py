"""Where evaluations run."""

from diffcredit.execution.in_process import InProcess
from diffcredit.execution.local import LocalWorkers
from diffcredit.execution.tasks import Evaluator, EvaluatorFactory, Executor, Task

__all__ = ["Evaluator", "EvaluatorFactory", "Executor", "InProcess", "LocalWorkers", "Task"]
