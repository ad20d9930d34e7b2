"""Make and read ``requirements-release.txt``: every package of the run environment, with the hashes of its files.

Run it with ``make lock``. Versions come from ``constraints.txt`` and, for packages that are not there, from the list
as it was; with ``--upgrade``, the newest ones.
"""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements-release.txt"

EXTRAS = ("cluster", "datasets", "export", "lora", "postgres", "vision")
"""Not ``8bit`` and ``timm``, which need a certain build of torch, nor what only developers need."""

BY_MACHINE = ("torch", "triton", "nvidia-", "cuda-")
"""torch and the packages that only its builds for NVIDIA's GPUs bring."""

OWN = "diffcredit"

HEADER = f"""\
# Every package that diffcredit runs with, and the hashes of its files. The extras
# {", ".join(EXTRAS)} are included. torch, and what its builds for GPUs
# bring, are not: they differ from machine to machine. docs/security.md says how to install this.
# Made by `make lock`; do not edit.
"""

_PIN = re.compile(r"(?P<name>[a-z0-9.-]+)==(?P<version>[^ ;]+)(?: ; [^\\]+)? \\")
_HASH = re.compile(r"^    --hash=sha256:([0-9a-f]{64})(?: \\)?$", re.MULTILINE)


@dataclass(frozen=True)
class Locked:
    name: str
    version: str
    hashes: tuple[str, ...]  # SHA-256, of its wheels for all platforms and its source
    parents: tuple[str, ...]  # the packages that require it, OWN among them


def read_lock(text: str) -> list[Locked]:
    """Return the packages of a list; raise ``ValueError`` at a line that pip would not read as we do."""
    return [_locked(block) for block in _blocks(text)]


def without_torch(text: str) -> str:
    """Leave out :data:`BY_MACHINE`."""
    return "".join(f"{block}\n" for block in _blocks(text) if not _by_machine(_locked(block).name))


def main(arguments: list[str]) -> None:
    fixed = "--quiet --no-config --no-header --universal --python-version 3.11 --generate-hashes"
    extras = [f"--extra={extra}" for extra in EXTRAS]
    files = ["pyproject.toml", "--constraint=constraints.txt", f"--output-file={LOCK.name}"]
    uv = [sys.executable, "-m", "uv", "pip", "compile"]
    subprocess.run([*uv, *fixed.split(), *extras, *files, *arguments], cwd=ROOT, check=True)
    LOCK.write_text(HEADER + without_torch(LOCK.read_text(encoding="utf-8")), encoding="utf-8")


def _by_machine(name: str) -> bool:
    return any(name.startswith(each) if each.endswith("-") else name == each for each in BY_MACHINE)


def _blocks(text: str) -> list[str]:
    """Return one text for each package: its pin, its hashes, and the comment that names its parents."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    starts = [number for number, line in enumerate(lines) if not line.startswith(" ")]
    return ["\n".join(lines[start:end]) for start, end in zip(starts, [*starts[1:], None], strict=True)]


def _locked(block: str) -> Locked:
    first, *rest = block.splitlines()
    pin = _PIN.fullmatch(first)
    hashes = _HASH.findall(block)
    if pin is None or not hashes or len(hashes) != sum("--hash" in line for line in rest):
        raise ValueError(f"not a version with its hashes: {first!r}")
    comments = [line.removeprefix("    #").strip().removeprefix("via ").split()[0] for line in rest if "#" in line]
    parents = tuple(word for word in comments if word not in ("via", "-c"))
    return Locked(pin["name"], pin["version"], tuple(hashes), parents)


if __name__ == "__main__":
    main(sys.argv[1:])
