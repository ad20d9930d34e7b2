"""Is a changed number ever shown? Thousands of random changes to copies of a paid study, each read as by a reader.

    python -m benchmarks tamper [--changes 2400] [--commands 100] [--seed 0] [--only KIND [--number N]]

A change is refused in one line, or harmless: all that is shown is as it was. Anything else is a finding: a number that
differs and is shown, or an exception that the command line would print as a traceback. Findings are listed in
``results.json`` with their numbers, by which they can be repeated. The exit code is 1 where there are any.
"""

import argparse
import json
import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
CHANGES, COMMANDS = 2400, 100


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tamper.measure")
    parser.add_argument("--changes", type=int, default=CHANGES, help="in process, of all kinds together")
    parser.add_argument("--commands", type=int, default=COMMANDS, help="checked through the command line")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one kind of change; nothing is written")
    parser.add_argument("--number", type=int, help="one change of that kind")
    options, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="diffcredit-tamper-") as root:
        found = run(Path(root), options)
    for kind, tally in found["kinds"].items():
        print(f"{kind}: {', '.join(f'{count:,} {outcome}' for outcome, count in sorted(tally.items()))}")
    if options.only is None:
        from benchmarks.tamper.page import page

        RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        RESULTS.with_suffix(".md").write_text(page(found), encoding="utf-8")
    if found["findings"]:
        sys.exit(f"{len(found['findings'])} findings")


def run(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run a campaign in the folder ``root``; return its record."""
    # notes of what was compared are the campaign's own, and no plug-in is allowed
    os.environ |= {"DIFFCREDIT_NOTES": str(root / "notes"), "XDG_CONFIG_HOME": str(root / "configuration")}
    from benchmarks.tamper.campaign import campaign
    from benchmarks.tamper.judging import FINDINGS
    from diffcredit.cli.console import Bars

    began, tallies, findings = time.monotonic(), {}, []
    with campaign(root / "studies", options.seed) as running, Bars() as bars:
        plan = planned(options, running.has)
        cases = _cases(running, plan, controls=options.only is None)
        for done, case in enumerate(cases):
            tallies.setdefault(case.kind, Counter())[case.judgement.outcome] += 1
            if case.judgement.outcome in FINDINGS:
                findings.append(
                    {
                        "kind": case.kind,
                        "number": case.number,
                        "change": case.words,
                        "outcome": case.judgement.outcome,
                        "words": case.judgement.words,
                    }
                )
                print(case.kind, case.number, case.words, "→", case.judgement.outcome, case.judgement.words, flush=True)
            elif options.number is not None:
                print(case)
            bars("tampering", min(done + 1, len(plan)), len(plan))
    return {
        "seed": options.seed,
        "machine": f"{platform.machine()}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}",
        "seconds": time.monotonic() - began,
        "kinds": {kind: dict(tally) for kind, tally in tallies.items()},
        "findings": findings,
    }


def planned(options: argparse.Namespace, has: Any) -> list[tuple[str, int]]:
    """Return kind and number of each change: those of all kinds in turn, so that the time left is known early."""
    from benchmarks.tamper.campaign import BESIDE, IN_LEDGER

    kinds = {name: kind.count for name, kind in (IN_LEDGER | BESIDE).items() if has(kind.place)}
    if options.only is not None:
        count = {"commands": options.commands, **kinds}[options.only]
        return [(options.only, number) for number in ([options.number] if options.number is not None else range(count))]
    share = options.changes / sum(kinds.values())
    counts = {name: max(1, round(count * share)) for name, count in kinds.items()} | {"commands": options.commands}
    found = [((number + 0.5) / count, name, number) for name, count in counts.items() for number in range(count)]
    return [(name, number) for _, name, number in sorted(found)]


def _cases(running: Any, plan: list[tuple[str, int]], *, controls: bool) -> Iterator[Any]:
    for name, number in plan:
        yield running.run_command(number) if name == "commands" else running.run(name, number)
    if controls:
        yield from running.controls()


if __name__ == "__main__":
    main()
