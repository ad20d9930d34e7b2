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
        "- Steps are cheap to save: with all images, 20 dpm steps give the values and credits of 100 ddim steps (r of "
        "1.000 and 1.000 for colourfulness, .983 and .987 for cluster entropy) for a fifth of the cost, 10 do so for a "
        "tenth (.999, .999; .996, .996), and 5 order coalitions nearly as well (.992, .967).",
        "- Images are not, where a property counts kinds: of cluster entropy a half of the images still tells "
        "coalitions apart (.92 by ddim 100), a quarter hardly (.66), an eighth does not. Colourfulness keeps its "
        "order with an eighth (.99), though F(all) itself moves by 8, since the first images are others.",
        "- Credits jump more than values do. With a quarter of the images values of colourfulness agree by .995 and "
        "credits by .80, with an eighth by .990 and .98: with 24 evaluations how far credits are shrunk, and how they "
        "are adjusted for size, is itself uncertain, and a small change may tip it.",
        "- With so few evaluations hardly anybody is told from others (the study's rank intervals reach from 4 at best "
        "to 12): correlations of credits say how settings agree, not that the credits are right. Clusters are those of "
        "the base model's ddim 100 images.",
        "- diffusers' own ddim does not settle as its steps grow where x̂₀ is cut to [−1, 1] (`clip_sample`), for it "
        "leaves the noise as it was before the cut: an earlier version of this page, with it, had a correlation of .08 "
        "between 100 ddim and 20 dpm steps over such coalitions (colourfulness). Ours takes the noise that follows "
        "from the cut.",
    ),
    "cifar20-h200-paper": (
        "Photographs: the first 24 coalitions, drawn as the paper draws them, of the CIFAR-20 study "
        "(`studies/cifar20-h200`), whose pruned models have 0.6 M parameters, with 32-pixel images. How to read it:",
        "",
        "- 20 dpm steps, the study's own setting, do what 100 ddim steps do: values agree by .98 (class coverage) to "
        "1.00, credits by .95 to 1.00. That is about as near as 50 ddim steps are to 100 (.94 to 1.00), so that most "
        "of what is left is other images rather than worse ones.",
        "- 10 dpm steps, a tenth of the cost, still order coalitions (values .98 to 1.00), and credits of four "
        "properties (.90 to 1.00); those of class coverage suffer (.71). With 5 steps, or with 10 of ddim, images are "
        "worse by the Fréchet distance (7.6 and 6.8 in place of 5.5), and credits by it and by nearest distance no "
        "longer agree.",
        "- A quarter of the images costs less of the truth than 5 steps do, for the same price: .94 to 1.00 for three "
        "properties' credits and .89 for nearest distance's, by 20 dpm steps. Class coverage asks for 20 images of a "
        "class, which 512 do not have of most: the property itself has changed, and its credits with it (.23); with an "
        "eighth there is nothing to measure.",
        "- Credits from 24 evaluations of 20 contributors are mostly noise, which all settings share: the correlations "
        "say how settings agree, not that the credits are right.",
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
