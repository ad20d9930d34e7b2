"""Two ways to run tasks: evaluations that are new, and evaluations that are made again.

A new evaluation is claimed first, so that several drivers share the work, and is in the ledger before the caller sees
it. One that is made again changes nothing in the record by itself: callers keep its images, compare its values with the
recorded ones, or add values of further properties.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from diffcredit.execution import Executor, Task
from diffcredit.execution.driver import Driver
from diffcredit.ledger import Evaluation, RecipeRecord

if TYPE_CHECKING:
    from diffcredit.study.recipe import Recipe


def evaluate_design(recipe: "Recipe", executor: Executor) -> Iterator[Evaluation]:
    """Evaluate the study's design until its stopping rule is reached; yield each evaluation made here."""
    schedule = recipe.schedule()
    for evaluation in _evaluate_and_record(recipe, executor, schedule.pending(), schedule.record, schedule.mark):
        schedule.report_progress(recipe.study.progress)
        yield evaluation


def evaluate_tasks(recipe: "Recipe", executor: Executor, tasks: Sequence[Task], what: str) -> Iterator[Evaluation]:
    """Evaluate those of ``tasks`` that are not done yet; ``what`` names them in the progress."""
    recipe.prepare()
    with recipe.study.ledger() as ledger:
        recorded, mark = ledger.evaluations_since(recipe.study.name, recipe.name, 0)
    wanted = {task.key for task in tasks}
    settled = {each.key for each in recorded if each.status == "done"} & wanted
    pending = (task for task in tasks if task.key not in settled)
    for evaluation in _evaluate_and_record(recipe, executor, pending, lambda each: settled.add(each.key), mark):
        recipe.study.progress(what, len(settled & wanted), len(tasks))
        yield evaluation


def evaluate_again(
    recipe: "Recipe",
    executor: Executor,
    tasks: Iterable[Task],
    names: Sequence[str] | None = None,
    kept: RecipeRecord | None = None,
) -> Iterator[Evaluation]:
    """Make recorded evaluations once more, and measure the properties ``names`` (None: all) on them. ``kept``: measure
    on what was kept of this record's evaluations instead of retraining."""
    return executor.run(partial(recipe.evaluator, names, kept), tasks)


def keep_again(recipe: "Recipe", executor: Executor, tasks: Sequence[Task], what: str) -> Iterator[Evaluation]:
    """Make the models of recorded evaluations once more, to keep what the recipe keeps; nothing is recorded."""
    recipe.prepare()
    recipe.study.progress(what, 0, len(tasks))
    for made, evaluation in enumerate(evaluate_again(recipe, executor, tasks, ()), 1):
        recipe.study.progress(what, made, len(tasks))
        yield evaluation


def _evaluate_and_record(
    recipe: "Recipe",
    executor: Executor,
    tasks: Iterable[Task],
    on_recorded: Callable[[Evaluation], object],
    mark: int,
) -> Iterator[Evaluation]:
    """Evaluate ``tasks`` together with other drivers. ``on_recorded`` is called with every evaluation that any driver
    recorded after ``mark``, a place in the ledger."""
    with recipe.study.ledger() as ledger:
        driver = Driver(ledger, recipe.study.name, recipe.name, on_recorded, mark)
        yield from driver.run(executor, recipe.evaluator, tasks)
