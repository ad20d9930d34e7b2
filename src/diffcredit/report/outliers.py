"""A warning, in words, of coalitions whose values the estimator's model cannot explain."""

import numpy as np

from diffcredit.coalitions import decode
from diffcredit.credit.outliers import Outlier, outliers_in
from diffcredit.report.numbers import plain
from diffcredit.report.records import CreditTable
from diffcredit.util.sanitize import single_line

MOST_NAMES = 4
FEW = 8  # contributors; all their 254 coalitions can be evaluated


def influential_outliers(table: CreditTable) -> tuple[Outlier, ...]:
    """Return the outliers that alone move a credit by more than the half-width of its interval. Others
    matter to none: a single coalition of medium size has hardly any weight in a Shapley value."""
    half_widths = (np.array(table.high) - np.array(table.low)) / 2
    return tuple(each for each in outliers_in(table.diagnostics) if (np.abs(each.moves) > half_widths).any())


def outlier_warning(table: CreditTable) -> str | None:
    """Say which coalitions do not fit, by how much, and what to do; None where none moves a credit."""
    outliers = influential_outliers(table)
    if not outliers:
        return None
    values = "; ".join(_described(outlier, table.contributors) for outlier in outliers)
    it = "it" if len(outliers) == 1 else "them"
    used = f"use {it} as measured" if table.diagnostics.get("set_apart") else f"treat {it} as noise"
    return f"{table.title}: {values}. The credits {used}; check that nothing went wrong there, and {_advice(table)}"


def _described(outlier: Outlier, contributors: tuple[str, ...]) -> str:
    members = [name for name, inside in zip(contributors, decode(outlier.coalition), strict=True) if inside]
    others = [name for name in contributors if name not in members]
    if len(members) <= len(others):
        who = f"{_listed(members)} alone" if len(members) == 1 else f"{_listed(members)} together"
    else:
        who = f"everybody but {_listed(others)}"
    side = "above" if outlier.size > 0 else "below"
    return (
        f"the value of {who} is {plain(abs(outlier.size))} {side} what all other evaluations predict "
        f"({plain(round(abs(outlier.studentised), 1))} standard errors)"
    )


def _listed(names: list[str]) -> str:
    shown = list(map(single_line, names[:MOST_NAMES] if len(names) > MOST_NAMES + 1 else names))
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} others" if more else "")


def _advice(table: CreditTable) -> str:
    n = len(table.contributors)
    if table.evaluations >= 2**n - 2:
        return "compare with --method exact, which needs no model"
    if n <= FEW:
        return f"evaluate all {2**n - 2} coalitions (design exhaustive), from which --method exact needs no model"
    return "evaluate more coalitions, or compare with --method unshrunk, which shrinks nothing"
