"""The common parts of figures, drawn with matplotlib: canvases, panels, axes, labels and legends."""

import io
import unicodedata
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from diffcredit.util.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#2aa5dd", "#4d4d4d", "#7a3b9a")
DASHES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D")
INK, FAINT, MARKED = "#333333", "#d9d9d9", "#000000"
BOLD = 1.15  # times as wide as plain letters, at most

# in inches; a page shows 96 pixels of each
WIDTH, ROW, TITLE, TITLE_LINE, AXIS, GAP, LEGEND_ROW, MARGIN = 10.0, 0.22, 0.34, 0.17, 0.55, 0.4, 0.16, 0.08
LEAST_PANEL = 3.0  # with the words beside it
PER_LINE = 3
FONT = 8.5  # points
LONGEST_LABEL = 44  # characters

STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "diffcredit",
    "text.parse_math": False,
    "font.size": FONT,
    "axes.titlesize": FONT + 1,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK),
}


def line_look(index: int) -> tuple[str, str, str]:
    """Return the colour, line and marker of the index-th label."""
    turn = index // len(COLOURS)
    return COLOURS[index % len(COLOURS)], DASHES[turn % len(DASHES)], MARKERS[turn % len(MARKERS)]


def reference_look(index: int) -> tuple[str, Any]:
    """Return the colour and dashes of the index-th reference line; never the colour of the dots."""
    return COLOURS[1 + index % (len(COLOURS) - 1)], ("--", ":", "-.")[index // (len(COLOURS) - 1) % 3]


def _one_line(text: str, longest: int = LONGEST_LABEL) -> str:
    """Return ``text`` as one line that XML can hold; a long one loses its middle, since names differ at their ends."""

    def beyond_xml(char: str) -> bool:
        return unicodedata.category(char) in ("Cc", "Cs") or ord(char) & 0xFFFE == 0xFFFE

    line = "".join(" " if char.isspace() else "\ufffd" if beyond_xml(char) else char for char in text)
    if len(line) <= longest:
        return line
    head = (longest - 1) // 2
    return f"{line[:head]}…{line[head + 1 - longest :]}"


def _text_width(text: str) -> float:
    """Return the most inches that a line of text takes: wide characters take a whole em, others less."""
    ems = sum(1.0 if unicodedata.east_asian_width(char) in "WF" else 0.61 for char in text)
    return ems * FONT / 72


@contextmanager
def our_style() -> Generator[None]:
    """Draw with matplotlib's defaults and ours, not the user's settings, which are restored afterwards."""
    from matplotlib import style

    with style.context(STYLE, after_reset=True), warnings.catch_warnings():
        # the reader's browser has the glyphs that are missing from matplotlib's font
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def to_svg(canvas: "Canvas", title: str) -> str:
    buffer = io.StringIO()
    metadata = {"Title": _one_line(title, 200), "Date": None, "Creator": None, "Format": None, "Type": None}
    canvas.savefig(buffer, format="svg", metadata=metadata)
    return buffer.getvalue()


def row_panels(
    panels: Mapping[str, Any], labels: Sequence[str], axis: str, legend: Sequence[str], marked: str | None = None
) -> tuple["Canvas", list["Axes"]]:
    """Make panels that share ``labels`` as rows; only the first in each line of panels shows the labels."""
    widths = {label: _text_width(_one_line(label)) * (BOLD if label == marked else 1) for label in labels}
    label_width = max(widths.values(), default=0) + 0.15
    height = max(len(labels), 2) * ROW
    canvas, axes = _panels(panels, legend, height, label_width=label_width)
    for index, ax in enumerate(axes):
        ax.set_xlabel(_one_line(axis, 60))
        ax.set_ylim(max(len(labels), 2) - 0.5, -0.5)
        for row in range(0, len(labels), 2):
            ax.axhspan(row - 0.5, row + 0.5, color="#f4f4f4", linewidth=0, zorder=0)
        words = [_one_line(label) for label in labels] if index % PER_LINE == 0 else [""] * len(labels)
        ax.set_yticks(range(len(labels)), words)
        if marked in labels:
            ax.get_yticklabels()[labels.index(marked)].set_fontweight("bold")
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    return canvas, axes


def plane_panels(
    panels: Mapping[str, Any], x_axis: str, y_axis: str, legend: Sequence[str], per_line: int = PER_LINE
) -> tuple["Canvas", list["Axes"]]:
    canvas, axes = _panels(panels, legend, 2.9 if len(panels) > 1 else 3.4, tick_width=0.62, per_line=per_line)
    for index, ax in enumerate(axes):
        ax.set_xlabel(_one_line(x_axis, 60))
        if index % per_line == 0:
            ax.set_ylabel(_one_line(y_axis, 60))
        ax.grid(color=FAINT, linewidth=0.6)
        ax.set_axisbelow(True)
    return canvas, axes


def _panels(
    panels: Mapping[str, Any],
    legend: Sequence[str],
    height: float,
    *,
    label_width: float = 0.0,
    tick_width: float = 0.0,
    per_line: int = PER_LINE,
) -> tuple["Canvas", list["Axes"]]:
    """Make an empty canvas with a titled panel for each key, ``per_line`` in a line. All lengths are in inches:
    ``label_width`` stands once before each line of panels, ``tick_width`` before each panel."""
    from matplotlib.figure import Figure as Canvas

    columns = min(len(panels), per_line)
    lines = -(-len(panels) // per_line)
    # a single panel does not fill the page, and many are shown smaller
    width = max(WIDTH, columns * LEAST_PANEL) if columns > 1 else label_width + 6.0
    panel = (width - 2 * MARGIN - label_width - columns * (tick_width + GAP)) / columns
    longest = max(12, int(panel / _text_width("x") / 1.25))
    # at most four lines' worth of text
    kept = [_one_line(key, 4 * longest).replace(" %", "\N{NO-BREAK SPACE}%") for key in panels]
    titles = ["\n".join(wrap(text, longest)) for text in kept]
    title = TITLE + TITLE_LINE * max(text.count("\n") for text in titles)
    line = title + height + AXIS
    below = -(-len(legend) // _legend_columns(legend, width)) * LEGEND_ROW + 0.1 if legend else 0.0
    total = lines * line + below + MARGIN
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
    return max(1, int((width - 2 * MARGIN) / max(_text_width(_one_line(label)) + 0.6 for label in labels)))


def draw_legend(canvas: "Canvas", entries: Sequence[tuple[str, str, Any, str]]) -> None:
    """Draw the label, colour, line and marker of each entry, below all panels."""
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
        [_one_line(label) for label in labels],
        loc="lower center",
        ncols=min(len(labels), _legend_columns(labels, canvas.get_figwidth())),
        frameon=False,
        borderaxespad=0.3,
        labelspacing=0.3,
        handlelength=2.6,
    )


def finish_row_panel(ax: "Axes", any_value: bool) -> None:
    if not any_value:
        _mark_empty(ax)
        return
    ax.margins(x=0.06)
    ax.autoscale_view(scaley=False)
    low, high = ax.get_xlim()
    if low < 0 < high:
        ax.axvline(0, color="#999999", linewidth=0.8, zorder=1)
    _locate_x_ticks(ax)


def finish_plane_panel(ax: "Axes", x: FloatArray, log_x: bool) -> None:
    """Set the axes of a panel whose points are at ``x``."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    if not x.size:
        ax.set_yticks([])
        _mark_empty(ax)
        return
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6))
    if not log_x:
        _locate_x_ticks(ax)
        return
    ax.set_xscale("log")
    span = x.max() / x.min()
    # decades alone would leave a short axis without numbers
    ax.xaxis.set_major_locator(
        MaxNLocator(nbins=4) if span < 8 else LogLocator(subs=(1, 2, 5) if span < 200 else (1,), numticks=8)
    )
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}" if value >= 10 else f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())


def _locate_x_ticks(ax: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    count = max(2, int(ax.bbox.width / ax.figure.dpi / 0.5))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=count, steps=[1, 2, 2.5, 5, 10]))


def _mark_empty(ax: "Axes") -> None:
    ax.set_xlim(0, 1)
    ax.set_xticks([])
    ax.text(0.5, 0.5, "no value", transform=ax.transAxes, ha="center", va="center", color="#767676")
