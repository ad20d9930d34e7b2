"""From the measurements to the page's tables."""

from pathlib import Path
from typing import Any

IMAGE_STEPS = 2_048 * 20  # of the cheaper sampling


def write_page(results: dict[str, Any], file: Path) -> None:
    lines = [
        "# How near to a GPU's limit",
        "",
        f"{results['device']}, torch {results['versions']['torch']}, diffusers {results['versions']['diffusers']}. "
        "`python -m benchmarks gpu` makes this page on a machine with a GPU; `CIFAR20=cifar20.npz` names the training "
        "images (noise costs the same).",
    ]
    if "coalition" in results:
        lines += coalition(results["coalition"])
    if "fleets" in results:
        lines += fleets(results["fleets"])
    if "agreement" in results:
        lines += agreement(results["agreement"])
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def coalition(found: dict[str, Any]) -> list[str]:
    rows = {name: row for name, row in found.items() if isinstance(row, dict)}
    whole = {name: row["training"] + row["sampling"] for name, row in rows.items()}
    slowest = whole["plain, TF32"]
    lines = [
        "",
        "## One coalition of the paper's CIFAR-20 study",
        "",
        f"The DDPM pruned to {found['parameters'] / 1e6:.1f} M parameters, fine-tuned for 1,000 steps of 64 images "
        f"({found['images']}), then 10,240 images of 100 DDIM steps (cheaper sampling: 2,048 images of 20 DPM-Solver++ "
        "steps). The plain loops are timed on 50 training and 10 sampling steps and scaled; ours are run in full. The "
        "floor is operations over 790 TFLOP/s, or bytes over 4.3 TB/s where that is longer.",
        "",
        "| path | training | sampling | both | against plain TF32 | share of the floor |",
        "|" + " --- |" * 6,
    ]
    for name, row in rows.items():
        share = whole["floor"] / whole[name] if "cheaper" not in name else None
        cells = [
            name,
            f"{row['training']:.1f} s",
            f"{row['sampling']:.1f} s",
            f"{whole[name]:.1f} s",
            f"{slowest / whole[name]:.1f}×",
            "" if share is None else f"{100 * share:.0f} %",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def fleets(found: dict[str, Any]) -> list[str]:
    lines = [
        "",
        "## Fleets of small models at 32 px",
        "",
        "A training step of 64 images, for each model of the fleet; coalitions an hour of 1,000 steps and 2,048 images "
        "of 20 DPM-Solver++ steps, which are made one model after another.",
        "",
        "| model | fleet | a step and model | against one | memory | coalitions an hour | against one |",
        "|" + " --- |" * 7,
    ]
    for name, row in found.items():
        sizes = {int(size): each for size, each in row["fleets"].items()}
        hourly = {size: 3600 / (each["ms"] + row["sampling"]) for size, each in sizes.items()}  # 1,000 steps: ms are s
        for size, each in sizes.items():
            cells = [
                f"{name}, {row['parameters'] / 1e6:.1f} M",
                str(size),
                f"{each['ms']:.2f} ms",
                f"{sizes[1]['ms'] / each['ms']:.2f}×",
                f"{each['GiB']:.1f} GiB",
                f"{hourly[size]:,.0f}",
                f"{hourly[size] / hourly[1]:.2f}×",
            ]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append(f"| {name} | floor | {row['floor ms']:.2f} ms | | | | |")
    return lines


def agreement(found: dict[str, Any]) -> list[str]:
    lines = [
        "",
        "## How much the paths differ",
        "",
        "The 1.1 M-parameter model fine-tuned for 300 steps: the distance of its weights from those of eager float32, "
        "over how far these moved, and the mean colourfulness of 1,024 images.",
        "",
        "| path | weights | colourfulness, float32 images | bf16 images |",
        "|" + " --- |" * 4,
    ]
    for name, row in found["rows"].items():
        values = [f"{row[f'colourfulness, {kind} images']:.3f}" for kind in ("float32", "bf16")]
        lines.append(f"| {name} | {row['weights']:.4f} | {' | '.join(values)} |")
    return lines
