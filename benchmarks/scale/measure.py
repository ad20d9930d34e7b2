"""What a driver costs besides the work, with 256 workers and up to 100,000 evaluations, and how that grows.

    python -m benchmarks scale
    python -m benchmarks.scale.measure --evaluations 10000
    python -m benchmarks.scale.shapes

A study of 20 contributors and three properties is run as ``diffcredit run`` would (schedule, looks at the credits,
claims, ledger with its chain), with simulated workers: see :mod:`benchmarks.scale.simulation`. Ledgers lie in memory
where that can be had, so that the code is measured and not the disk; what a disk adds to a record is measured apart.
Seconds of CPU are what others on the machine disturb least; what is claimed are ratios and exponents.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import create_engine, text
from tests.postgres_server import binaries, running_server

from benchmarks.scale.page import draw_growth, page
from benchmarks.scale.simulation import PROPERTIES, SimulatedStudy, true_credits, write_study
from diffcredit.execution.versions import package_versions

HERE = Path(__file__).parent
WORKERS = 256
MOST = 100_000
SMALL = 1_000
COMMANDS = ("status", "verify", "export")
SYNCS = 200


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.measure")
    parser.add_argument("--evaluations", type=int, default=MOST, help="of the longest run")
    most = parser.parse_known_args()[0].evaluations
    results: dict[str, Any] = {"versions": package_versions(), "machine": f"{os.cpu_count()} cores", "asked": most}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as memory:
        with tempfile.TemporaryDirectory() as disk:
            results["disk"] = {"sync": sync_seconds(Path(disk)), "run": run(Path(disk) / "study", SMALL)}
        results["runs"] = {}
        for count in (SMALL, most // 10, most):
            results["runs"][str(count)] = measured(Path(memory) / str(count), count)
            write(results)
        results["two drivers"] = together(Path(memory) / "two", most // 10)
        if (programs := binaries()) is not None:
            with running_server(programs) as server:
                results["postgres"] = on_server(Path(memory) / "postgres", most // 10, server.new_schema())
        write(results)


def write(results: dict[str, Any]) -> None:
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (HERE / "results.md").write_text(page(results), encoding="utf-8")
    draw_growth(results, HERE / "growth.svg")


def measured(folder: Path, evaluations: int) -> dict[str, Any]:
    """A run, the commands on its ledger, and what became of the truth."""
    states = run(folder, evaluations)
    return {"states": states, **afterwards(folder)}


def afterwards(folder: Path) -> dict[str, Any]:
    file = folder / "results" / "ledger.db"
    began = time.process_time()
    study = SimulatedStudy(folder / "study.yaml")
    credits = study.credits()
    to_credits = time.process_time() - began
    return {
        "recorded": len(study.evaluations()),
        "bytes": file.stat().st_size,
        "cpu": {"credits, from Python": to_credits} | {f"`{name}`": of_command(name, folder) for name in COMMANDS},
        "correlation": min(float(np.corrcoef(credits[prop].values, true_credits(prop))[0, 1]) for prop in PROPERTIES),
    }


def run(folder: Path, evaluations: int, ledger: str | None = None) -> list[dict[str, Any]]:
    """The states of one driver, from the first checkpoint to the end."""
    (states,) = drivers(write_study(folder, evaluations, ledger), [WORKERS])
    return states


def together(folder: Path, evaluations: int) -> dict[str, Any]:
    """Two drivers that share the workers, beside one."""
    began = time.perf_counter()
    both = [states[-1] for states in drivers(write_study(folder, evaluations), [WORKERS // 2] * 2)]
    seconds = time.perf_counter() - began
    with SimulatedStudy(folder / "study.yaml").ledger() as ledger:
        audit = ledger.audit("scale")
        recorded = ledger.evaluations("scale", "fine_tune")
    return {
        "evaluations": evaluations,
        "seconds": seconds,
        "made": [state["evaluations"] for state in both],
        "cpu": [sum(state["cpu"].values()) for state in both],
        "recorded": len(recorded),
        "tasks": len({each.key for each in recorded}),
        "problems": len(audit.problems),
    }


def on_server(folder: Path, evaluations: int, url: str) -> dict[str, Any]:
    states = run(folder, evaluations, url)
    engine = create_engine(url)
    with engine.begin() as connection:
        tables = "SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
        size = connection.execute(text(f"SELECT sum(pg_total_relation_size(oid)) FROM ({tables}) AS t")).scalar_one()
    engine.dispose()
    return {"states": states, "bytes": int(size)}


def drivers(study: Path, workers: Sequence[int]) -> list[list[dict[str, Any]]]:
    """The states of drivers that run a study at the same time."""
    command = [sys.executable, "-m", "benchmarks.scale.drive", str(study)]
    started = [subprocess.Popen([*command, str(count)], stdout=subprocess.PIPE, text=True) for count in workers]
    told = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError("a driver failed")
    return [[json.loads(line) for line in lines.splitlines()] for lines in told]


def of_command(name: str, folder: Path) -> float:
    """``diffcredit NAME`` on a study: seconds of CPU, from the start of Python on."""
    extra = [str(folder / "export.zip")] if name == "export" else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "diffcredit", name, str(folder), *extra]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def sync_seconds(folder: Path) -> float:
    """What it takes to write a page and wait for the disk."""
    with (folder / "synced").open("wb") as file:
        began = time.perf_counter()
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
        return (time.perf_counter() - began) / SYNCS


if __name__ == "__main__":
    main()
