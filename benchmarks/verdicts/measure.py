"""How often does a verdict say "pay by it", where it should and where it should not?

    python -m benchmarks verdicts

Studies are simulated from games that are known, each with its evaluations, the replicates of everybody's model and a
validation, which the project's own statistics judge.
"""

import json
from collections import Counter
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.verdicts.page import write_page
from benchmarks.verdicts.worlds import NOISES, Simulated, World, simulate
from diffcredit.credit import Credits, Verdict, matters, seed_yardstick, stated_yardstick, verdict
from diffcredit.credit.planning import signal_to_noise

RESULTS = Path(__file__).parent / "results.json"
STUDIES = 100
SIZES = ((6, 5), (12, 3), (12, 10), (24, 1), (24, 5), (48, 1))  # contributors, and evaluations of each

Rows = list[dict[str, Any]]


def main() -> None:
    results: dict[str, Any] = {"studies": STUDIES}
    for name, worlds in worlds_by_part().items():
        results[name] = [rates(world, STUDIES) for world in worlds]
        print(name, flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write_page(results, RESULTS.with_suffix(".md"))


def worlds_by_part() -> dict[str, list[World]]:
    """The kinds of study, by what their verdict should be."""
    return {
        "equal": [World(n, each, truths(n), noise=noise) for (n, each), noise in product(SIZES, NOISES)]
        + [World(6, 5, truths(6), design="exhaustive"), World(12, 10, 100, seeds=3), World(12, 10, pairs=1.0)],
        "planted": [
            World(n, each, truths(n), difference=difference)
            for n, each, difference in product((6, 12, 24), (5, 10), (0.25, 0.5, 1.0, 2.0))
        ],
        "planted_noises": [World(12, 10, difference=1.0, noise=noise) for noise in NOISES[1:]],
        "failed": [
            World(n, each, difference=1.0, truthful=factor)
            for n, each, factor in product((12, 24), (5, 10), (0.0, -1.0))
        ],
        "immaterial": [World(12, 20, difference=0.25, noise=noise) for noise in NOISES]
        + [World(12, 20, difference=0.25, replicates=replicates) for replicates in (1, 2, 10)],
        "outliers": [
            World(12, 10, difference=difference, outliers=part)
            for difference, part in product((0.0, 1.0, 2.0), (0.02, 0.1))
        ],
    }


def truths(contributors: int) -> int:
    """Coalitions to retrain: six contributors have twenty of three, and validation takes half of them at most."""
    return 10 if contributors == 6 else 40


def rates(world: World, studies: int) -> dict[str, Any]:
    """Judge studies of one kind, and count levels, the checks that stood in the way, and the subjects of reasons."""
    simulated = [simulate(world, number) for number in range(studies)]
    found = [judged(each) for each in simulated]
    failed = [each for each in found if each.checks[0].level == "do not use"]
    return {
        **asdict(world),
        "levels": Counter(each.level for each in found),
        "against": Counter(c.subject for each in found for c in each.checks if c.level != "pay by it"),
        "material_by_seeds_alone": sum(material_by_seeds_alone(each.credits) for each in simulated),
        "failed": len(failed),
        "failed_is_reason": sum("failed their test" in each.reason for each in failed),
    }


def judged(study: Simulated) -> Verdict:
    """The verdict as a study gives it."""
    credits = study.credits
    found = credits.diagnostics
    signal = signal_to_noise(found["tau"], found["sigma"], credits.table.sizes, credits.table.n)
    return verdict(credits, yardstick=seed_yardstick(credits), tested=study.tested, signal=signal)


def material_by_seeds_alone(credits: Credits) -> bool:
    """Whether somebody would matter by the plain standard deviation of F(all), with nothing from the estimator."""
    full = credits.table.full
    if len(full) == 1:
        return False
    alone = stated_yardstick(float(full.std(ddof=1)))
    return bool((credits.distinguishable & matters(credits, alone)).any())


if __name__ == "__main__":
    main()
