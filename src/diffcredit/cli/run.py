"""``diffcredit run``: runs or resumes a study."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from diffcredit.cli.console import Bars, StudyArgument, WorkersOption, say

if TYPE_CHECKING:
    from diffcredit.execution import Executor
    from diffcredit.study import Study

MOST_LINES = 5  # of one kind before a run begins


def run(study: StudyArgument, workers: WorkersOption = None) -> None:
    """Run a study, or resume it: train, prune, evaluate coalitions, write credits.csv and report.html."""
    from diffcredit.study import Study

    with stopping_gently(), Bars() as bars:
        run_study(Study.load(study, bars), workers)


@contextmanager
def stopping_gently() -> Generator[None]:
    """Ctrl-C ends a run with exit code 130 and a word on how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        say("Stopped. What was finished is recorded; the same command goes on from there.")
        raise typer.Exit(130) from None


def run_study(study: "Study", workers: int | None) -> None:
    """The study from wherever it stands to its report, with progress, and the credits printed."""
    from diffcredit.cli.credits import print_credits
    from diffcredit.cli.report import write_results

    contributions = study.contributions
    say(
        f"{study.name}: {len(contributions.images):,} images of {contributions.n} contributors, "
        f"{len(contributions.heldout):,} held out"
    )
    for line in contributions.skipped:
        say(f"skipped {line}")
    duplicates = contributions.duplicates()
    for duplicate in duplicates[:MOST_LINES]:
        say(f"the same image from {', '.join(duplicate.contributors)}: {', '.join(duplicate.names)}")
    if len(duplicates) > MOST_LINES:
        say(f"and {len(duplicates) - MOST_LINES} more images from several contributors")
    evaluate(study, make_executor(study, workers))
    tables = write_results(study)
    print_credits(tables)
    say(f"\nReport: {study.folder / 'report.html'}\nTable:  {study.folder / 'credits.csv'}")


def evaluate(study: "Study", executor: "Executor") -> None:
    """All evaluations that the ledger lacks, with progress, and why there are no more."""
    failed = 0
    for evaluation in study.run(executor):
        if evaluation.status == "failed":
            failed += 1
            reason = (evaluation.error or "").strip().splitlines()[-1]
            say(f"coalition {evaluation.coalition} failed: {reason}")
    if failed:
        say(f"{failed} evaluations failed; the ledger has their errors, and the next run tries them again.")
    schedule = study.schedule()
    schedule.catch_up()
    standing = schedule.standing()
    say(f"Enough: {standing.reason()}." if standing.reached else "Enough: all coalitions of the design are evaluated.")


def make_executor(study: "Study", workers: int | None) -> "Executor":
    """Local workers, as many as asked for; by default the CPU's cores, or this process alone with a GPU."""
    from diffcredit.execution import InProcess, LocalWorkers

    threads = study.config.threads
    if workers is None:
        from diffcredit.preparation import device_of

        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = max(1, cores // threads) if device_of(study).type == "cpu" else 1
    return LocalWorkers(workers, threads) if workers > 1 else InProcess(threads)
