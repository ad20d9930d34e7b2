"""Fidelity: F of each retraining method against F of models retrained from scratch, over the same coalitions.

    python -m benchmarks fidelity

The demo's study (twelve OpenMoji designers, 16 px, a U-Net of 0.3 M parameters) with half of its base training. 24
coalitions of uniform sizes; truth has two training seeds for each, every other method one. Writes results.json as it
goes, and results.md from it. Half an hour on two cores; a GPU does not help models this small.
"""

import json
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from benchmarks.fidelity.page import write_page
from benchmarks.fidelity.recipes import RECIPES, TRUTH, write_studies

RESULTS = Path(__file__).parent / "results.json"
COALITIONS, TRUTH_SEEDS = 24, 2


def main() -> None:
    from diffcredit.coalitions import encode, make_design
    from diffcredit.execution.versions import package_versions
    from diffcredit.study.study import Study

    workers = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as scratch:
        files = write_studies(Path(scratch))
        prepared: dict[str, float] = {}
        for recipe, file in files.items():
            start = time.perf_counter()
            study = Study.load(file)
            n = study.contributions.n
            _ = study.recipe.retraining, study.prepared.properties
            prepared[recipe] = round(time.perf_counter() - start, 1)
            print(f"prepared {recipe}: {prepared[recipe]} s", flush=True)
        coalitions = [encode(row) for row in make_design("uniform", 1).draw(n, 0, COALITIONS)]
        jobs = [
            (recipe, coalition, replicate)
            for coalition in coalitions
            for recipe in RECIPES
            for replicate in range(TRUTH_SEEDS if recipe == TRUTH else 1)
        ]
        results = {
            "workers": workers,
            "versions": package_versions(),
            "coalitions": coalitions,
            "preparation seconds": prepared,
            "values": {recipe: {} for recipe in RECIPES},
            "seconds": {recipe: [] for recipe in RECIPES},
        }
        start = time.perf_counter()
        with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin, initargs=(files,)) as pool:
            futures = [pool.submit(evaluate, *job) for job in jobs]
            for done, future in enumerate(as_completed(futures), 1):
                recipe, coalition, replicate, values, seconds = future.result()
                results["values"][recipe].setdefault(coalition, {})[str(replicate)] = values
                results["seconds"][recipe].append(seconds)
                if done % 20 == 0 or done == len(jobs):
                    rate = done / (time.perf_counter() - start)
                    print(f"{done}/{len(jobs)}, {rate:.1f}/s, {(len(jobs) - done) / rate:.0f} s left", flush=True)
                    RESULTS.write_text(json.dumps(results, indent=0) + "\n", encoding="utf-8")
    write_page(results, RESULTS.with_suffix(".md"))


_files: dict[str, Path] = {}
_evaluators: dict[str, object] = {}


def _begin(files: dict[str, Path]) -> None:
    _files.update(files)


def evaluate(recipe: str, coalition: str, replicate: int) -> tuple[str, str, int, dict[str, float], dict[str, float]]:
    """One evaluation in a worker, which builds each recipe's evaluator once."""
    from diffcredit.execution.tasks import Task, evaluate_all
    from diffcredit.execution.threads import limited_threads
    from diffcredit.study.study import Study

    with limited_threads(1):
        if recipe not in _evaluators:
            _evaluators[recipe] = Study.load(_files[recipe]).recipe.evaluator()
        (evaluation,) = evaluate_all(_evaluators[recipe], [Task(coalition, replicate, "truth")])  # ty: ignore
    if evaluation.status != "done":
        raise RuntimeError(f"{recipe}, {coalition}: {evaluation.error}")
    values = {}
    for value in evaluation.values:
        if value.value is None:
            raise RuntimeError(f"{recipe}, {coalition}, {value.property}: {value.error}")
        values[value.property] = value.value
    return recipe, coalition, replicate, values, evaluation.seconds


if __name__ == "__main__":
    main()
