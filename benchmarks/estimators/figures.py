"""The benchmark's figures, for the docs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.estimators.contenders import OURS, PAPER

mpl.use("svg")
mpl.rcParams |= {
    "svg.hashsalt": "diffcredit",  # the same file for the same numbers
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}

from matplotlib import pyplot as plt  # noqa: E402  (after the backend is chosen)

BLUE, GREY = "#1f6feb", "#8b949e"
TITLES = {
    "inception": "Inception Score, n = 20",
    "entropy": "entropy, n = 50",
    "percentile": "percentile, n = 258",
    "digits-20": "digits, n = 20",
    "digits-50": "digits, n = 50",
}


def draw_budgets(curves: Mapping[str, Sequence[Any]], file: Path) -> None:
    """Correlation with the truth over the number of evaluations; bands are two standard errors over seeds."""
    figure, axes = plt.subplots(1, len(curves), figsize=(2.3 * len(curves), 2.5), sharey=True, layout="constrained")
    for axis, (name, runs) in zip(axes, curves.items(), strict=True):
        for method, colour, label in ((PAPER, GREY, "the paper's"), (OURS, BLUE, "default")):
            counts = [int(count) for count in runs[0][method]]
            values = np.array([[run[method][str(count)]["correlation"] for count in counts] for run in runs])
            mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / len(values) ** 0.5
            axis.plot(counts, mean, color=colour, marker="o", markersize=2.5, linewidth=1.4, label=label)
            axis.fill_between(counts, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.2, linewidth=0)
        axis.set_xscale("log")
        axis.set_xticks([100, 1000], ["100", "1,000"])
        axis.set_title(TITLES[name], fontsize=9)
        axis.set_xlabel("evaluations")
        axis.set_ylim(0, 1)
        axis.grid(axis="y", color="#d0d7de", linewidth=0.5)
    axes[0].set_ylabel("correlation with the\ntrue Shapley values")
    axes[0].legend(frameon=False, loc="lower right")
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def draw_coverage(coverage: Mapping[str, Any], file: Path) -> None:
    """Coverage of the default's intervals at half, all and twice the usual evaluations."""
    figure, axis = plt.subplots(figsize=(7, 2.6), layout="constrained")
    axis.axhspan(0.93, 0.98, color=BLUE, alpha=0.08, linewidth=0)
    axis.axhline(0.95, color=BLUE, linewidth=0.8)
    for place, name in enumerate(coverage):
        for shift, part in ((-0.25, "0.5"), (0, "1"), (0.25, "2")):
            row = coverage[name][f"shapley {part}"]
            for score, marker, face in (("all", "o", BLUE), ("top fifth", "D", "white")):
                axis.errorbar(
                    place + shift,
                    row[score]["mean"],
                    2 * row[score]["se"],
                    marker=marker,
                    color=BLUE,
                    markerfacecolor=face,
                    markersize=4.5,
                    linewidth=0.8,
                    label={"all": "all contributors", "top fifth": "top fifth"}[score] if place + shift == 0 else None,
                )
    axis.set_xticks(range(len(coverage)), [TITLES[name] for name in coverage])
    axis.set_ylabel("coverage of 95 % intervals")
    axis.set_ylim(0.8, 1.005)
    axis.legend(frameon=False, loc="lower right")
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)
