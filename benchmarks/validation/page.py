"""From the simulations' numbers to the page's tables."""

from pathlib import Path
from typing import Any

import numpy as np


def write_page(results: dict[str, Any], file: Path) -> None:
    sizes = results["sizes"]
    lines = [
        "# Intervals and ceilings of the LDS",
        "",
        "`python -m benchmarks validation` makes this page by simulation, from answers that are known.",
        "",
        *_compared(results["compared"], sizes["compared"]),
        *_shipped(results["shipped"], sizes["samples"]),
        *_games(results["games"], sizes["truths"]),
        *_null(results["null"], sizes["truths"]),
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _compared(rows: list[dict[str, Any]], samples: int) -> list[str]:
    names = list(dict.fromkeys(row["interval"] for row in rows))
    counts = sorted({row["coalitions"] for row in rows})
    lines = [
        "## Which interval",
        "",
        "Coverage of 95 % intervals of Spearman's correlation: the lowest and the mean over correlations of about 0, "
        ".3, .6 and .9 and over normal, tied, skewed and heavy-tailed values and uneven noise; and the mean width. A "
        "cell is the lowest or the mean of "
        f"twenty coverages, each from {samples} samples: where it is .95 in truth, the lowest of twenty comes out at "
        "about .92.",
        "",
        "| interval | " + " | ".join(f"{count} coalitions: lowest | mean | width" for count in counts) + " |",
        "|" + " --- |" * (1 + 3 * len(counts)),
    ]
    for name in names:
        cells = []
        for count in counts:
            mine = [row for row in rows if row["interval"] == name and row["coalitions"] == count]
            coverage = [row["coverage"] for row in mine]
            width = np.mean([row["width"] for row in mine])
            cells.append(f"{min(coverage):.3f} | {np.mean(coverage):.3f} | {width:.2f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _shipped(rows: list[dict[str, Any]], samples: int) -> list[str]:
    lines = [
        "## The interval in use, by seeds",
        "",
        f"The same kinds of sample, {samples} a cell, with 1, 2 and 3 seeds: lowest and mean coverage over the four "
        "correlations and three numbers of coalitions. Over seeds alone is the interval of the mean of the "
        "scores by seed; a promised 95 % is not what it gives for other coalitions.",
        "",
        "| values | seeds | Spearman | Pearson | over seeds alone |",
        "| --- | --- | --- | --- | --- |",
    ]
    for world, seeds in dict.fromkeys((row["world"], row["seeds"]) for row in rows):
        mine = [row for row in rows if (row["world"], row["seeds"]) == (world, seeds)]
        cells = []
        for name in ("spearman", "pearson", "over seeds"):
            found = [row[name] for row in mine if name in row]
            cells.append(f"{min(found):.3f}, {np.mean(found):.3f}" if found else "none")
        lines.append(f"| {world} | {seeds} | {' | '.join(cells)} |")
    return [*lines, ""]


def _games(rows: list[dict[str, Any]], samples: int) -> list[str]:
    lines = [
        "## Games: additive .7, pairs .3, a seed's noise of variance .64, two seeds",
        "",
        "What validation says of one truth of coalitions of half of the contributors, against the population: four "
        f"games, {samples} truths a cell. Credits: those of the best additive model, and the same with noise of "
        ".7 and 1.5 of their spread (good, poor). Truth, bias, and in brackets the coverage of the 95 % "
        "interval (.95 comes out between .88 and 1), by contributors and coalitions.",
        "",
        "| | " + " | ".join(f"{row['contributors']}, {row['coalitions']}" for row in rows) + " |",
        "|" + " --- |" * (1 + len(rows)),
    ]
    for name in (name for name, each in rows[0].items() if isinstance(each, dict)):
        found = [row[name] for row in rows]
        cells = [f"{each['truth']:.2f} {each['bias']:+.2f} ({each['coverage']:.2f})" for each in found]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _null(rows: list[dict[str, Any]], samples: int) -> list[str]:
    lines = [
        "## The additive ceiling of pure noise",
        "",
        f"The mean over {samples} draws, with its standard error; 0 is right.",
        "",
        "| contributors | coalitions | additive ceiling | standard error |",
        "| --- | --- | --- | --- |",
    ]
    for row in rows:
        numbers = f"{row['mean']:+.3f} | {row['standard error']:.3f}"
        lines.append(f"| {row['contributors']} | {row['coalitions']} | {numbers} |")
    return lines
