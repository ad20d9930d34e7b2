"""``diffcredit report``: the HTML report of a study."""

from diffcredit.cli.console import Bars, say, stopping_gently
from diffcredit.cli.options import StudyArgument


def report(study: StudyArgument) -> None:
    """Write report.html and credits.csv from all evaluations so far."""
    from diffcredit.report.composing import write_results
    from diffcredit.study.study import Study

    with stopping_gently(), Bars() as bars:
        loaded = Study.load(study, bars)
        write_results(loaded)
    say(f"Report: {loaded.folder / 'report.html'}")
