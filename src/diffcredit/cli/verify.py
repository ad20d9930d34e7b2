"""``diffcredit verify``: check that a study's ledger is unchanged, and that the rest of the study agrees with it."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.console import Bars, say, stopping_gently
from diffcredit.cli.options import StudyArgument, WorkersOption
from diffcredit.cli.signing import SignedByOption
from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError
from diffcredit.util.sanitize import last_line, shortened, single_line

if TYPE_CHECKING:
    from diffcredit.study.study import Study

MOST_PROBLEMS = 20  # listed
MOST_MISSING = 5


def verify(
    study: StudyArgument,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="HASH", help="The head from a report or an earlier verify: all rows up to it must be unchanged."
        ),
    ] = None,
    signed_by: SignedByOption = None,
    signature: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The signature, also of a report or archive. Default: head.sig in the results."
        ),
    ] = None,
    recompute: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="Also repeat K random evaluations and compare their values.")
    ] = None,
    workers: WorkersOption = None,
) -> None:
    """Check that no row of a study's ledger was changed, removed, inserted or moved since it was written, and that the
    study file, evidence, baselines and published credits are those of the ledger."""
    from diffcredit.study.study import Study

    with stopping_gently(), Bars() as bars:
        loaded = Study.load(study, bars)
        verify_chain(loaded, head)
        verify_manifest(loaded)
        verify_payouts(loaded)
        verify_anchors(loaded)
        if signed_by is not None:
            verify_signature(loaded, signed_by, signature or loaded.folder / "head.sig")
        elif signature is not None:
            raise UserError("--signature: needs the public key of who signed it, with --signed-by")
        if recompute is not None:
            verify_values(loaded, recompute, workers)


def verify_chain(study: "Study", head: str | None) -> None:
    """Check every row against the chain, and the chain against the head."""
    wanted = None if head is None else head.strip().lower()
    if wanted is not None and (len(wanted) != 64 or set(wanted) - set("0123456789abcdef")):
        raise UserError(f"--head: {head!r} is not a head; accepted: the 64 digits 0 to 9 and a to f that verify prints")
    with study.ledger(create=False) as ledger:
        found = ledger.audit(study.name, wanted)
    for problem in found.problems[:MOST_PROBLEMS]:
        say(problem)
    if len(found.problems) > MOST_PROBLEMS:
        say(f"and {len(found.problems) - MOST_PROBLEMS:,} more")
    if found.problems:
        raise DiffcreditError(f"{study.file}: the ledger was changed: {len(found.problems):,} problems")
    say(f"{study.name}: {found.rows:,} rows, all unchanged")
    if found.migrated:
        say(f"the first {found.migrated:,} rows entered the chain when an older ledger was migrated, as they were then")
    if wanted is None:
        say("Keep the head outside this machine and pass it with --head: only that reveals rows removed from the end.")
    say(f"Head: {found.head}")


def verify_manifest(study: "Study") -> None:
    """Check that the study file, the files that results are read from, and the credits are those in the ledger."""
    from diffcredit.study.manifest import check_files, check_terms
    from diffcredit.study.published import published

    check_terms(study)
    files, missing = check_files(study)
    if files:
        say(f"{files:,} file{'s' * (files > 1)} of results, as entered in the ledger")
    if missing:
        more = f" and {len(missing) - MOST_MISSING:,} more" if len(missing) > MOST_MISSING else ""
        say(f"Entered in the ledger, but not here: {', '.join(map(shortened, missing[:MOST_MISSING]))}{more}")
    try:
        when = published(study)
    except UserError as error:  # such as a surrogate's code, which whoever audits a ledger need not have or allow
        say(f"The published credits were not compared: {error}")
        return
    if when:
        with warnings.catch_warnings(action="ignore", category=DiffcreditWarning):
            study.credits()  # compares them
        say(f"The credits that were published on {when[:10]} follow from the ledger.")


def verify_payouts(study: "Study") -> None:
    """Check that each payout is followed by the proof of its own statements."""
    from diffcredit.payout.recorded import payouts

    with study.ledger(create=False) as ledger:
        count = len(payouts(study, ledger))
    if count:
        say(f"{count:,} payout{'s' * (count > 1)}, each with the proof of its statements")


def verify_anchors(study: "Study") -> None:
    """Check the timestamps in the ledger, and print them."""
    from diffcredit.study.anchored import anchors

    with study.ledger(create=False) as ledger:
        for each in anchors(study, ledger):
            say(str(each))


def verify_signature(study: "Study", key: Path, file: Path) -> None:
    """Check a signature, and that the head which it vouches for is in the chain."""
    from diffcredit.proofs.signing import read_signature

    signed = read_signature(file, key)
    if signed.study != study.name:
        raise DiffcreditError(f"{file}: is of the study {shortened(signed.study)}, not of {study.name!r}")
    with study.ledger(create=False) as ledger:
        if ledger.audit(study.name, signed.head).problems:
            raise DiffcreditError(
                f"{study.file}: the ledger was changed: the head that was signed on {signed.time} is not in its chain"
            )
    say(f"{file}: signed on {single_line(signed.time)}, and every row up to the head that was signed is as it was then")


def verify_values(study: "Study", count: int, workers: int | None) -> None:
    """Repeat random evaluations, and compare their values with the recorded ones."""
    from diffcredit.study.reevaluate import recompute
    from diffcredit.study.workers import Workers, make_executor

    differing = total = 0
    for each in recompute(study, make_executor(study, Workers(workers)), count):
        total += 1
        what = f"coalition {each.coalition} (replicate {each.replicate}), {each.property}"
        if each.now is None:
            verdict = f"failed: {last_line(each.error)}"
        elif each.now == each.recorded:
            verdict = "equal"
        else:
            verdict = f"{each.now!r} now, {'within' if each.agrees else 'beyond'} the tolerance {each.tolerance:.3g}"
        say(f"{what}: {each.recorded!r} recorded, {verdict}")
        differing += not each.agrees
    if differing:
        raise DiffcreditError(f"{study.file}: {differing} of {total} values differ from the recorded ones")
    say(f"All {total} values agree with the recorded ones.")
