"""``diffcredit report``: the HTML report of a study."""

from diffcredit.cli.console import Bars, say, stopping_gently
from diffcredit.cli.options import StudyArgument
from diffcredit.cli.signing import SignOption, key_of, sign_results


def report(study: StudyArgument, sign: SignOption = None) -> None:
    """Write report.html and credits.csv from all evaluations so far."""
    from diffcredit.report.composing import write_results
    from diffcredit.study.study import Study

    key = key_of(sign)
    with stopping_gently(), Bars() as bars:
        loaded = Study.load(study, bars)
        write_results(loaded)
        sign_results(loaded, key, [loaded.folder / "report.html"])
    say(f"Report: {loaded.folder / 'report.html'}")
