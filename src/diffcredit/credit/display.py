"""Credits as a table of text and as a figure."""

import math
from typing import TYPE_CHECKING

import numpy as np

from diffcredit.credit.interop import import_package
from diffcredit.util.sanitize import single_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from diffcredit.credit.credits import Credits

# Rows at each end; with more contributors than twice that, those between are left out.
PRINTED, DRAWN = 10, 20
LONGEST_NAME = 40  # characters


def text(credits: "Credits") -> str:
    """Return a table with the contributors from the largest credit to the smallest; the middle of a long one is cut."""
    digits = _decimals(credits)

    def number(value: float) -> str:
        written = f"{value:.{digits}f}"
        return written.removeprefix("-") if float(written) == 0 else written

    top, bottom = _ends(credits, PRINTED)
    columns = (credits.values, credits.low, credits.high)
    rows: list[tuple[str, ...]] = [("contributor", "credit", "low", "high")]
    rows += [(_label(credits.names[i]), *(number(column[i]) for column in columns)) for i in (*top, *bottom)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    if bottom:
        lines.insert(1 + len(top), f"… {len(credits.values) - len(top) - len(bottom)} more")
    about = f" for {single_line(credits.property_name)}" if credits.property_name else ""
    unit = f" in {single_line(credits.unit)}" if credits.unit else ""
    return "\n".join(
        [
            f"Credits of {len(credits.values)} contributors{about}{unit} by {credits.method} from "
            f"{credits.evaluations:,} evaluations, with {100 * credits.confidence:g} % intervals",
            f"F(all) = {number(credits.full)}, F(none) = {number(credits.empty)}, the credits sum to "
            f"{number(float(credits.values.sum()))}",
            *lines,
        ]
    )


def plot(credits: "Credits", ax: "Axes | None") -> "Axes":
    """Draw each credit as a point with its interval, from the largest to the smallest, and the average as a line."""
    top, bottom = _ends(credits, DRAWN)
    shown = np.array([*top, *bottom])
    if ax is None:
        pyplot = import_package("matplotlib.pyplot")
        ax = pyplot.figure(figsize=(6.4, 1.4 + 0.22 * len(shown)), layout="constrained").add_subplot()
    rows = np.arange(len(shown)) + (np.arange(len(shown)) >= len(top))  # an empty row where contributors are left out
    half = credits.high[shown] - credits.values[shown]
    known = np.isfinite(half)
    ax.errorbar(
        credits.values[shown], rows, xerr=np.where(known, half, 0.0), fmt="o", markersize=4, capsize=2, color="#0072b2"
    )
    ax.axvline(credits.average, color="#999999", linewidth=1, linestyle="--", zorder=0)
    ax.annotate("average", (credits.average, 1), xycoords=("data", "axes fraction"), xytext=(0, 2), ha="center",
                va="bottom", textcoords="offset points", fontsize="small", color="#666666")  # fmt: skip
    ticks, labels = rows.tolist(), [_label(credits.names[i]) for i in shown]
    if bottom:
        ticks.insert(len(top), len(top))
        labels.insert(len(top), f"… {len(credits.values) - len(shown)} more")
    ax.set_yticks(ticks, labels, parse_math=False)
    ax.set_ylim(float(rows[-1]) + 0.7, -0.7)  # the largest at the top
    confidence = f"{100 * credits.confidence:g} % interval" if known.any() else "interval not known"
    unit = f"{credits.unit}, " if credits.unit else ""
    ax.set_xlabel(f"credit ({unit}{confidence})", parse_math=False)
    ax.set_title(credits.property_name, pad=16, parse_math=False)
    return ax


def _ends(credits: "Credits", count: int) -> tuple[list[int], list[int]]:
    """Return the contributors with the largest and the smallest credits; all are in the first if they are few."""
    order = np.argsort(-credits.values, kind="stable").tolist()
    return (order, []) if len(order) <= 2 * count else (order[:count], order[-count:])


def _label(name: str) -> str:
    name = single_line(name)
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _decimals(credits: "Credits") -> int:
    """Return how many decimals show a typical interval with two digits, or the credits if it has no width."""
    half = credits.high - credits.values
    half = half[np.isfinite(half) & (half > 0)]
    scale = float(np.median(half)) if len(half) else float(np.abs(credits.values).max())
    return min(max(1 - math.floor(math.log10(scale)), 0), 12) if scale > 0 else 1
