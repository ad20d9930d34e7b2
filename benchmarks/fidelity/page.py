"""From the evaluations' values to the page's tables."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.fidelity.recipes import RECIPES, TRUTH

FloatArray = NDArray[np.float64]

READING = (
    "How to read it, with 24 coalitions and intervals this wide:",
    "",
    "- The first row is the ceiling: what truth says of itself. Colourfulness and cluster entropy have little signal "
    "in a model this small.",
    "- Fine-tuning, dense or sparse, approaches retraining as steps grow, and the sparse model keeps up with the dense "
    "one.",
    "- `soup` agrees with retraining about as well as 60 steps of fine-tuning do, from twelve fine-tunings in all and "
    "nothing to train for a coalition; it is good at 15 steps already, where fine-tuning is not, and gains nothing "
    "from 240: far from the start, weights no longer average.",
    "- `lora` on the attention alone, of which this network has one layer, needs hundreds of steps to move at all.",
    "- `gradient_ascent` and `influence` with their default settings do not tell contributors apart for the held-out "
    "loss.",
)


def write_page(results: dict[str, Any], file: Path) -> None:
    coalitions = results["coalitions"]
    properties = list(next(iter(results["values"][TRUTH].values()))["0"])
    sizes = np.array([coalition.count("1") for coalition in coalitions], dtype=np.float64)
    lines = [
        "# Fidelity of each way to a coalition's model",
        "",
        f"Correlation with models retrained from scratch (mean of two seeds) over {len(coalitions)} coalitions of the "
        "demo's twelve designers, and the same with the coalition's size taken out (partial correlation given the "
        "size and its square), which is what tells contributors apart. In brackets a 90 % bootstrap interval over "
        "coalitions. Training seconds are those of one evaluation; preparation is once a study and includes the base "
        "or sparse model where it came first. The machine had other work too, which makes all times longer, up to "
        "three times: compare them roughly, and with each other only.",
        "",
        f"On a CPU, torch {results['versions'].get('torch')}, diffusers {results['versions'].get('diffusers')}. "
        "`python -m benchmarks fidelity` makes this page.",
        "",
    ]
    head = " | ".join(f"{name}: r | size out" for name in properties)
    lines += [f"| method | {head} | training s | preparation s |", "|" + " --- |" * (2 * len(properties) + 3)]
    truth = {name: table(results, TRUTH, name) for name in properties}
    for recipe in RECIPES:
        cells = []
        for name in properties:
            if recipe == TRUTH:
                mine, theirs = truth[name].T
            else:
                mine, theirs = table(results, recipe, name)[:, 0], truth[name].mean(axis=1)
            if np.ptp(mine) == 0:
                cells.append("the same value for all |")
                continue
            plain, partial = correlation(mine, theirs), partial_correlation(mine, theirs, sizes)
            low, high = interval(mine, theirs, sizes)
            cells.append(f"{plain:.2f} | {partial:.2f} ({low:.2f} to {high:.2f})")
        seconds = np.mean([evaluation["training"] for evaluation in results["seconds"][recipe]])
        label = f"{recipe}, one seed against the other" if recipe == TRUTH else recipe
        lines.append(
            f"| {label} | {' | '.join(cells)} | {seconds:.2f} | {results['preparation seconds'][recipe]:.0f} |"
        )
    lines += ["", *READING]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def table(results: dict[str, Any], recipe: str, name: str) -> FloatArray:
    """(coalitions, seeds) values of one property."""
    values = results["values"][recipe]
    return np.array([[seed[name] for _, seed in sorted(values[c].items())] for c in results["coalitions"]])


def correlation(a: FloatArray, b: FloatArray) -> float:
    """Pearson's."""
    return float(np.corrcoef(a, b)[0, 1])


def partial_correlation(a: FloatArray, b: FloatArray, sizes: FloatArray) -> float:
    """Of what a quadratic in the size leaves of both."""
    design = np.vander(sizes, 3)
    left = [y - design @ np.linalg.lstsq(design, y, rcond=None)[0] for y in (a, b)]
    return correlation(left[0], left[1])


def interval(a: FloatArray, b: FloatArray, sizes: FloatArray) -> tuple[float, float]:
    """90 %, resampling coalitions."""
    random = np.random.default_rng(0)
    draws = []
    for _ in range(500):
        rows = random.integers(len(a), size=len(a))
        draws.append(partial_correlation(a[rows], b[rows], sizes[rows]))
    low, high = np.nanquantile(draws, [0.05, 0.95])
    return float(low), float(high)
