"""From the measurements to the page."""

import json
from pathlib import Path
from typing import Any

MODELS = Path(__file__).parent.parent / "models" / "results.json"
# The paper's studies: model, retraining steps, generated images, the property's extractor and the images' resolution.
STUDIES = {
    "cifar20": ("CIFAR-20 DDPM", 1000, 10_240, "inception_v3", "32"),
    "celebahq": ("CelebA-HQ LDM", 500, 1024, "blip_vqa (ViT-B/16, 384 px)", "256"),
    "artbench": ("Stable Diffusion, LoRA rank 256", 200, 50, "clip (ViT-L/14)", "256"),
}


def write_page(results: dict[str, Any], file: Path) -> None:
    machines = [results[key] for key in ("cpu", "cuda") if key in results]
    told = "; ".join(f"{row['device']} (torch {row['versions']['torch']})" for row in machines)
    lines = [
        "# What feature extractors and properties cost",
        "",
        f"{told}. Images a second, resizing included, for images of 32 and of 256 px a side; float32. Networks that "
        "would have to be downloaded have random weights. `python -m benchmarks extractors` makes this page.",
        "",
        "| extractor | " + " | ".join(f"{row['device']}, {size} px" for row in machines for size in (32, 256)) + " |",
        "|" + " --- |" * (1 + 2 * len(machines)),
    ]
    for name in machines[0]["images a second"]:
        rates = [row["images a second"].get(name, {}).get(str(size)) for row in machines for size in (32, 256)]
        lines.append(f"| {name} | {' | '.join('' if rate is None else _rate(rate) for rate in rates)} |")
    for row in machines:
        if "resized a second" in row:
            resized = ", ".join(f"{name} {_rate(rate)}" for name, rate in row["resized a second"].items())
            lines += ["", f"Of which Pillow's resizing alone, on one core beside {row['device']}: {resized} a second."]
    for row in machines:
        if "arithmetic s" in row:
            lines += ["", *_arithmetic(row)]
    if "cuda" in results and MODELS.exists():
        lines += ["", *_studies(results["cuda"])]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _arithmetic(row: dict[str, Any]) -> list[str]:
    lines = [
        f"Arithmetic on features that are there (10,240 images, 10,000 reference images, 2,048 dimensions, 1,008 "
        f"classes; one core beside {row['device']}):",
        "",
        "| property | value | standard error |",
        "| --- | --- | --- |",
    ]
    for name, seconds in row["arithmetic s"].items():
        lines.append(f"| {name} | {seconds['value']:.1f} s | {seconds['standard error']:.1f} s |")
    return lines


def _studies(row: dict[str, Any]) -> list[str]:
    """What measuring is of an evaluation in the paper's studies on this GPU, by the benchmark of the models."""
    models = json.loads(MODELS.read_text(encoding="utf-8"))["models"]
    lines = [
        "One evaluation of the paper's studies on the GPU, pruned model, float32, by `benchmarks/models`:",
        "",
        "| study | training | sampling | features | share of all |",
        "| --- | --- | --- | --- | --- |",
    ]
    for study, (model, steps, images, extractor, size) in STUDIES.items():
        rate = row["images a second"].get(extractor, {}).get(size)
        if rate is None:
            continue
        costs = models[model]["pruned"]
        training = steps * costs["training step, float32"]["ms"] / 1000
        sampling = images / 1000 * (costs["1,000 images"]["denoising s"] + costs["1,000 images"]["decoding s"])
        features = images / rate
        share = features / (training + sampling + features)
        lines.append(f"| {study} | {training:.0f} s | {sampling:.0f} s | {features:.1f} s | {100 * share:.1f} % |")
    return lines


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
