"""The figures of validation, as SVG text.

A figure is the same text for the same input. Words stay text in it, small and readable in any script, and are never
interpreted: ``$x^2$`` and ``<b>`` show as they are written. Colour-blind readers can distinguish the colours (Okabe and
Ito 2008). Where there are more names than colours, the shapes of line and marker distinguish them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from diffcredit.util.arrays import FloatArray
from diffcredit.validation.presentation import drawing
from diffcredit.validation.presentation.sections import Figure
from diffcredit.validation.statistics.records import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PER_LINE = 4
MOST_BANDS = 4  # in one panel: more would hide each other


@dataclass(frozen=True)
class Series:
    """One line of `curves`: an estimate for each x."""

    label: str
    x: tuple[float, ...]
    y: tuple[Estimate, ...]


def forest(
    name: str,
    title: str,
    caption: str,
    panels: Mapping[str, Mapping[str, Estimate]],
    axis: str,
    lines: Mapping[str, Mapping[str, Estimate]] = MappingProxyType({}),
    marked: str | None = None,
) -> Figure:
    """Draw a panel for each key, with a row for each label: a dot and its interval, bold and dark if ``marked``.
    ``lines`` are a panel's references: dashed, with a band. Numbers that are not finite are not drawn."""
    labels, references = _union(panels.values()), _union(lines.values())
    with drawing.our_style():
        canvas, axes = drawing.row_panels(panels, labels, axis, legend=references, marked=marked)
        for (key, rows), ax in zip(panels.items(), axes, strict=True):
            for label, estimate in _finite(lines.get(key, {})).items():
                colour, dash = drawing.reference_look(references.index(label))
                ax.axvline(estimate.value, color=colour, linestyle=dash, linewidth=1.2, zorder=2)
                if estimate.bounded:
                    ax.axvspan(estimate.low, estimate.high, color=colour, alpha=0.13, linewidth=0, zorder=1)
            shown = _finite(rows)
            for label, estimate in shown.items():
                row, colour = labels.index(label), drawing.MARKED if label == marked else drawing.COLOURS[0]
                if estimate.bounded:
                    ax.hlines(row, estimate.low, estimate.high, color=colour, linewidth=1.6, zorder=3)
                ax.plot(estimate.value, row, "o", color=colour, markersize=4.5, zorder=4)
            drawing.finish_row_panel(ax, bool(shown))
        drawing.draw_legend(canvas, [(label, *drawing.reference_look(i), "") for i, label in enumerate(references)])
        return Figure(name, title, caption, drawing.to_svg(canvas, title))


def boxes(name: str, title: str, caption: str, panels: Mapping[str, Mapping[str, FloatArray]], axis: str) -> Figure:
    """Draw a panel for each key, with a horizontal box plot for each label, top to bottom: quartiles, median, whiskers
    to the furthest value within 1.5 box widths, dots beyond. Values that are not finite are left out."""
    labels = _union(panels.values())
    with drawing.our_style():
        canvas, axes = drawing.row_panels(panels, labels, axis, legend=[])
        for rows, ax in zip(panels.values(), axes, strict=True):
            samples = {label: sample[np.isfinite(sample)] for label, sample in rows.items()}
            for label, sample in samples.items():
                if sample.size:
                    _box(ax, labels.index(label), sample)
            drawing.finish_row_panel(ax, any(sample.size for sample in samples.values()))
        return Figure(name, title, caption, drawing.to_svg(canvas, title))


def curves(
    name: str,
    title: str,
    caption: str,
    panels: Mapping[str, Sequence[Series]],
    x_axis: str,
    y_axis: str,
    log_x: bool = False,
    per_line: int = drawing.PER_LINE,
) -> Figure:
    """Draw a panel for each key, ``per_line`` in a line, with a line for each series and its intervals as bars and, for
    few series, a band. All panels share looks and heights. Not drawn: what is not finite, and x ≤ 0 with ``log_x``."""
    labels = _union({series.label: series for series in listed} for listed in panels.values())
    with drawing.our_style():
        canvas, axes = drawing.plane_panels(panels, x_axis, y_axis, labels, per_line)
        filled = []
        for listed, ax in zip(panels.values(), axes, strict=True):
            band = len(listed) <= MOST_BANDS
            seen = [_curve(ax, series, labels.index(series.label), log_x, band) for series in listed]
            x = np.concatenate([np.empty(0), *seen])
            drawing.finish_plane_panel(ax, x, log_x)
            filled += [ax] if x.size else []
        limits = [ax.get_ylim() for ax in filled]
        for ax in filled:
            ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        drawing.draw_legend(canvas, [(label, *drawing.line_look(i)) for i, label in enumerate(labels)])
        return Figure(name, title, caption, drawing.to_svg(canvas, title))


def beside(count: int) -> int:
    """Return how many panels to put in a line where ``count`` of them belong together."""
    return count if 1 < count <= MOST_PER_LINE else drawing.PER_LINE


def scatter(
    name: str,
    title: str,
    caption: str,
    panels: Mapping[str, Mapping[str, tuple[FloatArray, FloatArray]]],
    x_axis: str,
    y_axis: str,
) -> Figure:
    """Draw a panel for each key, with a cloud of points (x, y) for each label; not those that are not finite."""
    labels = _union(panels.values())
    look: dict[str, Any] = {"s": 20, "alpha": 0.75, "edgecolor": "white", "linewidth": 0.4}
    with drawing.our_style():
        canvas, axes = drawing.plane_panels(panels, x_axis, y_axis, legend=labels)
        for rows, ax in zip(panels.values(), axes, strict=True):
            seen = [np.empty(0)]
            for label, (x, y) in rows.items():
                colour, _, marker = drawing.line_look(labels.index(label))
                finite = np.isfinite(x) & np.isfinite(y)
                ax.scatter(x[finite], y[finite], marker=marker, color=colour, **look)
                seen.append(x[finite])
            drawing.finish_plane_panel(ax, np.concatenate(seen), log_x=False)
        drawing.draw_legend(
            canvas, [(label, drawing.line_look(i)[0], "", drawing.line_look(i)[2]) for i, label in enumerate(labels)]
        )
        return Figure(name, title, caption, drawing.to_svg(canvas, title))


def _union(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for mapping in mappings for key in mapping))


def _finite(rows: Mapping[str, Estimate]) -> dict[str, Estimate]:
    return {label: estimate for label, estimate in rows.items() if math.isfinite(estimate.value)}


def _curve(ax: "Axes", series: Series, index: int, log_x: bool, band: bool) -> FloatArray:
    colour, dash, marker = drawing.line_look(index)
    points = [
        (x, estimate)
        for x, estimate in zip(series.x, series.y, strict=True)
        if math.isfinite(x) and math.isfinite(estimate.value) and (x > 0 or not log_x)
    ]
    points.sort(key=lambda point: point[0])
    x = np.array([place for place, _ in points])
    y = [each.value for _, each in points]
    ax.plot(x, y, color=colour, linestyle=dash, marker=marker, markersize=3.5, linewidth=1.4)
    low = np.array([each.low if each.bounded else math.nan for _, each in points])
    high = np.array([each.high if each.bounded else math.nan for _, each in points])
    if band:
        ax.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
    ax.vlines(x, low, high, color=colour, linewidth=0.9, alpha=0.6)
    return x


def _box(ax: "Axes", row: int, sample: FloatArray) -> None:
    lower, median, upper = np.quantile(sample, [0.25, 0.5, 0.75])
    reach = 1.5 * (upper - lower)
    inside = sample[(sample >= lower - reach) & (sample <= upper + reach)]
    beyond = sample[(sample < lower - reach) | (sample > upper + reach)]
    blue, orange = drawing.COLOURS[:2]
    ax.hlines(row, inside.min(), lower, color=blue, linewidth=1)
    ax.hlines(row, upper, inside.max(), color=blue, linewidth=1)
    ax.barh(row, upper - lower, left=lower, height=0.6, color="#b9d6e8", edgecolor=blue, linewidth=1, zorder=2)
    ax.vlines(median, row - 0.3, row + 0.3, color=orange, linewidth=1.8, zorder=3)
    ax.plot(beyond, np.full(beyond.size, row), "o", color=blue, markersize=2.5, zorder=3)
