"""From the agreements to the page's tables."""

import math
from pathlib import Path
from typing import Any

from benchmarks.sampling.settings import REFERENCES, SETTINGS, SHARES

SCORES = {
    "pearson": "values r",
    "spearman": "values ρ",
    "credits": "credits r",
    "credit_ranks": "credits ρ",
}
HEAD = (
    "setting",
    "images",
    "cost",
    "F(all)",
    f"less {REFERENCES[0].name}'s",
    *(f"{reference.name}: {score}" for reference in REFERENCES for score in SCORES.values()),
)

READING = {
    "openmoji-sampling": (
        "The demo's study with 24 coalitions: models of 0.3 M parameters before pruning, 16-pixel images with white "
        "backgrounds. How to read it:",
        "",
        "- The number of images matters little for colourfulness: an eighth of them gives nearly the same order of "
        "coalitions and of contributors (ρ of .97 to .99 for ddim 100, .94 for dpm 20), though F(all) itself moves, by "
        "up to 7 for dpm. Cluster entropy needs more of them.",
        "- ddim does not settle as its steps grow. F(all) of colourfulness falls from 46 to 41 between 10 and 100 "
        "steps, and ddim 10 and ddim 100 rank contributors differently. The cause is the cut of x̂₀ to [−1, 1] "
        "(`clip_sample`), which in diffusers' ddim leaves the noise as it was before the cut, so that every step pulls "
        "anew: in a check beside this page, ddim 100 with the noise that follows from the cut x̂₀ correlated over the "
        "coalitions with dpm 20 by .9996 and with ddim 100 by .08 (colourfulness, 64 images). White backgrounds are at "
        "that bound, and here the cut is at work all the time; models whose x̂₀ stays within it, or latent models, "
        "which have none, should differ less. The ddim of this page is diffusers', which studies had by default; ours "
        "has since taken the noise that follows from the cut.",
        "- dpm cuts x̂₀ off consistently and settles: for colourfulness, 10 steps give the values and credits of 20, "
        "and 5 nearly so. It agrees with ddim of few steps and not with ddim 100.",
        "- With 24 evaluations no contributor is told from the others (by ddim 100, every rank's interval is 1 to 12, "
        "for both properties): correlations of credits say how settings agree, not that the credits are right. "
        "Clusters are those of the base model's ddim 100 images.",
    ),
}


def write_page(results: dict[str, Any], file: Path) -> None:
    lines = [
        "# Cheaper sampling: what it does to values and credits",
        "",
        "Each model that a finished study kept is sampled again with every setting, from the same initial noises; "
        "fewer images are the first of all. Two settings with all images are what the others are compared with: "
        f"{' and '.join(reference.name for reference in REFERENCES)} steps. F(all) is the property of the coalition of "
        "all contributors. r is Pearson's and ρ Spearman's correlation with the reference: of values over the design's "
        "coalitions, endpoints apart; of credits, by the study's own estimator from these values, over contributors. "
        f"Cost is in image-steps, of {REFERENCES[0].name}'s with all images; time on a machine goes with it as long as "
        "batches are full. `python -m benchmarks sampling` makes this page.",
        "",
        "What it tells is agreement of settings, on the same trained models and with images that are partly the same; "
        "it does not tell how near any of them is to the truth of retraining, nor what another training seed would "
        "change, which is often more.",
    ]
    for name, found in results.items():
        lines += ["", f"## {name}", "", _setup(found)]
        if name in READING:
            lines += ["", *READING[name]]
        for prop in found["properties"]:
            rows = found["agreement"][prop]
            spreads = [rows[each.name]["1"][each.name]["spread"] for each in REFERENCES]
            lines += [
                "",
                f"### {prop}",
                "",
                "Over coalitions the values have a standard deviation of "
                + " and ".join(f"{_number(x)} ({each.name})" for x, each in zip(spreads, REFERENCES, strict=True))
                + ".",
                "",
                f"| {' | '.join(HEAD)} |",
                "|" + " --- |" * len(HEAD),
            ]
            for share in SHARES:
                for setting in SETTINGS:
                    beside = rows[setting.name][str(share)]
                    row = beside[REFERENCES[0].name]
                    cells = [
                        setting.name,
                        str(found["images"] // share),
                        f"{row['cost']:.1%}",
                        _number(row["full"]),
                        _number(row["difference"], sign=True),
                        *(_number(beside[reference.name][score]) for reference in REFERENCES for score in SCORES),
                    ]
                    lines.append(f"| {' | '.join(cells)} |")
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _setup(found: dict[str, Any]) -> str:
    versions = found["versions"]
    return (
        f"{len(found['values'])} models ({found['contributors']} contributors, {found['coalitions']} coalitions and "
        f"the endpoints), {found['images']} images of each. On {found['device']}, torch {versions.get('torch')}, "
        f"diffusers {versions.get('diffusers')}."
    )


def _number(value: float | None, *, sign: bool = False) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:+.3f}" if sign else f"{value:.3f}"
