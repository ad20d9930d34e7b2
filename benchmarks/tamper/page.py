"""The page about a campaign."""

from collections.abc import Mapping
from typing import Any

from benchmarks.tamper.campaign import BESIDE, IN_LEDGER
from benchmarks.tamper.judging import OUTCOMES

HEAD = """# Changed records

`python -m benchmarks tamper`: {changes:,} random changes to copies of a paid study with {contributors} contributors \
and known values, {commands} of them read through the command line, in {minutes:.0f} minutes of one core ({machine}; \
seed {seed}). After each change all is read that a reader is shown: credits with their intervals, help, ranks, shares \
and verdicts, the payout and each contributor's statement, the status and the head. A change is *refused* in one line, \
or *harmless*: all that is shown is as it was. A change that is *shown*, or ends in a *traceback*, is a finding.
"""


def page(results: Mapping[str, Any]) -> str:
    from benchmarks.tamper.untouched import WORTHS

    kinds = results["kinds"]
    changes = sum(sum(tally.values()) for kind, tally in kinds.items() if kind != "untouched")
    head = HEAD.format(
        changes=changes,
        commands=sum(kinds.get("commands", {}).values()),
        contributors=len(WORTHS),
        minutes=results["seconds"] / 60,
        machine=results["machine"],
        seed=results["seed"],
    )
    groups = {
        "What the head covers": IN_LEDGER,
        "Beside the ledger": BESIDE,
        "By the command line, and untouched": ("commands", "untouched"),
    }
    tables = [f"## {title}\n\n{_table(kinds, names)}" for title, names in groups.items()]
    found = [
        f"- {each['kind']} {each['number']} ({each['change']}): {each['outcome']}: {each['words']}"
        for each in results["findings"]
    ]
    listed = "\n".join(found) or "None."
    return "\n".join([head, *tables, f"## Findings\n\n{listed}\n"])


def _table(kinds: Mapping[str, Mapping[str, int]], names: Any) -> str:
    lines = [f"| change | changes | {' | '.join(OUTCOMES)} |", f"| --- |{' ---: |' * (1 + len(OUTCOMES))}"]
    rows = {name: kinds[name] for name in names if name in kinds}
    for name, tally in rows.items():
        cells = [sum(tally.values()), *(tally.get(outcome, 0) for outcome in OUTCOMES)]
        lines.append(f"| {name} | {' | '.join(f'{count:,}' for count in cells)} |")
    return "\n".join([*lines, ""])
