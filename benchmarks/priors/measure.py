"""Baselines as priors of the estimator, on a finished study: does a cheap method save evaluations?

    diffcredit demo && diffcredit baselines diffcredit-demo/study.yaml
    python -m benchmarks priors

Credits are estimated from k of the study's evaluations, drawn at random, with no prior and with each baseline's
credits as the prior; the score is the correlation of Σ_{i∈S} credit_i with F(S) over the evaluations that were left
out, with what the size of a coalition explains taken out of both (1, s, s², 1/s): the mean over draws. All in one run,
from ``diffcredit-demo`` or the folder in DIFFCREDIT_STUDY.
"""

import json
import os
from pathlib import Path

import numpy as np

from diffcredit.baselines.study import kept_baselines
from diffcredit.credit import estimate
from diffcredit.ledger import game_of
from diffcredit.study.study import Study
from diffcredit.util.arrays import FloatArray

RESULTS = Path(__file__).parent / "results.json"
EVALUATIONS = (16, 32)
DRAWS = 8


def main() -> None:
    folder = Path(os.environ.get("DIFFCREDIT_STUDY", "diffcredit-demo"))
    if not (folder / "study.yaml").is_file():
        print(f"benchmarks priors: no study in {folder}; run diffcredit demo and diffcredit baselines first")
        return
    study = Study.load(folder)
    baselines = kept_baselines(study)
    with study.ledger(create=False) as ledger:
        evaluations = ledger.evaluations(study.name, study.recipe.name, status="done")
        properties = [record.name for record in ledger.properties(study.name)]
    results: dict[str, dict[str, dict[str, float]]] = {}
    for name in properties:
        game = game_of(evaluations, name)
        if np.ptp(game.values) == 0:  # nothing to predict
            continue
        priors = {each.found.name: each.found.credits for each in baselines if each.property in (None, name)}
        results[name] = {
            label: {
                str(k): score(game.coalitions, game.values, game.empty[0], game.full, k, prior) for k in EVALUATIONS
            }
            for label, prior in {"no prior": None, **priors}.items()
        }
        print(name, {label: rows for label, rows in results[name].items() if label == "no prior"}, flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write_page(results)


def score(
    coalitions: np.ndarray,
    values: FloatArray,
    empty: float,
    full: tuple[float, ...],
    k: int,
    prior: FloatArray | None,
) -> float:
    """The mean correlation over draws of k evaluations, the same draws whatever the prior."""
    found = []
    for draw in range(DRAWS):
        rows = np.random.default_rng(draw).permutation(len(values))
        used, left = rows[:k], rows[k:]
        credits = estimate(coalitions[used], values[used], empty=empty, full=full, prior=prior)
        sizes = coalitions[left].sum(axis=1).astype(float)
        by_size = np.stack([np.ones_like(sizes), sizes, sizes**2, 1 / sizes], axis=1)
        predicted, measured = (
            each - by_size @ np.linalg.lstsq(by_size, each, rcond=None)[0]
            for each in (coalitions[left] @ credits.values, values[left])
        )
        found.append(np.corrcoef(predicted, measured)[0, 1])
    return float(np.mean(found))


def write_page(results: dict[str, dict[str, dict[str, float]]]) -> None:
    """Each prior's gain over none, by number of evaluations: the mean over properties, and for how many it is one."""
    labels = list(dict.fromkeys(label for each in results.values() for label in each if label != "no prior"))
    lines = [
        "# Baselines as priors",
        "",
        f"`python -m benchmarks priors` on one finished study: {len(results)} properties. Correlation of predicted and "
        "measured values of the evaluations that were left out, size taken out, gain over no prior: the mean over "
        "properties, and in how many it is positive.",
        "",
        "| prior | " + " | ".join(f"{k} evaluations" for k in EVALUATIONS) + " |",
        "|" + " --- |" * (1 + len(EVALUATIONS)),
        "| no prior (the correlation itself) | "
        + " | ".join(f"{np.mean([each['no prior'][str(k)] for each in results.values()]):.3f}" for k in EVALUATIONS)
        + " |",
    ]
    for label in labels:
        cells = []
        for k in EVALUATIONS:
            gains = [each[label][str(k)] - each["no prior"][str(k)] for each in results.values() if label in each]
            cells.append(f"{np.mean(gains):+.3f} ({sum(gain > 0 for gain in gains)} of {len(gains)})")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    RESULTS.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")
