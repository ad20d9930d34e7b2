"""A driver of a small study in a process of its own: ``python cooperating.py URL FOLDER HOLD LEASE VALUE``.

It notes in FOLDER every evaluation that it begins; at coalition HOLD it waits until FOLDER has a file ``go``.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from diffcredit.execution import Evaluator, InProcess, Task
from diffcredit.execution.driver import Driver
from diffcredit.execution.tasks import done_evaluation, utc_now, worker_name
from diffcredit.ledger import Evaluation, Ledger, PropertyRecord, RecipeRecord, Value

STUDY, RECIPE = "shared", "toy"
TASKS = [Task(f"{index:04b}", 0, "estimate") for index in range(12)]


@dataclass(frozen=True)
class Noting(Evaluator):
    """Is its own factory."""

    folder: Path
    hold: str = ""
    value: float = 0.0

    def __call__(self) -> "Noting":
        return self

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        for task in tasks:
            with (self.folder / f"begun-{task.coalition}").open("a") as file:
                file.write(f"{worker_name()}\n")
            time.sleep(0.01)
            while task.coalition == self.hold and not (self.folder / "go").exists():
                time.sleep(0.01)
            value = Value("value", self.value + int(task.coalition, 2))
            yield done_evaluation(task, [value], utc_now(), {}, {})


def prepare(url: str) -> None:
    with Ledger.open(url) as ledger:
        ledger.register_study(STUDY, {"contributors": list("abcd")})
        ledger.register_recipe(STUDY, RecipeRecord(RECIPE, {}))
        ledger.register_property(STUDY, PropertyRecord("value", {}, higher_is_better=True))


def drive(ledger: Ledger, evaluator: Noting, lease: float) -> list[str]:
    driver = Driver(ledger, STUDY, RECIPE, lambda evaluation: None, 0, lease)
    return [f"{each.coalition} {each.status}" for each in driver.run(InProcess(), evaluator, TASKS)]


if __name__ == "__main__":
    with Ledger.open(sys.argv[1]) as opened:
        evaluator = Noting(Path(sys.argv[2]), sys.argv[3], float(sys.argv[5]))
        sys.stdout.write("\n".join(drive(opened, evaluator, float(sys.argv[4]))))
