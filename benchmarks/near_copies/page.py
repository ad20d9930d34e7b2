"""From the numbers to the page's tables."""

from pathlib import Path
from typing import Any

from benchmarks.markdown import table


def write_page(results: dict[str, Any], file: Path) -> None:
    places = [results[name] for name in results]
    lines = [
        "# Near-copies and look-alikes",
        "",
        "`python -m benchmarks near_copies` makes this page. Edited copies of 120 pictures are given by other "
        "contributors. *By pixels* is the part of them that the search for near-copies finds, *at all* the part that "
        "is found so or stands out by EfficientNet-Lite0's features. Look-alikes are only shown to a person.",
        "",
    ]
    columns = ["copies", *(f"{name}: {how}" for name in results for how in ("by pixels", "at all"))]
    rows = [
        [edit, *(f"{place['edits'][edit][how]:.0%}" for place in places for how in ("pixels", "at all"))]
        for edit in places[0]["edits"]
    ]
    lines += table(columns, rows)
    lines += ["Pairs among the pictures themselves, which nobody copied for this:", ""]
    kinds = [("near-copies", "between"), ("near-copies", "own"), ("look-alikes", "between"), ("look-alikes", "own")]
    columns = ["pictures", "contributors", *(f"{what}, {_whose(whose)}" for what, whose in kinds)]
    rows = [
        [f"{name}, {place['images']:,}", str(place["contributors"]), *(f"{place[a][b]:,}" for a, b in kinds)]
        for name, place in results.items()
    ]
    lines += table(columns, rows)
    for name, place in results.items():
        if place["clearest"]:
            lines += [f"The clearest look-alikes of {name}, by how much they stand out:", ""]
            lines += [f"- {one} and {two}: {margin:.2f}" for one, two, margin in place["clearest"]] + [""]
    file.write_text("\n".join(lines), encoding="utf-8")


def _whose(kind: str) -> str:
    return "between contributors" if kind == "between" else "of one contributor"
