"""From the measurements to the page."""

from pathlib import Path
from typing import Any

PEAK = 790e12  # operations a second of an H200's bf16 matrix units, as measured on large products
IMAGES = 10_000


def write_page(results: dict[str, Any], file: Path) -> None:
    lines = [
        "# What gradient rows cost",
        "",
        "Each training image's gradient of the mean loss over its time steps, projected at random and kept on disk: "
        "the rows of TRAK's Φ. Random weights. `python -m benchmarks gradients` makes this page.",
    ]
    for key in ("cuda", "cpu"):
        if key in results:
            lines += ["", *_machine(results[key], floor=key == "cuda")]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _machine(row: dict[str, Any], floor: bool) -> list[str]:
    size, operations = row["size"], row["operations a row"]
    steps, together = size["time_steps"], size["images"]
    projecting = row["projection s"]
    lines = [
        f"## {row['device']} (torch {row['versions']['torch']})",
        "",
        f"{size['preset']} at {size['resolution']} px, {size['parameters'] / 1e6:.1f} M parameters; {steps} time "
        f"steps, {size['dimensions']:,} dimensions; {together} images.",
        "",
        f"| precision | plain backward, samples a second | rows, samples a second | share | {IMAGES:,} rows "
        "| memory, plain | memory, rows |",
        "|" + " --- |" * 7,
    ]
    measured = {precision: row[precision] for precision in size["precisions"] if precision in row}
    for precision, found in measured.items():
        samples, rows = found["plain samples a second"], found["rows a second"]
        lines.append(
            f"| {precision} | {samples:,.0f} | {steps * rows:,.0f} | {100 * steps * rows / samples:.0f} % "
            f"| {_time(IMAGES / rows)} | {found['plain GB']:.1f} GB | {found['GB']:.1f} GB |"
        )
    lines += [
        "",
        f"The projection alone: {projecting['1']:.2f} s for one gradient (its signs), {projecting[str(together)]:.2f} "
        f"s for {together} together, {_time(IMAGES / together * projecting[str(together)])} for {IMAGES:,}.",
    ]
    if floor:
        total = IMAGES * sum(operations.values())
        lines += [
            "",
            f"The floor: a row takes {operations['network'] / 1e12:.1f} TFLOP in the network and "
            f"{operations['projection'] / 1e12:.2f} in the projection; {IMAGES:,} rows at {PEAK / 1e12:.0f} TFLOP/s "
            f"take {_time(total / PEAK)}.",
        ]
    counts = sorted({int(key.split()[0]) for found in measured.values() for key in found if "time steps" in key})
    lines += [
        "",
        "Rows a second without projection, one image at a time (an ordinary backward pass) and several together "
        "(`torch.func`):",
        "",
        "| time steps | "
        + " | ".join(f"{precision}, {way}" for precision in measured for way in ("alone", "together")),
        "|" + " --- |" * (1 + 2 * len(measured)),
    ]
    lines[-2] += " |"
    for count in counts:
        rates = [
            found.get(f"{count} time steps, {way}: rows a second")
            for found in measured.values()
            for way in ("alone", "together")
        ]
        lines.append(f"| {count} | {' | '.join('–' if rate is None else f'{rate:.1f}' for rate in rates)} |")
    return lines


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
