"""Coalitions that the default's model cannot explain, in words: what a reader of the credits should know of them."""

import numpy as np

from diffcredit.coalitions import decode
from diffcredit.credit.lack_of_fit import Outlier, outliers_in
from diffcredit.report.numbers import plain
from diffcredit.report.records import CreditTable
from diffcredit.util.sanitize import single_line

MOST_NAMES = 4
# Contributors of whom all coalitions, 254, are not too many to evaluate.
FEW = 8


def telling_outliers(table: CreditTable) -> tuple[Outlier, ...]:
    """Those that alone move somebody's credit by more than half the width of its interval. The others concern no
    credit: a single coalition of middle size has next to no part in the Shapley value."""
    half_widths = (np.array(table.high) - np.array(table.low)) / 2
    return tuple(each for each in outliers_in(table.diagnostics) if (np.abs(each.moves) > half_widths).any())


def complaint(table: CreditTable) -> str | None:
    """Which coalitions do not fit, by how much, and what to do; None where none moves a credit."""
    outliers = telling_outliers(table)
    if not outliers:
        return None
    values = "; ".join(_described(outlier, table.contributors) for outlier in outliers)
    it = "it" if len(outliers) == 1 else "them"
    taken = f"count {it} as measured, not as noise" if table.diagnostics.get("set_apart") else f"take {it} for noise"
    return f"{table.title}: {values}. The credits {taken}; see that nothing went wrong there, and {_advice(table)}"


def _described(outlier: Outlier, contributors: tuple[str, ...]) -> str:
    members = [name for name, inside in zip(contributors, decode(outlier.coalition), strict=True) if inside]
    others = [name for name in contributors if name not in members]
    if len(members) <= len(others):
        who = f"{_listed(members)} alone" if len(members) == 1 else f"{_listed(members)} together"
    else:
        who = f"everybody but {_listed(others)}"
    side = "above" if outlier.size > 0 else "below"
    return (
        f"the value of {who} is {plain(abs(outlier.size))} {side} what all other evaluations foretell "
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
