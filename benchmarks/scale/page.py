"""The results as a page and a figure."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("svg")
mpl.rcParams |= {
    "svg.hashsalt": "diffcredit",  # the same file for the same numbers
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}

from matplotlib import pyplot as plt  # noqa: E402  (after the backend is chosen)

PARTS = {
    "claim": "claim a task",
    "record": "record it, chained",
    "hear": "hear what was recorded",
    "schedule": "schedule: design, looks, progress",
    "simulation": "the simulation itself",
}
COLOURS = ("#1f6feb", "#cf222e", "#1a7f37", "#8250df", "#8b949e")
WORKERS = 256
FIRST = 300  # evaluations from which growth is fitted: before them the program starts and caches fill


def page(results: Mapping[str, Any]) -> str:
    """What has been measured so far."""
    return "\n".join(part for part in (_head(results), *_sections(results)) if part) + "\n"


def exponent(counts: Sequence[float], costs: Sequence[float]) -> float:
    """b of cost = a·countᵇ by least squares of the logarithms."""
    return float(np.polyfit(np.log(counts), np.log(costs), 1)[0])


def growth(states: Sequence[Mapping[str, Any]], part: str | None = None) -> float:
    """The exponent at which the CPU of a run, or of a part of it, grows with evaluations; 1: each costs the same."""
    later = [state for state in states if state["evaluations"] >= FIRST]
    return exponent([state["evaluations"] for state in later], [_cpu(state, part) for state in later])


def _cpu(state: Mapping[str, Any], part: str | None = None) -> float:
    """Seconds, without the simulation's own unless that is asked for."""
    if part is not None:
        return state["cpu"][part]
    return sum(seconds for name, seconds in state["cpu"].items() if name != "simulation")


def _head(results: Mapping[str, Any]) -> str:
    count, longest = _longest(results)
    states, last = longest["states"], longest["states"][-1]
    each = 1000 * _cpu(last) / last["evaluations"]
    cut = f" Of {results['asked']:,} evaluations the run made {count:,}." if count < results["asked"] else ""
    return f"""# {WORKERS} workers and {count:,} evaluations

`python -m benchmarks scale`: a study of 20 contributors and three properties as `diffcredit run` drives it, with \
simulated workers that take no time. It stops by evaluations; a correlation and hours are looked at as well. \
{results["machine"]}, shared with other work, which stretches all seconds, those of CPU too: what counts are ratios \
and exponents.{cut}

One driver spends {each:.1f} ms of CPU on an evaluation, so that with a core to itself it keeps {WORKERS} workers \
busy where an evaluation takes {WORKERS * each / 1000:.1f} s or more; by the clock, on this machine, it made \
{last["evaluations"] / last["seconds"]:.0f} a second. All of it grows as evaluations to the power {growth(states):.2f}.
"""


def _sections(results: Mapping[str, Any]) -> list[str]:
    sections = [_spent(results), _commands(results)]
    if "shapes" in results:
        sections.append(_shapes(results))
    sections.append(_disk(results))
    if "postgres" in results:
        sections.append(_server(results))
    if "two drivers" in results:
        sections.append(_two(results))
    return sections


def _longest(results: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
    longest = max(results["runs"].values(), key=lambda run: run["states"][-1]["evaluations"])
    return longest["states"][-1]["evaluations"], longest


def _spent(results: Mapping[str, Any]) -> str:
    count, longest = _longest(results)
    states, last = longest["states"], longest["states"][-1]
    early = next(state for state in states if state["evaluations"] >= FIRST)
    rows = [
        f"| {words} | {1000 * _cpu(early, part) / early['evaluations']:.2f} "
        f"| {1000 * _cpu(last, part) / count:.2f} | {growth(states, part):.2f} |"
        for part, words in PARTS.items()
    ]
    later = [state for state in states if state["evaluations"] >= FIRST]
    records = [
        1000 * (_cpu(after, "record") - _cpu(before, "record")) / (after["evaluations"] - before["evaluations"])
        for before, after in pairwise(later)
    ]
    grown = (last["memory"] - early["memory"]) / (count - early["evaluations"])
    return f"""| ms of CPU an evaluation | over the first {early["evaluations"]:,} | over all {count:,} | exponent |
| --- | ---: | ---: | ---: |
{chr(10).join(rows)}

The machine's load changed meanwhile: between two checkpoints after the first {FIRST} evaluations, a record took \
{min(records):.1f} to {max(records):.1f} ms, rising and falling. Exponents are no more certain than that.

The ledger takes {longest["bytes"] / longest["recorded"] / 1000:.1f} kB an evaluation, the driver \
{last["memory"] / 1e6:,.0f} MB of memory at the most, {grown / 1000:.1f} kB of it for each further evaluation. The \
credits correlate with the game's own at {longest["correlation"]:.4f} or more.

![Seconds of CPU over evaluations](growth.svg)
"""


def _commands(results: Mapping[str, Any]) -> str:
    runs = sorted(results["runs"].values(), key=lambda run: run["recorded"])
    counts = [run["recorded"] for run in runs]
    lines = [
        "| s of CPU (commands: with Python's start) | "
        + " | ".join(f"{count:,}" for count in counts)
        + " | exponent |",
        "| --- |" + " ---: |" * (len(counts) + 1),
    ]
    for name in runs[0]["cpu"]:
        seconds = [run["cpu"][name] for run in runs]
        power = f"{exponent(counts, seconds):.2f}" if len(counts) > 1 else ""
        lines.append(f"| {name} | " + " | ".join(f"{each:.1f}" for each in seconds) + f" | {power} |")
    lines += ["", "Where a command's start is most of its time, the exponent says little of what is to come.", ""]
    return "\n".join(lines)


def _shapes(results: Mapping[str, Any]) -> str:
    lines = [
        "| contributors | evaluations | command | s by the clock | s of CPU | MB of memory |",
        "| ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for shape in results["shapes"]:
        for name in ("credits", "status"):
            cost = shape[name]
            lines.append(
                f"| {shape['contributors']:,} | {shape['evaluations']:,} | `{name}` | {cost['seconds']:.1f} "
                f"| {cost['cpu']:.1f} | {cost['memory'] / 1e6:,.0f} |"
            )
    least = min(shape["correlation"] for shape in results["shapes"])
    lines += [
        "",
        "These ledgers (`python -m benchmarks.scale.shapes`) hold additive games of three properties. A command is a "
        "process of its own, and others shared the machine, which stretches the clock by as much as they take. The "
        f"credits correlate with the games' own at {least:.2f} or more.",
        "",
    ]
    return "\n".join(lines)


def _disk(results: Mapping[str, Any]) -> str:
    last, sync = results["disk"]["run"][-1], results["disk"]["sync"]
    return (
        f"These ledgers were in memory. On a disk that takes {1000 * sync:.1f} ms for a page to be safe, one driver "
        f"made {last['evaluations'] / last['seconds']:.0f} evaluations a second by the clock, "
        f"{last['evaluations']:,} in all: every record waits for the disk once, a claim never.\n"
    )


def _server(results: Mapping[str, Any]) -> str:
    states = results["postgres"]["states"]
    last = states[-1]
    return (
        f"PostgreSQL on the same machine (without fsync): {last['evaluations']:,} evaluations, "
        f"{1000 * _cpu(last) / last['evaluations']:.1f} ms of the driver's CPU each, exponent {growth(states):.2f}, "
        f"{results['postgres']['bytes'] / last['evaluations'] / 1000:.1f} kB each in the database.\n"
    )


def _two(results: Mapping[str, Any]) -> str:
    two = results["two drivers"]
    made = " and ".join(f"{count:,}" for count in two["made"])
    return (
        f"Two drivers of {WORKERS // 2} workers each on one ledger file made {made} evaluations of {two['tasks']:,} "
        f"tasks ({two['recorded'] - two['tasks']} twice; {two['problems']} problems in the chain), with "
        f"{1000 * sum(two['cpu']) / two['tasks']:.1f} ms of CPU an evaluation between them.\n"
    )


def draw_growth(results: Mapping[str, Any], file: Path) -> None:
    """Seconds of CPU over evaluations, by what they were spent on; a dotted line grows in proportion."""
    _, longest = _longest(results)
    figure, axis = plt.subplots(figsize=(4.6, 3.2), layout="constrained")
    for (part, words), colour in zip(PARTS.items(), COLOURS, strict=True):
        counts = [state["evaluations"] for state in longest["states"]]
        seconds = [_cpu(state, part) for state in longest["states"]]
        axis.plot(counts, seconds, color=colour, linewidth=1.4, label=words)
    last = longest["states"][-1]
    ends = np.array([FIRST, last["evaluations"]])
    axis.plot(ends, 2 * _cpu(last) * ends / ends[-1], color="black", linestyle=":", linewidth=1, label="in proportion")
    axis.set(xscale="log", yscale="log", xlabel="evaluations", ylabel="seconds of CPU")
    axis.grid(color="#d0d7de", linewidth=0.5)
    axis.legend(frameon=False, fontsize=7)
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)
