"""Is anything lost, duplicated or wrong when processes, nodes, disks and databases fail?

    python -m benchmarks faults
    python -m benchmarks.faults.measure --on sqlite --each 1 --seed 7

A study is run on a SQLite file, on a PostgreSQL server and on a Ray cluster, all on this machine, while faults of every
kind happen to it; in the end its ledger, its artifacts and its credits are held against those of the same study that
nobody disturbed. Wants Linux; what else a kind of fault needs (PostgreSQL, Ray, a C compiler, leave to mount a small
disk) it is left out without, and the page says so.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.faults.campaign import Campaign, phases_of
from benchmarks.faults.check import judged
from benchmarks.faults.page import page
from benchmarks.faults.places import Place, postgres_place, ray_place, sqlite_place
from diffcredit.execution.versions import package_versions

HERE = Path(__file__).parent
PLACES: dict[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "sqlite": sqlite_place,
    "postgres": postgres_place,
    "ray": ray_place,
}
PLANTED, ACTS = 3, 2  # faults of each kind inside evaluations, and around them
SEED = 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.measure")
    parser.add_argument("--on", choices=list(PLACES), action="append", help="default: all, one after another")
    parser.add_argument("--each", type=int, help="faults of each kind; default: enough for 50 in all")
    parser.add_argument("--seed", type=int, default=SEED)
    options, _ = parser.parse_known_args()
    results: dict[str, Any] = {
        "versions": package_versions(),
        "machine": f"{os.cpu_count()} cores",
        "seed": options.seed,
        "campaigns": {},
    }
    if options.on and (HERE / "results.json").exists():  # the others' stay
        results["campaigns"] = json.loads((HERE / "results.json").read_text(encoding="utf-8"))["campaigns"]
    for name in options.on or PLACES:
        results["campaigns"][name] = campaign(name, options.each or PLANTED, options.each or ACTS, options.seed)
        (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (HERE / "results.md").write_text(page(results), encoding="utf-8")
    if not all(each["sound"] for each in results["campaigns"].values()):
        sys.exit("something was lost, duplicated or wrong: see benchmarks/faults/results.md")


def campaign(name: str, planted_each: int, acts_each: int, seed: int) -> dict[str, Any]:
    """The record of one campaign."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="diffcredit-faults-") as root, PLACES[name](Path(root)) as place:
        done = Campaign(Path(root) / "study", place, seed)
        for phase in phases_of(place, planted_each, acts_each, random.Random(seed)):
            done.run(phase)
            what = phase.act or ", ".join(phase.faults)
            print(f"{place.name} {time.monotonic() - began:.0f} s: {what}", flush=True)
        verdict = judged(done, Path(root) / "undisturbed")
        return {
            "place": place.name,
            "faults": {
                kind: {"injected": each.injected, "noticed": dict(each.noticed), "repeated": each.repeated}
                for kind, each in sorted(done.tallies.items())
            },
            "runs": done.runs,
            "exit codes": {str(code): count for code, count in sorted(done.codes.items())},
            "processes left behind": done.left_behind,
            "verdict": asdict(verdict),
            "sound": verdict.sound and done.left_behind == 0,
            "seconds": round(time.monotonic() - began),
        }


if __name__ == "__main__":
    main()
