"""From the record to the page."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.cifar20 import recipe, tables
from benchmarks.cifar20.record import CLASSES, LOOKING, SEEN
from benchmarks.markdown import cell, table
from diffcredit.errors import UserError
from diffcredit.report.records import CreditTable
from diffcredit.report.tables import credit_tables
from diffcredit.validation.data import ValidationData
from diffcredit.validation.parts import lds
from diffcredit.validation.presentation.sections import Cell, Section, Table, worded
from diffcredit.validation.presentation.writing import read_section, table_csv
from diffcredit.validation.statistics import Estimate, LDSResult
from diffcredit.validation.validate import make_section

COMPUTED = ("surrogates", "convergence", "budget", "fidelity", "runtime")
"""Parts that the ledger is enough for, beside the LDS."""
MOST_ROWS = 24
"""Of a table on the page; a longer one is in its file alone."""


@dataclass(frozen=True)
class Page:
    """Its text, and the files beside it by their names."""

    text: str
    files: dict[str, bytes]


def page(contest: ValidationData, record: Path, story: str) -> Page:
    """``story`` is what a person wrote, and begins the page."""
    results = lds.result(contest).numbers
    lines, files = [story.rstrip(), ""], {}
    share = next(iter(results.values())).middle
    titles = {name: contest.title(name) for name in contest.names}
    lines += [
        f"## Who predicts models of {share:g} of the labelers",
        "",
        f"The LDS of every method, with 95 % intervals over {_coalitions(contest)} coalitions; △ and ▽: significantly "
        "better or worse than the study's credits (bold), which means that the 95 % interval of the difference over "
        "the same coalitions excludes 0. Sums over a labeler's images are left out where they say what means do.",
        "",
        *tables.scores(results),
        "How many evaluations it takes, by the study's own method without surrogates and by the paper's estimator from "
        "the same evaluations (▽: significantly worse than ours):",
        "",
        *tables.by_count(contest, titles),
        *_redrawn(contest, titles),
        "What another recipe does: its LDS less that of the study's own from as many evaluations, without "
        "surrogates, over the same coalitions (△ and ▽: significantly more or less):",
        "",
        *tables.as_many(contest, titles),
        *_sizes(contest, titles),
        *_other_shares(results),
        "## Who helps with what",
        "",
        "Ranks (1 helps most) and credits by the study's own method, with 95 % intervals: the three labelers who help "
        "most in bold, the three who help least in italics. Figures know labelers by their numbers. Credits of a "
        "property sum to F(all) − F(none), and F(none) is an untrained network's: where that is far away, everybody's "
        "credit has the same sign, and it is the differences that distinguish labelers.",
        "",
        *tables.labelers(_credits(contest), _called()),
        "## What it cost",
        "",
        *tables.spending(tables.spent(contest)),
    ]
    for section in sections(contest, record):
        lines += described(section)
        files |= {f"{each.name}.csv": table_csv(each).encode() for each in section.tables}
        files |= {f"{each.name}.svg": each.svg.encode() for each in section.figures}
        files |= {f"{each.name}.png": each.png for each in section.photographs}
    return Page("\n".join(lines).rstrip() + "\n", files)


def _redrawn(contest: ValidationData, titles: Mapping[str, str]) -> list[str]:
    """How much hangs on which coalitions were evaluated."""
    lines = tables.redrawn(contest, titles)
    words = (
        "These are the first of one design. How much hangs on which? Ours from some of all evaluations, drawn at "
        f"random; means over {tables.DRAWS} draws, ± standard deviations:"
    )
    return [words, "", *lines] if lines else []


def _other_shares(results: Mapping[str, LDSResult]) -> list[str]:
    """The best of each kind where more or fewer labelers take part."""
    first, lines = next(iter(results.values())), []
    for ceilings in first.ceilings:
        if ceilings.share != first.middle:
            lines += [
                f"## And models of {ceilings.share:g} of the labelers",
                "",
                f"The same over {ceilings.coalitions} coalitions: the study's credits, and of each kind of method the "
                "one with the highest mean over properties.",
                "",
                *tables.scores(tables.at_share(results, ceilings.share), best=True),
            ]
    return lines


def _sizes(contest: ValidationData, titles: Mapping[str, str]) -> list[str]:
    """Whether the paper's estimator suffers from coalitions that it did not draw, or from F(∅)."""
    if contest.study.config.design.distribution != "uniform":
        return []
    return [
        "Is it that the paper draws other sizes of coalitions? From evaluations that are thinned at random until their "
        f"sizes are those of its kernel, beside as many as they were drawn; means over {tables.THINNINGS} thinnings, "
        "± standard deviations:",
        "",
        *tables.thinned(contest, titles),
        "Or is it F(∅), through which its line must go? What one labeler is worth more than another does not depend on "
        "it; its estimator, from all evaluations:",
        "",
        *tables.levelled(contest, titles),
        "And where the study's own credits fall short, is it that coalitions of all sizes count in them, where the LDS "
        "asks for half-size ones? A datamodel from the same evaluations, of all sizes and near to a half:",
        "",
        *tables.of_sizes(contest, titles),
        *_itself(contest, titles),
    ]


def _itself(contest: ValidationData, titles: Mapping[str, str]) -> list[str]:
    """Whether the study's own recipe, or crediting it, loses what is lost."""
    lines = recipe.itself(contest, titles)
    words = (
        "Or is it that F by fine-tuning is not F by retraining? The very coalitions of the LDS, evaluated by the "
        "study's own recipe (no credits rest on these evaluations); rank correlations, noise of both included:"
    )
    of_whom = (
        "Of whom does the recipe think more than retraining does, and of whom less? Effects of a labeler on these "
        "coalitions by both, brought to the same spread; their difference in standard errors, "
        f"{recipe.FAR:g} and more in bold:"
    )
    return [words, "", *lines, of_whom, "", *recipe.misjudged(contest, titles, _called())] if lines else []


def sections(contest: ValidationData, record: Path) -> Iterator[Section]:
    """Those that the record is enough for."""
    for part in ("lds", *COMPUTED):
        try:
            yield make_section(contest, part)
        except UserError as error:
            print(f"cifar20: left out: {error}")
    for part in LOOKING:
        if (record / SEEN / part).exists():
            yield read_section(record / SEEN / part)


def described(section: Section) -> list[str]:
    """A section as Markdown, its drawings, pictures and long tables in files of their own."""
    lines = [f"## {section.title}", "", *(line for sentence in section.summary for line in (sentence, ""))]
    for figure in (*section.figures, *section.photographs):
        ending = "svg" if figure in section.figures else "png"
        lines += [f"![{figure.title}](results/{figure.name}.{ending})", "", figure.caption, ""]
    for each in section.tables:
        if len(each.rows) <= MOST_ROWS:
            lines += [f"**{each.title}**", "", *table(each.columns, [_cells(each, row) for row in each.rows])]
        else:
            lines += [f"{each.title}: [{len(each.rows):,} rows](results/{each.name}.csv).", ""]
    return [*lines, *(f"- {caveat}" for caveat in section.caveats), *([""] if section.caveats else [])]


def _cells(about: Table, row: tuple[Cell, ...]) -> list[str]:
    return [_cell(each, about.decimals) for each in row]


def _cell(value: Cell, decimals: int) -> str:
    if isinstance(value, Estimate) or value is None:
        return cell(value)
    return worded(value, f".{decimals}f") if isinstance(value, float) else str(value).replace("|", "\\|")


def _credits(contest: ValidationData) -> list[CreditTable]:
    """Of the properties that the study file names."""
    every = credit_tables(contest.study)
    return [replace(each, title=contest.title(each.property)) for each in every if each.property in contest.names]


def _called() -> dict[str, str]:
    """What a labeler's images show, by the number, which figures call them by."""
    names = json.loads(CLASSES.read_text(encoding="utf-8"))["of each class"]
    return {str(place): f"{name.replace('_', ' ')} ({place})" for place, name in enumerate(names)}


def _coalitions(contest: ValidationData) -> int:
    name = next(iter(contest.properties))
    truths = contest.truths(name)
    return len(min(truths, key=lambda each: abs(each.share - 0.5)).coalitions)
