"""From the measurements to the page's tables."""

from pathlib import Path
from typing import Any


def write_page(results: dict[str, Any], file: Path) -> None:
    found = results["found"]
    lines = [
        "# How near to a GPU's limit",
        "",
        f"{results['device']}, torch {results['versions']['torch']}, diffusers {results['versions']['diffusers']}. "
        "`python -m benchmarks gpu` makes this page on a machine with a GPU; `CIFAR20=cifar20.npz` names the training "
        "images (noise costs the same).",
    ]
    if "plain coalition" in found and "our coalition" in found:
        fleets_of_its = {key: each for key, each in found.items() if key.startswith("paper ")}
        lines += coalition(found["plain coalition"], found["our coalition"], fleets_of_its)
    lines += fleets(found)
    if "agreement" in found:
        lines += agreement(found["agreement"])
    if "start" in found:
        lines += start(found["start"])
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def coalition(plain: dict[str, Any], ours: dict[str, Any], together: dict[str, Any]) -> list[str]:
    times = dict(ours["times"])
    floor = times.pop("floor")
    for key, each in together.items():  # 1,000 steps: ms are s
        times[f"fleet of {key.removeprefix('paper ')}"] = {
            "training": each["ms"],
            "sampling": times["single"]["sampling"],
        }
    rows = plain | times | {"floor": floor}
    whole = {name: row["training"] + row["sampling"] for name, row in rows.items()}
    lines = [
        "",
        "## One coalition of the paper's CIFAR-20 study",
        "",
        f"The DDPM pruned to {ours['parameters'] / 1e6:.1f} M parameters, fine-tuned for 1,000 steps of 64 images "
        f"({ours['images']}), then 10,240 images of 100 DDIM steps (cheaper sampling: 2,048 images of 20 DPM-Solver++ "
        "steps). The plain loops are timed on 50 training and 10 sampling steps and scaled; ours are run in full, "
        "fleets for 180 steps and scaled, with the images made one model after another, their time that of the single "
        "path. Parts are measured when they are asked for, so rows may be of different days, and a plain loop's time "
        "hangs on the host. The floor is operations over 790 TFLOP/s, or bytes over 4.3 TB/s where that is longer.",
        "",
        "| path | training | sampling | both | against plain, TF32 | against plain, autocast | share of the floor |",
        "|" + " --- |" * 7,
    ]
    for name, row in rows.items():
        share = "" if "cheaper" in name else f"{100 * whole['floor'] / whole[name]:.0f} %"
        cells = [
            name,
            f"{row['training']:.1f} s",
            f"{row['sampling']:.1f} s",
            f"{whole[name]:.1f} s",
            *(f"{whole[other] / whole[name]:.2f}×" for other in ("plain, TF32", "plain, autocast")),
            share,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "Where the time goes, by the names of kernels (some sums beside the gradients of norms are counted as norms):",
        "",
    ]
    return lines + profiles({what: ours[what] for what in ("a training step", "a batch of 20 sampling steps")})


def fleets(found: dict[str, Any]) -> list[str]:
    lines = [
        "",
        "## Fleets of small models at 32 px",
        "",
        "A training step of 64 images, for each model of the fleet; coalitions an hour of 1,000 steps and 2,048 images "
        "of 20 DPM-Solver++ steps, which are made one model after another. First, one model with the layers as "
        "diffusers has them, compiled and recorded in a CUDA graph.",
        "",
        "| model | fleet | a step and model | against one | memory | coalitions an hour | against one |",
        "|" + " --- |" * 7,
    ]
    known = {}
    for name in ("mini", "light"):
        if f"{name} images" not in found:
            continue
        about = found[f"{name} images"]
        rows = {key.removeprefix(f"{name} "): each for key, each in found.items() if key.startswith(f"{name} ")}
        sizes = ["undone", *sorted((key for key in rows if key.isdecimal()), key=int)]
        hourly = {size: 3600 / (rows[size]["ms"] + about["sampling"]) for size in sizes}  # 1,000 steps: ms are s
        for size in sizes:
            cells = [
                f"{name}, {about['parameters'] / 1e6:.1f} M",
                "1, diffusers' layers" if size == "undone" else size,
                f"{rows[size]['ms']:.2f} ms",
                f"{rows['1']['ms'] / rows[size]['ms']:.2f}×",
                f"{rows[size]['GiB']:.1f} GiB",
                f"{hourly[size]:,.0f}",
                f"{hourly[size] / hourly['1']:.2f}×",
            ]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append(f"| {name} | floor | {about['floor ms']:.2f} ms | | | | |")
        known |= {f"{name}, {size} at once": rows[size]["a training step"] for size in ("1", sizes[-1])}
    return [*lines, "", "Where a training step's time goes:", "", *profiles(known)] if known else []


def profiles(found: dict[str, dict[str, float]]) -> list[str]:
    kinds = list(next(iter(found.values())))
    lines = [f"| milliseconds | {' | '.join(found)} |", "|" + " --- |" * (len(found) + 1)]
    lines += [f"| {kind} | {' | '.join(f'{each[kind]:.2f}' for each in found.values())} |" for kind in kinds]
    return [*lines, f"| all | {' | '.join(f'{sum(each.values()):.2f}' for each in found.values())} |"]


def agreement(found: dict[str, Any]) -> list[str]:
    lines = [
        "",
        "## How much the paths differ",
        "",
        "The 1.1 M-parameter model fine-tuned for 300 steps: the distance of its weights from those of eager float32 "
        f"({'with TF32 in convolutions' if found['tf32'] else 'without TF32'}), over how far these moved, and the mean "
        "colourfulness of 1,024 images.",
        "",
        "| path | weights | colourfulness, float32 images | bf16 images |",
        "|" + " --- |" * 4,
    ]
    for name, row in found["rows"].items():
        values = [f"{row[f'colourfulness, {kind} images']:.3f}" for kind in ("float32", "bf16")]
        lines.append(f"| {name} | {row['weights']:.4f} | {' | '.join(values)} |")
    return lines


def start(found: dict[str, float]) -> list[str]:
    return [
        "",
        "## From a command to a number",
        "",
        "`diffcredit run` on a prepared study of the 1.1 M-parameter model, coalitions in fleets of 16 with 300 steps "
        "of 64 images each, 1,024 images: seconds from the command to the first finished evaluation, and of the next "
        "32 evaluations beside what `diffcredit plan` foresaw; measured once.",
        "",
        "| seconds | |",
        "| --- | --- |",
        *(f"| {what} | {seconds:.1f} |" for what, seconds in found.items()),
    ]
