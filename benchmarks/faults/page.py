"""The results as a page."""

from collections.abc import Mapping
from typing import Any

MENDED = (
    "A driver that was paused in the middle of a write to PostgreSQL held the lock that all writers take, and every "
    "other driver waited until it woke. Now the server ends a session that says nothing within a transaction for ten "
    "seconds, and the sleeper repeats the transaction when it wakes; no insert is a pipeline of statements any more, "
    "behind which the server did not do so "
    "(`tests/ledger/test_database.py::test_a_writer_that_sleeps_in_the_middle_holds_nobody_up`).",
    "A driver that gave up on a locked SQLite file waited for the lock up to two more times, to renew and to give back "
    "claims though it held none. Now who holds none asks for nothing "
    "(`tests/test_cooperation.py::test_who_holds_nothing_asks_the_ledger_for_nothing`).",
)
"""What campaigns have found, in words; each has a test of its own."""

LEFT = """A driver that is paused in the middle of a write to a ledger in a *file* keeps that file locked, and nobody \
but its own process can end that: other drivers wait for a minute and end with `database is locked`. Nothing is lost; \
wake or kill the sleeper, and give the command again.
"""
"""What was found and stays."""

HEAD = """# Nothing lost: a study under faults

`python -m benchmarks faults` runs one study three times, on a SQLite file, on a PostgreSQL server and on a Ray \
cluster of two nodes, all on one machine ({machine}; schedule of faults: seed {seed}), lets faults happen to it, gives \
the same command again when a run has ended, as a supervisor would, and in the end compares its ledger, its kept \
images and its credits with those of the same study undisturbed in one process.

{table}

*Lost*: wanted and not done; *duplicated*: done twice; *wrong*: a value that differs from the undisturbed one in any \
bit. Beside that, in every campaign: {beside}.
"""

NOTES = """## What is real, and what is not

Schedule, driver, executors, workers, ledger with its claims and chain, and the store of kept images are those of \
`diffcredit run`, in processes of their own. An evaluation trains, samples and measures a linear denoiser in numpy \
instead of a network, in 0.3 s: without torch a run starts in seconds. Claims are good for 3 s instead of 120, and a \
worker is given 8 s. `tests/test_kill.py` kills the whole program with a real model.

- Kills and pauses are SIGKILL and SIGSTOP; a node is lost as its raylet and workers are killed, and another joins.
- A database is restarted by `pg_ctl stop -m immediate`; locked by another program's `BEGIN EXCLUSIVE`, longer than a \
lease.
- The ledger's disk is a file system of 4 MB in memory that is filled up; a worker's is `/dev/full`, at which the \
kernel refuses every write.
- The clock of one driver and its workers is put by two hours beside a driver with the right one, by a preloaded \
library (`clock.c`): the wall clock alone, as when an administrator sets the time. On PostgreSQL claims go by the \
server's clock, which is not touched.
- There is no GPU here: running out of its memory is torch's own error, raised by the evaluator.
- An upload is to a folder behind `file://`, and its process is killed when half a file is written, or all files but \
not the record that makes them an artifact.
- `NaN loss` is a training that really diverges, at its first try. `Error after a success`: the evaluator raises when \
its evaluation is made and its images are kept. Both are recorded as failed, and the next run tries again.
- Two drivers at once look for a claim popped twice; two drivers at one stale claim, for one that both take over.
"""


def page(results: Mapping[str, Any]) -> str:
    campaigns = list(results["campaigns"].values())
    head = HEAD.format(
        machine=results["machine"],
        seed=results["seed"],
        table=_table(campaigns),
        beside="; ".join(_beside(campaigns)),
    )
    mended = "\n".join(f"- {line}" for line in MENDED)
    found = f"## Found and mended\n\n{mended}\n\n## Found, and as it is\n\n{LEFT}"
    return "\n".join([head, *map(_faults, campaigns), NOTES, found])


def _table(campaigns: list[Mapping[str, Any]]) -> str:
    lines = [
        "| on | evaluations | faults | runs | begun again | lost | duplicated | wrong | credits differ by | minutes |",
        "| --- |" + " ---: |" * 9,
    ]
    for each in campaigns:
        verdict, faults = each["verdict"], each["faults"].values()
        lines.append(
            f"| {each['place']} | {verdict['wanted']} | {sum(kind['injected'] for kind in faults)} | {each['runs']} "
            f"| {sum(kind['repeated'] for kind in faults)} | {verdict['lost']} | {verdict['duplicated']} "
            f"| {verdict['wrong']} | {verdict['credits']:.2g} | {each['seconds'] / 60:.1f} |"
        )
    return "\n".join(lines)


def _beside(campaigns: list[Mapping[str, Any]]) -> list[str]:
    """What else was looked for, with the sum over all campaigns."""
    words = {
        "not_wanted": "evaluations that nobody wanted",
        "unexplained": "failed attempts that no fault of ours explains",
        "claims": "claims left in the ledger",
        "artifacts": "kept artifacts that are missing, too many or different",
        "chain": "rows that do not fit the ledger's chain",
    }
    counts = [f"{sum(each['verdict'][name] for each in campaigns)} {what}" for name, what in words.items()]
    codes = sorted({each["verdict"]["verify"] for each in campaigns})
    return [
        *counts,
        f"{sum(each['processes left behind'] for each in campaigns)} processes left behind by a run that had ended",
        f"`diffcredit verify` ended with exit code {', '.join(map(str, codes))}",
        f"{sum(each['verdict']['parts'] for each in campaigns)} files left by interrupted uploads, which are part of "
        "no artifact and in nobody's way",
    ]


def _faults(campaign: Mapping[str, Any]) -> str:
    lines = [
        f"## {campaign['place']}",
        "",
        "| fault | happened | noticed as (in so many of them) | evaluations begun again |",
        "| --- | ---: | --- | ---: |",
    ]
    for kind, each in campaign["faults"].items():
        noticed = ", ".join(f"{word} ({count})" for word, count in sorted(each["noticed"].items())) or "–"
        lines.append(f"| {kind} | {each['injected']} | {noticed} | {each['repeated']} |")
    failed = ", ".join(f"{count} by *{kind}*" for kind, count in sorted(campaign["verdict"]["failed"].items())) or "0"
    codes = ", ".join(f"{count} with {code}" for code, count in campaign["exit codes"].items())
    lines += ["", f"Failed attempts in the ledger: {failed}. Runs ended: {codes} (below 0: by that signal).", ""]
    return "\n".join(lines)
