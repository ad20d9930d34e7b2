"""The drawings of validation, as SVG text.

A figure is the same text for the same input. Words stay words in it, small and readable in any script, and all of
them are data: ``$x^2$`` and ``<b>`` show as they are written. Colours are told apart by colour-blind readers (Okabe
and Ito 2008); where there are more names than colours, the shape of line and marker tells them apart.
"""

import io
import math
import unicodedata
import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import wrap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.records import Estimate
from diffcredit.validation.sections import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#2aa5dd", "#4d4d4d", "#7a3b9a")
DASHES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D")
INK, FAINT, MARKED = "#333333", "#d9d9d9", "#000000"
BOLD = 1.15  # times as wide as plain letters, at most

# in inches, of which the page shows 96 pixels
WIDTH, ROW, TITLE, TITLE_LINE, AXIS, GAP, LEGEND_ROW, MARGIN = 10.0, 0.22, 0.34, 0.17, 0.55, 0.4, 0.16, 0.08
LEAST_PANEL = 3.0  # with what is beside it
PER_LINE, MOST_PER_LINE = 3, 4
FONT = 8.5  # points
LONGEST_LABEL = 44  # characters
MOST_BANDS = 4  # of a panel: more would hide each other

STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "diffcredit",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": FONT,
    "axes.titlesize": FONT + 1,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.unicode_minus": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "axes.labelcolor": INK,
}


@dataclass(frozen=True)
class Series:
    """One line of ``curves``: an estimate for each x."""

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
    """A panel per key, side by side; in it a row per label with a dot and its interval; the label ``marked`` is bold
    and its row is dark.

    ``lines`` are a panel's references, such as a ceiling: dashed vertical lines, each with its interval as a band.
    Estimates that are not finite leave their row empty, bounds that are not finite leave the dot alone.
    """
    labels = _union(panels.values())
    references = _union(lines.values())
    with _drawing(name, panels):
        canvas, axes = _row_panels(panels, labels, axis, legend=references, marked=marked)
        for (key, rows), ax in zip(panels.items(), axes, strict=True):
            for label, estimate in lines.get(key, {}).items():
                if not math.isfinite(estimate.value):
                    continue
                colour, dash = _reference_look(references.index(label))
                ax.axvline(estimate.value, color=colour, linestyle=dash, linewidth=1.2, zorder=2)
                if _bounded(estimate):
                    ax.axvspan(estimate.low, estimate.high, color=colour, alpha=0.13, linewidth=0, zorder=1)
            shown = {label: estimate for label, estimate in rows.items() if math.isfinite(estimate.value)}
            for label, estimate in shown.items():
                row, colour = labels.index(label), MARKED if label == marked else COLOURS[0]
                if _bounded(estimate):
                    ax.hlines(row, estimate.low, estimate.high, color=colour, linewidth=1.6, zorder=3)
                ax.plot(estimate.value, row, "o", color=colour, markersize=4.5, zorder=4)
            _finish_row_panel(ax, bool(shown))
        _legend(canvas, [(label, *_reference_look(i), "") for i, label in enumerate(references)])
        return Figure(name, title, caption, _svg(canvas, title))


def boxes(name: str, title: str, caption: str, panels: Mapping[str, Mapping[str, FloatArray]], axis: str) -> Figure:
    """A panel per key, side by side; in it a horizontal box plot per label, top to bottom in the order given.

    A box spans the quartiles with a line at the median; whiskers reach the furthest value within 1.5 times the box's
    width, and values beyond are dots. Values that are not finite are left out.
    """
    labels = _union(panels.values())
    with _drawing(name, panels):
        canvas, axes = _row_panels(panels, labels, axis, legend=[])
        for rows, ax in zip(panels.values(), axes, strict=True):
            samples = {label: np.asarray(sample, np.float64).ravel() for label, sample in rows.items()}
            samples = {label: sample[np.isfinite(sample)] for label, sample in samples.items()}
            samples = {label: sample for label, sample in samples.items() if sample.size}
            for label, sample in samples.items():
                _box(ax, labels.index(label), sample)
            _finish_row_panel(ax, bool(samples))
        return Figure(name, title, caption, _svg(canvas, title))


def curves(
    name: str,
    title: str,
    caption: str,
    panels: Mapping[str, Sequence[Series]],
    x_axis: str,
    y_axis: str,
    log_x: bool = False,
    per_line: int = PER_LINE,
) -> Figure:
    """A panel per key, ``per_line`` in a line; in it a line per series with its intervals as bars and, where there are
    few, as a band.

    A label looks the same in all panels, and so does a height. Estimates that are not finite are left out, as are
    x ≤ 0 with ``log_x``.
    """
    for each in (series for listed in panels.values() for series in listed):
        if len(each.x) != len(each.y):
            raise UserError(f"figure {name!r}: {each.label!r} has {len(each.x)} x for {len(each.y)} estimates")
    labels = _union({series.label: series for series in listed} for listed in panels.values())
    with _drawing(name, panels):
        canvas, axes = _plane_panels(panels, x_axis, y_axis, labels, per_line)
        filled = []
        for listed, ax in zip(panels.values(), axes, strict=True):
            seen = [
                _curve(ax, series, labels.index(series.label), log_x, len(listed) <= MOST_BANDS) for series in listed
            ]
            x = np.concatenate(seen) if seen else np.empty(0)
            _finish_plane_panel(ax, x, log_x)
            filled += [ax] if x.size else []
        _level(filled)
        _legend(canvas, [(label, *_line_look(i)) for i, label in enumerate(labels)])
        return Figure(name, title, caption, _svg(canvas, title))


def beside(count: int) -> int:
    """How many panels to put in a line where ``count`` of them belong together."""
    return count if 1 < count <= MOST_PER_LINE else PER_LINE


def scatter(
    name: str,
    title: str,
    caption: str,
    panels: Mapping[str, Mapping[str, tuple[FloatArray, FloatArray]]],
    x_axis: str,
    y_axis: str,
) -> Figure:
    """A panel per key; in it a cloud of points (x, y) per label, two arrays of one length.

    A label looks the same in all panels. Points that are not finite are left out.
    """
    clouds = {
        key: {label: tuple(np.asarray(part, np.float64).ravel() for part in pair) for label, pair in rows.items()}
        for key, rows in panels.items()
    }
    for label, (x, y) in (item for rows in clouds.values() for item in rows.items()):
        if x.size != y.size:
            raise UserError(f"figure {name!r}: {label!r} has {x.size} x for {y.size} y")
    labels = _union(clouds.values())
    with _drawing(name, panels):
        canvas, axes = _plane_panels(panels, x_axis, y_axis, legend=labels)
        for rows, ax in zip(clouds.values(), axes, strict=True):
            seen = [np.empty(0)]
            for label, (x, y) in rows.items():
                colour, _, marker = _line_look(labels.index(label))
                finite = np.isfinite(x) & np.isfinite(y)
                ax.scatter(
                    x[finite],
                    y[finite],
                    s=20,
                    marker=marker,
                    color=colour,
                    alpha=0.75,
                    edgecolor="white",
                    linewidth=0.4,
                )
                seen.append(x[finite])
            _finish_plane_panel(ax, np.concatenate(seen), log_x=False)
        _legend(canvas, [(label, _line_look(i)[0], "", _line_look(i)[2]) for i, label in enumerate(labels)])
        return Figure(name, title, caption, _svg(canvas, title))


def _union(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    """All keys, in the order in which they first occur."""
    return list(dict.fromkeys(key for mapping in mappings for key in mapping))


def _bounded(estimate: Estimate) -> bool:
    return math.isfinite(estimate.low) and math.isfinite(estimate.high)


def _line_look(index: int) -> tuple[str, str, str]:
    """Colour, line and marker of the index-th label."""
    turn = index // len(COLOURS)
    return COLOURS[index % len(COLOURS)], DASHES[turn % len(DASHES)], MARKERS[turn % len(MARKERS)]


def _reference_look(index: int) -> tuple[str, Any]:
    """Colour and dashes of the index-th reference line: any colour but that of the dots."""
    return COLOURS[1 + index % (len(COLOURS) - 1)], ("--", ":", "-.")[index // (len(COLOURS) - 1) % 3]


def _shown(text: str, longest: int = LONGEST_LABEL) -> str:
    """``text`` on one line that XML can hold; of a long one the middle is left out, since the ends tell names apart."""
    line = "".join(" " if char.isspace() else "\ufffd" if _beyond_xml(char) else char for char in text)
    if len(line) <= longest:
        return line
    head = (longest - 1) // 2
    return f"{line[:head]}…{line[head + 1 - longest :]}"


def _title(text: str, longest: int) -> str:
    """A panel's, on as many lines as it takes, but not for ever."""
    kept = _shown(text, 4 * longest).replace(" %", "\N{NO-BREAK SPACE}%")
    return "\n".join(wrap(kept, longest))


def _beyond_xml(char: str) -> bool:
    """Control characters, surrogates and non-characters."""
    return unicodedata.category(char) in ("Cc", "Cs") or ord(char) & 0xFFFE == 0xFFFE


def _text_width(text: str) -> float:
    """Inches that a line of text takes at most: wide characters take a whole em, others less."""
    ems = sum(1.0 if unicodedata.east_asian_width(char) in "WF" else 0.61 for char in text)
    return ems * FONT / 72


@contextmanager
def _drawing(name: str, panels: Mapping[str, Any]) -> Generator[None]:
    """Matplotlib's own defaults and ours, whatever the user's settings say; theirs are back afterwards."""
    from matplotlib import style

    if not panels:
        raise UserError(f"figure {name!r}: no panels; at least one is needed")
    with style.context(STYLE, after_reset=True), warnings.catch_warnings():
        # the reader's browser has the glyphs that matplotlib's font lacks
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _svg(canvas: "Canvas", title: str) -> str:
    buffer = io.StringIO()
    metadata = {"Title": _shown(title, 200), "Date": None, "Creator": None, "Format": None, "Type": None}
    canvas.savefig(buffer, format="svg", metadata=metadata)
    return buffer.getvalue()


def _row_panels(
    panels: Mapping[str, Any], labels: Sequence[str], axis: str, legend: Sequence[str], marked: str | None = None
) -> tuple["Canvas", list["Axes"]]:
    """Panels that share ``labels`` as rows; the first of each line of panels carries their words."""
    widths = {label: _text_width(_shown(label)) * (BOLD if label == marked else 1) for label in labels}
    label_width = max(widths.values(), default=0) + 0.15
    height = max(len(labels), 2) * ROW
    canvas, axes = _panels(panels, label_width, 0.0, height, legend)
    for index, ax in enumerate(axes):
        ax.set_xlabel(_shown(axis, 60))
        ax.set_ylim(max(len(labels), 2) - 0.5, -0.5)
        for row in range(0, len(labels), 2):
            ax.axhspan(row - 0.5, row + 0.5, color="#f4f4f4", linewidth=0, zorder=0)
        words = [_shown(label) for label in labels] if index % PER_LINE == 0 else [""] * len(labels)
        ax.set_yticks(range(len(labels)), words)
        if marked in labels:
            ax.get_yticklabels()[labels.index(marked)].set_fontweight("bold")
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    return canvas, axes


def _plane_panels(
    panels: Mapping[str, Any], x_axis: str, y_axis: str, legend: Sequence[str], per_line: int = PER_LINE
) -> tuple["Canvas", list["Axes"]]:
    canvas, axes = _panels(panels, 0.0, 0.62, 2.9 if len(panels) > 1 else 3.4, legend, per_line)
    for index, ax in enumerate(axes):
        ax.set_xlabel(_shown(x_axis, 60))
        if index % per_line == 0:
            ax.set_ylabel(_shown(y_axis, 60))
        ax.grid(color=FAINT, linewidth=0.6)
        ax.set_axisbelow(True)
    return canvas, axes


def _panels(
    panels: Mapping[str, Any],
    label_width: float,
    tick_width: float,
    height: float,
    legend: Sequence[str],
    per_line: int = PER_LINE,
) -> tuple["Canvas", list["Axes"]]:
    """An empty canvas with a titled panel per key, ``per_line`` in a line. All lengths are in inches:
    ``label_width`` stands once before each line of panels, ``tick_width`` before each panel."""
    from matplotlib.figure import Figure as Canvas

    columns = min(len(panels), per_line)
    lines = -(-len(panels) // per_line)
    # one panel needs no whole page, and many are shown smaller
    width = max(WIDTH, columns * LEAST_PANEL) if columns > 1 else label_width + 6.0
    panel = (width - 2 * MARGIN - label_width - columns * (tick_width + GAP)) / columns
    longest = max(12, int(panel / _text_width("x") / 1.25))
    titles = [_title(key, longest) for key in panels]
    title = TITLE + TITLE_LINE * max(text.count("\n") for text in titles)
    line = title + height + AXIS
    total = lines * line + _legend_height(legend, width) + MARGIN
    canvas = Canvas(figsize=(width, total), facecolor="white")
    axes = []
    for index, text in enumerate(titles):
        row, column = divmod(index, per_line)
        left = MARGIN + label_width + tick_width + column * (panel + tick_width + GAP)
        bottom = total - row * line - title - height
        ax = canvas.add_axes((left / width, bottom / total, panel / width, height / total))
        ax.set_title(text, loc="left")
        axes.append(ax)
    return canvas, axes


def _legend_columns(labels: Sequence[str], width: float) -> int:
    return max(1, int((width - 2 * MARGIN) / max(_text_width(_shown(label)) + 0.6 for label in labels)))


def _legend_height(labels: Sequence[str], width: float) -> float:
    return -(-len(labels) // _legend_columns(labels, width)) * LEGEND_ROW + 0.1 if labels else 0.0


def _legend(canvas: "Canvas", entries: Sequence[tuple[str, str, Any, str]]) -> None:
    """Label, colour, line and marker of each entry, below all panels."""
    from matplotlib.lines import Line2D

    if not entries:
        return
    handles = [
        Line2D([], [], color=colour, linestyle=dash, marker=marker, markersize=4.5, linewidth=1.4)
        for _, colour, dash, marker in entries
    ]
    labels = [label for label, *_ in entries]
    canvas.legend(
        handles,
        [_shown(label) for label in labels],
        loc="lower center",
        ncols=min(len(labels), _legend_columns(labels, canvas.get_figwidth())),
        frameon=False,
        borderaxespad=0.3,
        labelspacing=0.3,
        handlelength=2.6,
    )


def _finish_row_panel(ax: "Axes", any_value: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    if not any_value:
        _say_empty(ax)
        return
    ax.margins(x=0.06)
    ax.autoscale_view(scaley=False)
    low, high = ax.get_xlim()
    if low < 0 < high:
        ax.axvline(0, color="#999999", linewidth=0.8, zorder=1)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=_room(ax), steps=[1, 2, 2.5, 5, 10]))


def _finish_plane_panel(ax: "Axes", x: FloatArray, log_x: bool) -> None:
    """``x`` are the places of what is drawn."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    if not x.size:
        ax.set_yticks([])
        _say_empty(ax)
        return
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6))
    if not log_x:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=_room(ax), steps=[1, 2, 2.5, 5, 10]))
        return
    ax.set_xscale("log")
    span = x.max() / x.min()
    # decades alone would leave a short axis without numbers
    ax.xaxis.set_major_locator(
        MaxNLocator(nbins=4) if span < 8 else LogLocator(subs=(1, 2, 5) if span < 200 else (1,), numticks=8)
    )
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}" if value >= 10 else f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())


def _level(axes: Sequence["Axes"]) -> None:
    """Gives all panels the y axis that has room for each."""
    limits = [ax.get_ylim() for ax in axes]
    for ax in axes:
        ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _room(ax: "Axes") -> int:
    """For how many numbers along the x axis there is room."""
    return max(2, int(ax.bbox.width / ax.figure.dpi / 0.5))


def _say_empty(ax: "Axes") -> None:
    ax.set_xlim(0, 1)
    ax.set_xticks([])
    ax.text(0.5, 0.5, "no value", transform=ax.transAxes, ha="center", va="center", color="#767676")


def _curve(ax: "Axes", series: Series, index: int, log_x: bool, band: bool) -> FloatArray:
    """Draws ``series`` and tells where its points are."""
    colour, dash, marker = _line_look(index)
    points = [
        (x, estimate)
        for x, estimate in zip(series.x, series.y, strict=True)
        if math.isfinite(x) and math.isfinite(estimate.value) and (x > 0 or not log_x)
    ]
    points.sort(key=lambda point: point[0])
    x = np.array([place for place, _ in points])
    y = [each.value for _, each in points]
    ax.plot(x, y, color=colour, linestyle=dash, marker=marker, markersize=3.5, linewidth=1.4)
    low = np.array([each.low if _bounded(each) else math.nan for _, each in points])
    high = np.array([each.high if _bounded(each) else math.nan for _, each in points])
    if band:
        ax.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
    ax.vlines(x, low, high, color=colour, linewidth=0.9, alpha=0.6)
    return x


def _box(ax: "Axes", row: int, sample: FloatArray) -> None:
    lower, median, upper = np.quantile(sample, [0.25, 0.5, 0.75])
    reach = 1.5 * (upper - lower)
    inside = sample[(sample >= lower - reach) & (sample <= upper + reach)]
    beyond = sample[(sample < lower - reach) | (sample > upper + reach)]
    ax.hlines(row, inside.min(), lower, color=COLOURS[0], linewidth=1)
    ax.hlines(row, upper, inside.max(), color=COLOURS[0], linewidth=1)
    ax.barh(row, upper - lower, left=lower, height=0.6, color="#b9d6e8", edgecolor=COLOURS[0], linewidth=1, zorder=2)
    ax.vlines(median, row - 0.3, row + 0.3, color=COLOURS[1], linewidth=1.8, zorder=3)
    ax.plot(beyond, np.full(beyond.size, row), "o", color=COLOURS[0], markersize=2.5, zorder=3)
