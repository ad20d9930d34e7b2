"""``diffcredit demo``: the whole pipeline on bundled data."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from diffcredit.cli.console import Bars, stopping_gently
from diffcredit.cli.opened import opened
from diffcredit.cli.options import WorkersOption


def demo(
    folder: Annotated[Path, typer.Option(help="Folder for the demo's study file and results.")] = Path(
        "diffcredit-demo"
    ),
    workers: WorkersOption = None,
) -> None:
    """Credit twelve emoji designers beside a house collection, for a small diffusion model, on a CPU, in minutes."""
    from diffcredit.cli.run import run_and_report
    from diffcredit.study.workers import Workers
    from diffcredit.util.artifacts import write_text

    file = folder / "study.yaml"
    if not file.exists():
        write_text(file, (files("diffcredit.cli") / "demo.yaml").read_text(encoding="utf-8"))
    with stopping_gently(), Bars() as bars, opened(str(file), bars) as loaded:
        run_and_report(loaded, Workers(workers))
