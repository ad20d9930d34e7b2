"""From the measurements to the page's table."""

from pathlib import Path
from typing import Any


def write_page(results: dict[str, Any], file: Path) -> None:
    lines = [
        "# What the paper's models cost on a GPU",
        "",
        f"{results['device']}, torch {results['versions']['torch']}, diffusers {results['versions']['diffusers']}. "
        "Random weights. A training step has 64 images; 1,000 images take 100 steps (PNDM with guidance for Stable "
        "Diffusion, DDIM for the others; float32 with TF32 convolutions, batches of 500, 100 and 50), scaled from a "
        "few timed steps. `python -m benchmarks models` makes this page.",
        "",
        "| model | trained parameters | step, float32 | step, bf16 | 1,000 images | decoding them "
        "| training memory, float32 / bf16 | sampling memory |",
        "|" + " --- |" * 8,
    ]
    for name, kinds in results["models"].items():
        lines += [costs(f"{name}, {kind}", row) for kind, row in kinds.items()]
    lines += ["", "Pruned against dense, in the same run:", ""]
    lines += ["| model | parameters kept | step, float32 | step, bf16 | images |", "|" + " --- |" * 5]
    lines += [gains(name, kinds["dense"], kinds["pruned"]) for name, kinds in results["models"].items()]
    lines += [
        "",
        "The loop is plain PyTorch: at 32 px and batch 64 the CIFAR-20 model waits for the host, which launches as "
        "many kernels for the pruned one, so its steps gain nothing from pruning and its larger sampling batches do. "
        "An adapter of half the rank saves optimizer state, not time: the frozen U-Net is what computes.",
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def costs(name: str, row: dict[str, Any]) -> str:
    full, half, images = (row[key] for key in ("training step, float32", "training step, bf16", "1,000 images"))
    cells = [
        name,
        f"{row['trained parameters'] / 1e6:.1f} M",
        f"{full['ms']:.0f} ms",
        f"{half['ms']:.0f} ms",
        f"{images['denoising s']:.0f} s",
        f"{images['decoding s']:.1f} s",
        f"{full['GB']:.1f} / {half['GB']:.1f} GB",
        f"{images['GB']:.1f} GB",
    ]
    return f"| {' | '.join(cells)} |"


def gains(name: str, dense: dict[str, Any], pruned: dict[str, Any]) -> str:
    kept = 100 * pruned["trained parameters"] / dense["trained parameters"]
    measured = (("training step, float32", "ms"), ("training step, bf16", "ms"), ("1,000 images", "denoising s"))
    ratios = [f"{dense[key][unit] / pruned[key][unit]:.2f}×" for key, unit in measured]
    return f"| {name} | {kept:.0f} % | {' | '.join(ratios)} |"
