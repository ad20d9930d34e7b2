"""Tables of pages, and scores of an LDS as their cells."""

from collections.abc import Iterable, Sequence
from math import isfinite

from diffcredit.validation.presentation.sections import in_words
from diffcredit.validation.statistics.datamodeling import Difference, LDSResult, MethodScore
from diffcredit.validation.statistics.records import Estimate

MARKS = {"worse": " ▽", "better": " △"}
"""The marks of a method whose score is significantly below or above that of the study's credits."""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return [*(f"| {' | '.join(cells)} |" for cells in lines), ""]


def cell(estimate: Estimate | None, form: str = ".2f") -> str:
    return "–" if estimate is None or not isfinite(estimate.value) else in_words(estimate, form)


def scores_of(result: LDSResult, name: str) -> list[MethodScore]:
    """A method's at the middle share: one, or none."""
    return [score for score in result.at(result.middle) if score.contender.name == name]


def difference_of(result: LDSResult, name: str) -> Difference | None:
    """At the middle share."""
    return next((each for each in result.differences if (each.contender, each.share) == (name, result.middle)), None)


def best_of(result: LDSResult, kind: str) -> MethodScore | None:
    """The method of one category with the highest LDS at the middle share."""
    mine = [score for score in result.at(result.middle) if score.contender.category == kind]
    return max(mine, key=lambda score: score.spearman.value, default=None)


def marked(result: LDSResult, score: MethodScore) -> str:
    return cell(score.spearman) + mark(difference_of(result, score.contender.name))


def mark(difference: Difference | None) -> str:
    return MARKS.get(difference.verdict, "") if difference else ""
