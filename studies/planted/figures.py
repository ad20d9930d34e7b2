"""Pictures of the planted-truth studies' credits."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import matplotlib as mpl
import numpy as np

from diffcredit.credit import Credits
from diffcredit.util.arrays import FloatArray

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

Quantity = Literal["credit", "credit − average", "help"]
"""Help is credit − average, turned round where less of the property is better."""


def draw(
    contributors: Sequence[str],
    notes: Mapping[str, str],
    runs: Sequence[Mapping[str, Credits]],
    file: Path,
    *,
    shown: Quantity,
    sampled: Sequence[Mapping[str, FloatArray]] = (),
) -> None:
    """A panel a property with a row a contributor: what is ``shown`` of each run's credits, with its interval; their
    average as a dashed line where credits are. ``sampled``: each run's credits (n,) by conditional sampling, such that
    more is better, as hollow diamonds. ``notes`` tell what was planted, of whom there is something to tell."""
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
            values, half = credits.values - credits.average, credits.contrast_half_width
            if shown == "credit":
                values, half = credits.values, (credits.high - credits.low) / 2
                axis.axvline(credits.average, color=colour, linewidth=0.8, linestyle="--", alpha=0.7)
            if shown == "help":
                values = credits.help()
            style = {"color": colour, "markersize": 3, "label": f"run {run + 1}"}
            axis.errorbar(values, places + shift, xerr=half, fmt="o", **style)
            if sampled and (conditional := sampled[run].get(property)) is not None:
                style |= {"label": f"conditional sampling, run {run + 1}", "markersize": 5, "markerfacecolor": "none"}
                axis.plot(conditional - conditional.mean(), places + shift, "D", **style)
        axis.set_title(property, fontsize=9)
        axis.set_xlabel(shown)
        axis.locator_params(axis="x", nbins=5)
        axis.grid(axis="y", color="#d0d7de", linewidth=0.5)
    axes[0].set_yticks(places, [f"{name}: {notes[name]}" if name in notes else name for name in contributors])
    axes[0].invert_yaxis()
    # the first property may be one that nothing was sampled for
    named = {label: mark for axis in axes for mark, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named, frameon=False, loc="outside upper right", ncols=len(named))
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)
