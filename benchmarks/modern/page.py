"""The page of the results, with grids of images and curves of losses."""

import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

TITLES = {
    "dit": "A class-conditional flow DiT on CIFAR-20",
    "emoji": "A text-to-image transformer on OpenMoji",
    "adapters": "LoRA adapters for designers that it has not seen",
}
TEXTS = {
    "dit": "Twenty labelers give the images of one class each. The images carry the name of their superclass, and the "
    "transformer is trained by flow matching with a tenth of the labels left out.",
    "emoji": "The base model is trained from scratch on the emoji of the ten largest designers, in the latent space of "
    "TAEF2, with captions that a sentence encoder reads.",
    "adapters": "Coalitions of the next forty designers train adapters on that frozen base.",
}
LEGAL = "Emoji: OpenMoji (CC BY-SA 4.0), as are the images made from them."


def write_page(folder: Path) -> None:
    """Write ``results.md`` from ``results.json`` and the files beside it."""
    rows = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    lines = [
        "# Modern models, trained for real",
        "",
        "This page shows that transformers, flow matching, class labels and captions train to something that a person "
        "recognises, what that costs, and how much of a coalition's value is signal. It is made by "
        "`python -m benchmarks.modern.measure`.",
        "",
    ]
    for part, title in TITLES.items():
        if part in rows:
            lines += _section(folder, part, title, rows[part])
    if "emoji" in rows or "adapters" in rows:
        lines += [LEGAL, ""]
    (folder / "results.md").write_text("\n".join(lines), encoding="utf-8")


def _section(folder: Path, part: str, title: str, row: dict[str, Any]) -> list[str]:
    lines = [f"## {title}", "", TEXTS[part], "", f"Measured on: {row['device']}.", ""]
    cells = [
        ("parameters, of them trained", f"{row['parameters']:,}, {row['trained']:,}"),
        ("images, contributors", f"{row['images']:,}, {row['contributors']}"),
        ("training", f"{row['steps']:,} steps of {row['batch']} in {row['seconds'] / 60:.1f} minutes"),
    ]
    if row["memory"] is not None:
        cells.append(("largest memory", f"{row['memory'] / 2**30:.1f} GiB"))
    if row.get("evaluation") is not None:
        cells.append(("preparing the sparse model", f"{row['preparation'] / 60:.1f} minutes"))
        cells.append(("one evaluation", f"{row['evaluation']:.1f} s"))
    for name, (ratio, low, high) in row.get("signals", {}).items():
        cells.append((f"signal/noise of {name}", f"{ratio:.2g} ({low:.2g} to {high:.2g})"))
    lines += ["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in cells), ""]
    if row.get("failed"):
        lines += [f"{len(row['failed'])} evaluations of the pilot failed.", ""]
    if (folder / f"{part}.png").exists():
        prompts = (folder / f"{part}.txt").read_text(encoding="utf-8").splitlines()
        lines += [f"![Generated images]({part}.png)", "", f"Lines from above: {'; '.join(prompts)}.", ""]
    if (folder / f"{part}-loss.json").exists():
        _draw_loss(folder / f"{part}-loss.json")
        lines += [f"![The training loss by step]({part}-loss.svg)", ""]
    return lines


def _draw_loss(file: Path) -> None:
    steps, values = zip(*json.loads(file.read_text(encoding="utf-8")), strict=True)
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, values, linewidth=0.8)
    axes.set(xlabel="step", ylabel="training loss", ylim=(0, None))
    figure.savefig(file.with_suffix(".svg"), metadata={"Date": None})
