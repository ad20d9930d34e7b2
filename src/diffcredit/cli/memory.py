"""The memory that a study needs, as ``diffcredit plan`` prints it."""

from typing import TYPE_CHECKING

from diffcredit.cli.console import complain, console, say, table

if TYPE_CHECKING:
    from diffcredit.diffusion.memory.estimate import Need
    from diffcredit.study.memory import Memory

LARGE = 2**30  # bytes from which each stage has a row


def print_memory(memory: "Memory | None") -> None:
    """Print the stages of the work and what they need, or a line where that is little; warn of what does not fit."""
    if memory is None:
        return
    where, peak = f"on {memory.device}", max(memory.needs, key=lambda need: need.total)
    there = "" if memory.available is None else f"; {in_words(memory.available)} are available"
    if peak.total < LARGE:
        say(f"Memory {where}: about {in_words(peak.total)} at most, by {peak.stage}{there}.")
    else:
        rows = [(need.stage, in_words(need.total), _parts(need)) for need in memory.needs]
        console.print(table((f"memory {where}, estimated", "at most", "of it"), rows, left=("of it",)))
        say(f"Activations are an estimate; weights, optimizer and images are exact{there}.")
    for need in memory.needs:
        if need.unknown:
            say(f"Not counted for {need.stage}: {need.unknown}.")
    if memory.host_available is not None and memory.host > memory.host_available:
        found = in_words(memory.host_available)
        complain(f"{in_words(memory.host)} pass through the host's memory, of which {found} are available", "warning")
    for need in memory.too_large:
        complain(_warning(memory, need), "warning")


def _parts(need: "Need") -> str:
    largest = sorted(need.parts.items(), key=lambda part: -part[1])[:3]
    return ", ".join(f"{what} {in_words(size)}" for what, size in largest if size)


def _warning(memory: "Memory", need: "Need") -> str:
    """Return that a stage does not fit, and what helps."""
    text = f"{need.stage} needs about {in_words(need.total)}; {in_words(memory.available or 0)} are available"
    if need.stage.startswith("a step of training"):
        if not memory.remedies:
            return f"{text}; a smaller model needs less"
        enough = "" if memory.remedied <= (memory.available or 0) else ", still too much"
        return f"{text}; with {', '.join(memory.remedies)} about {in_words(memory.remedied)}{enough}"
    if need.stage.startswith("a step of sampling"):
        return f"{text}; a smaller sampling.batch_size needs less, and is tried where memory runs out"
    smaller = "model.base: bf16 or 8bit" if need.stage == "encoding texts" else "a smaller contributions.resolution"
    return f"{text}; {smaller} needs less"


def in_words(size: int) -> str:
    """Return a number of bytes, for people."""
    if size >= 2**30:
        return f"{size / 2**30:,.1f} GiB"
    return f"{size / 2**20:,.1f} MiB"
