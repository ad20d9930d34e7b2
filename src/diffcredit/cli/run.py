"""``diffcredit run``: runs or resumes a study."""

import os
import warnings
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from diffcredit.cli.console import Bars, StudyArgument, console, say
from diffcredit.cli.opened import opened
from diffcredit.cli.where import Where, with_where
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.util.sanitize import last_line, single_line

if TYPE_CHECKING:
    from diffcredit.execution import Executor
    from diffcredit.ledger import Evaluation
    from diffcredit.study.quality import Comparison
    from diffcredit.study.study import Study

MOST_LINES = 5  # of one kind before a run begins


@with_where
def run(study: StudyArgument, *, where: Where) -> None:
    """Run a study, or resume it: train, prune, evaluate coalitions, write credits.csv and report.html."""
    with stopping_gently(), Bars() as bars, opened(study, bars) as loaded:
        run_study(loaded, where)


@contextmanager
def stopping_gently() -> Generator[None]:
    """Ctrl-C ends a run with exit code 130 and a word on how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        say("Stopped. What was finished is recorded; the same command goes on from there.")
        raise typer.Exit(130) from None


def run_study(study: "Study", where: Where) -> None:
    """The study from wherever it stands to its report, with progress, and the credits printed."""
    from diffcredit.cli.credits import print_credits
    from diffcredit.cli.report import write_results
    from diffcredit.study.pilot import signals, warn_of_noise

    contributions = study.contributions
    say(
        f"{study.name}: {len(contributions.images):,} images of {contributions.n} contributors, "
        f"{len(contributions.heldout):,} held out"
    )
    for line in contributions.skipped:
        say(f"skipped {single_line(line)}")
    for line in contributions.left_out:
        say(f"left out {line}")
    duplicates = contributions.duplicates()
    for duplicate in duplicates[:MOST_LINES]:
        names = ", ".join(map(single_line, duplicate.names))
        say(f"the same image from {', '.join(duplicate.contributors)}: {names}")
    if len(duplicates) > MOST_LINES:
        say(f"and {len(duplicates) - MOST_LINES} more images from several contributors")
    executor = make_executor(study, where)
    study.prepare()
    check_quality(study)
    foretold = signals(study)
    warn_of_noise(foretold)
    if study.surrogates.names:
        study.surrogates.prepare()
        for name in study.surrogates.without():
            say(f"no surrogate stands in for {name}: credited by its evaluations alone")
    evaluate(study, executor)
    if (told := signals(study)) != foretold:
        warn_of_noise(told)
    tables = write_results(study)
    print_credits(tables)
    say(f"\nReport: {study.folder / 'report.html'}\nTable:  {study.folder / 'credits.csv'}")


def check_quality(study: "Study") -> None:
    """Compares a pruned model with the base model, and warns where pruning broke it."""
    from diffcredit.study.quality import compare

    comparisons = compare(study)
    if comparisons:
        print_quality(comparisons)
    for comparison in comparisons:
        if comparison.broken:
            warnings.warn(comparison.complaint(), DiffcreditWarning, stacklevel=2)


def print_quality(comparisons: "Iterable[Comparison]") -> None:
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, title=Text("\nThe pruned model, before any coalition", "bold"), title_justify="left")
    grid.add_column("property", overflow="fold")
    for column in ("base model", "pruned", "untrained", "lost"):
        grid.add_column(column, justify="right")
    for row in comparisons:
        numbers = (f"{value:.4g}" for value in (row.base, row.start, row.untrained))
        grid.add_row(Text(row.name), *numbers, f"{100 * row.lost:.0f} %")
    console.print(grid)


def evaluate(study: "Study", executor: "Executor") -> None:
    """All evaluations that the ledger lacks, with progress, and why there are no more."""
    tell_failures(study.run(executor))
    schedule = study.schedule()
    schedule.catch_up()
    standing = schedule.standing()
    say(f"Enough: {standing.reason()}." if standing.reached else "Enough: all coalitions of the design are evaluated.")


def tell_failures(evaluations: "Iterable[Evaluation]", *, recorded: bool = True) -> None:
    """Goes through all of them and says which failed."""
    failed, unmeasured = 0, Counter[str]()
    for evaluation in evaluations:
        if evaluation.status == "failed":
            failed += 1
            say(f"coalition {evaluation.coalition} failed: {last_line(evaluation.error)}")
        for value in evaluation.values:
            if value.error:
                unmeasured[value.property] += 1
                if unmeasured[value.property] == 1:
                    say(f"coalition {evaluation.coalition}: {value.property} failed: {last_line(value.error)}")
    if failed:
        where = "the ledger has their errors, and " if recorded else ""
        say(f"{failed} evaluations failed; {where}the next run tries them again.")
    for name, count in unmeasured.items():
        say(f"{name} failed in {count} evaluations; the ledger has the errors, and diffcredit measure tries again.")


def make_executor(study: "Study", where: Where) -> "Executor":
    """Local workers, as many as asked for, by default the CPU's cores, or one for each GPU; or those of a Ray cluster.
    A single local one is this process, unless it has a time limit: a process cannot end itself when it hangs."""
    from diffcredit.execution import InProcess, LocalWorkers
    from diffcredit.execution.placement import VARIABLE, visible_devices
    from diffcredit.study.prepared import device_of

    if where.on == "ray":
        return ray_workers(study, where)
    for option, value in (("--address", where.address), ("--gpus-per-worker", where.gpus_per_worker)):
        if value is not None:
            raise UserError(f"{option} {value}: only with --on ray")
    threads, device, devices = study.config.threads, device_of(study), ()
    if device.type == "cuda" and device.index is None:
        import torch

        devices = visible_devices(torch.cuda.device_count(), os.environ.get(VARIABLE))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    usual = max(1, cores // threads) if device.type == "cpu" else len(devices) or 1
    workers = where.workers or usual
    if workers == 1 and where.timeout is None:
        return InProcess(threads)
    return LocalWorkers(workers, threads, timeout=seconds_of(where.timeout), devices=devices)


def seconds_of(minutes: float | None) -> float | None:
    return None if minutes is None else 60 * minutes


def ray_workers(study: "Study", where: Where) -> "Executor":
    """Workers of a Ray cluster, which have GPUs unless the study is for the CPU."""
    from diffcredit.execution.ray_cluster import RayWorkers

    device, gpus = study.config.device, where.gpus_per_worker
    if device == "cpu" and gpus:
        raise UserError(f"--gpus-per-worker {gpus:g}: {study.file} says device: cpu; leave it out")
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"{study.file}: device: {device!r} is one of this machine; with --on ray: auto, cpu, cuda")
    usual = {"auto": None, "cpu": 0.0, "cuda": 1.0}[device]
    return RayWorkers(
        where.workers,
        where.address,
        study.config.threads,
        usual if gpus is None else gpus,
        timeout=seconds_of(where.timeout),
    )
