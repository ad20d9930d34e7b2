"""Pictures of the planted-truth studies' credits."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from diffcredit.credit import Credits

mpl.use("svg")
mpl.rcParams |= {
    "svg.hashsalt": "diffcredit",  # the same file for the same numbers
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}

from matplotlib import pyplot as plt  # noqa: E402  (after the backend is chosen)

COLOURS = ("#1f6feb", "#bc4c00", "#1a7f37", "#8250df")
APART = 0.16  # of a row's height between two runs


def draw(
    contributors: Sequence[str],
    notes: Mapping[str, str],
    runs: Sequence[Mapping[str, Credits]],
    file: Path,
    *,
    about_average: bool,
) -> None:
    """A panel a property with a row a contributor: each run's credit and interval, and its average as a dashed line;
    or ``about_average`` credit − average. ``notes`` tell what was planted, of whom there is something to tell."""
    properties, places = list(runs[0]), np.arange(len(contributors))
    figure, axes = plt.subplots(
        1,
        len(properties),
        figsize=(2.6 * len(properties) + 1.8, 0.3 * len(places) + 1.2),
        sharey=True,
        layout="constrained",
    )
    for axis, property in zip(axes, properties, strict=True):
        axis.axvline(0, color="#8b949e", linewidth=0.8)
        for run, (each, colour) in enumerate(zip(runs, COLOURS, strict=False)):
            credits, shift = each[property], (2 * run - (len(runs) - 1)) * APART
            values, half = credits.values, (credits.high - credits.low) / 2
            if about_average:
                values, half = values - credits.average, credits.contrast_half_width
            else:
                axis.axvline(credits.average, color=colour, linewidth=0.8, linestyle="--", alpha=0.7)
            style = {"color": colour, "markersize": 3, "label": f"run {run + 1}"}
            axis.errorbar(values, places + shift, xerr=half, fmt="o", **style)
        axis.set_title(property, fontsize=9)
        axis.set_xlabel("credit − average" if about_average else "credit")
        axis.locator_params(axis="x", nbins=5)
        axis.grid(axis="y", color="#d0d7de", linewidth=0.5)
    axes[0].set_yticks(places, [f"{name}: {notes[name]}" if name in notes else name for name in contributors])
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, loc="outside upper right", ncols=len(runs))
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)
