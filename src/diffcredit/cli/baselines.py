"""``diffcredit baselines``: credits without retraining, compared with the study's own."""

from contextlib import suppress
from textwrap import fill
from typing import TYPE_CHECKING

from diffcredit.cli.console import Bars, console, duration, say, stopping_gently, table
from diffcredit.cli.opened import opened
from diffcredit.cli.options import BaselineOption, StudyArgument, parse_component
from diffcredit.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffcredit.baselines.study import StudyBaseline
    from diffcredit.study.study import Study

EXAMPLE = "{name: trak, dimensions: 4096}"
MOST_COLUMNS = 4  # properties side by side
NAME_WIDTH = 30  # names without options fit


def baselines(study: StudyArgument, method: BaselineOption = None) -> None:
    """Credit contributors by cheaper methods, and compare them with the study's own credits."""
    from diffcredit.baselines.study import kept_baselines, run_baselines
    from diffcredit.report.baselines import write_baselines_csv
    from diffcredit.report.composing import write_results

    with stopping_gently(), Bars() as bars, opened(study, bars) as loaded:
        found = run_baselines(loaded, [parse_component(text, "--method", EXAMPLE) for text in method or []])
        file = loaded.folder / "baselines.csv"
        every = kept_baselines(loaded)  # with those of earlier runs
        write_baselines_csv(every, loaded.contributions.contributors, file)
        with suppress(UserError):  # there are no credits yet
            write_results(loaded, retrain=False)
    print_baselines(loaded, found)
    say(f"\nTable: {file}")


def print_baselines(study: "Study", found: "Sequence[StudyBaseline]") -> None:
    """Print a line for each method: its correlations with the study's credits, its time, and what it chose."""
    from diffcredit.report.baselines import compared, study_helpfulness

    credits = study_helpfulness(study)
    rows, names = compared(found, credits), list(credits)
    for start in range(0, max(1, len(names)), MOST_COLUMNS):  # one table for every few properties
        some = names[start : start + MOST_COLUMNS]
        title = "Baselines" + ("; rank correlation with the study's credits for" if some else "")
        cells = [
            (
                fill(row.name, NAME_WIDTH, break_long_words=False, break_on_hyphens=False),
                *(row.words(name) for name in some),
                duration(row.seconds),
                ", ".join(f"{key} {value:.3g}" for key, value in row.chosen.items()),
            )
            for row in rows
        ]
        columns = ("method", *some, "time", "chosen")
        console.print(table(columns, cells, left=["chosen"], folded=[*some, "chosen"], title=title))
