"""Where evaluations run: in this process, in worker processes of this machine, or on a Ray cluster."""

from diffcredit.execution.in_process import InProcess
from diffcredit.execution.local import LocalWorkers
from diffcredit.execution.ray.cluster import RayWorkers
from diffcredit.execution.tasks import Evaluator, EvaluatorFactory, Executor, Task

__all__ = ["Evaluator", "EvaluatorFactory", "Executor", "InProcess", "LocalWorkers", "RayWorkers", "Task"]
