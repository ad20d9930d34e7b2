"""Damaged and hostile files, read as often as a machine can in minutes: what became of each.

    python -m benchmarks fuzz [--cases 100000] [--seed 0]

A case is accepted or refused in one message of bounded length. Anything else is a failure and is kept in
``failures/``: another exception, more than 20 seconds, a file opened outside the case's folder, written, removed or
renamed anywhere, a process started or an address connected to.
"""

import argparse
import platform
import resource
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import PIL
from hypothesis import HealthCheck, Phase, given, seed, settings

from benchmarks.fuzz.targets import TARGETS, Target, prepare
from benchmarks.fuzz.watching import outcome

HERE = Path(__file__).parent
CASES = 100_000
AT_ONCE = 2000  # cases that hypothesis draws with one seed


@dataclass
class Tally:
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    """Seconds of the slowest case."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz.measure")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--seed", type=int, default=0)
    options, _ = parser.parse_known_args()
    warnings.simplefilter("ignore")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as root:
        folder, outside = prepare(Path(root))
        tallies = {}
        for name, target in TARGETS.items():
            tallies[name] = campaign(name, target, options.cases * target.share // 100, options.seed, folder, outside)
            print(name, dict(tallies[name].outcomes), f"{tallies[name].slowest:.2f} s", flush=True)
            (HERE / "results.md").write_text(page(tallies, time.monotonic() - started), encoding="utf-8")


def campaign(name: str, target: Target, count: int, first_seed: int, folder: Path, outside: Path) -> Tally:
    """Exactly ``count`` cases of a target, in a sequence that ``first_seed`` fixes."""
    tally = Tally()
    number = first_seed * 1_000_000
    while (left := count - tally.outcomes.total()) > 0:

        @seed(number)
        @settings(
            max_examples=min(AT_ONCE, left),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=target.cases)
        def run(case: object) -> None:
            target.lay_out(case, folder)
            began = time.monotonic()
            try:
                became = outcome(target.read, folder, outside)
            except Exception as error:
                became = "failed"
                _keep(name, case, error)
            tally.slowest = max(tally.slowest, time.monotonic() - began)
            tally.outcomes[became] += 1

        run()
        number += 1
    return tally


def _keep(name: str, case: object, error: Exception) -> None:
    (HERE / "failures").mkdir(exist_ok=True)
    text = f"{name}\n{case!r}\n{''.join(traceback.format_exception(error))}"
    (HERE / "failures" / f"{abs(hash(text)):x}.txt").write_text(text, encoding="utf-8", errors="backslashreplace")


def page(tallies: dict[str, Tally], seconds: float) -> str:
    total = sum((tally.outcomes for tally in tallies.values()), Counter())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rows = "\n".join(
        f"| {name} | {tally.outcomes.total():,} | {tally.outcomes['accepted']:,} | {tally.outcomes['refused']:,} "
        f"| {tally.outcomes['failed']:,} | {tally.slowest:.2f} |"
        for name, tally in tallies.items()
    )
    return f"""# Damaged and hostile files

`python -m benchmarks fuzz`: {total.total():,} cases in {seconds / 60:.0f} minutes on {platform.machine()}, one \
process, Python {platform.python_version()}, Pillow {PIL.__version__}; {peak:.1f} GiB of memory at the most, torch \
included. A case is accepted, or refused in one message; anything else (another exception, over 20 s, a file opened \
outside its folder, anything written, run or connected to) is a failure.

| read | cases | accepted | refused | failed | slowest, s |
| --- | ---: | ---: | ---: | ---: | ---: |
{rows}
| in all | {total.total():,} | {total["accepted"]:,} | {total["refused"]:,} | {total["failed"]:,} | |
"""


if __name__ == "__main__":
    main()
