"""``diffcredit explain``: the training images that one picture is closest to."""

import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diffcredit.cli.baselines import MethodOption, parsed
from diffcredit.cli.console import Bars, StudyArgument, console, say, stopping_gently
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.util.sanitize import single_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from diffcredit.baselines import Evidence
    from diffcredit.contributions import Contributions
    from diffcredit.study.study import Study

UNSAFE = re.compile(r"[^\w-]+")  # in a file's name
SHOWN = 8  # training images per method
METHODS = ("pixel_similarity", "feature_similarity", "patch_similarity", "gradient_similarity", "trak", "d_trak")


def explain(
    study: StudyArgument,
    picture: Annotated[
        str,
        typer.Argument(metavar="PICTURE", help="An image file, or the seed of a generated image of the base model."),
    ],
    method: MethodOption = None,
    output: Annotated[
        Path | None, typer.Option(help="File for the contact sheet. Default: in the results folder.")
    ] = None,
) -> None:
    """Show which contributors and training images one picture is closest to, by each method."""
    from diffcredit.baselines import BaselineCredits
    from diffcredit.baselines.base import Scoring
    from diffcredit.baselines.registry import check_members, checked_scores
    from diffcredit.baselines.study import build_baselines, changed_options
    from diffcredit.execution.threads import limited_threads
    from diffcredit.report.contact_sheet import contact_sheet
    from diffcredit.study.study import Study
    from diffcredit.util.artifacts import write_text

    if output is not None and output.is_dir():
        raise UserError(f"--output: {output} is a folder; a file is expected")
    with stopping_gently(), Bars() as bars:
        loaded = Study.load(study, bars)
        built = build_baselines(loaded, [parsed(text) for text in method or METHODS])
        for name, _, baseline in built:
            if not isinstance(baseline, Scoring):
                raise UserError(f"--method: {name!r} does not score single images, so it cannot explain a picture")
            check_members(baseline)
        evidence = evidence_of(loaded, picture)
        scores = {}
        for name, options, baseline in built:
            try:
                with limited_threads(loaded.config.threads):
                    values = checked_scores(baseline, evidence)
            except UserError as error:
                if method:
                    raise
                warnings.warn(f"{name}: left out: {error}", DiffcreditWarning, stacklevel=2)
                continue
            scores[BaselineCredits(name, "", values, options=changed_options(baseline, options)).name] = values
    contributions = loaded.contributions
    found = {name: (-values).argsort(kind="stable")[:SHOWN].tolist() for name, values in scores.items()}
    _print(contributions, scores, found)
    owners = [contributions.contributors[owner] for owner in contributions.owner]
    file = output or loaded.folder / f"explain-{UNSAFE.sub('-', Path(picture).stem)[:40]}.html"
    title = f"The training images closest to {'the image of seed ' if evidence.sampling else ''}{picture}"
    sheet = contact_sheet(
        title, evidence.generated[0], found, scores, contributions.images, owners, contributions.names
    )
    write_text(file, sheet)
    say(f"\nContact sheet: {file}")


def evidence_of(study: "Study", picture: str) -> "Evidence":
    """Return the study's evidence with one picture in place of all generated images."""
    from diffcredit.baselines.study import study_evidence

    if not re.fullmatch(r"[0-9]{1,18}", picture) or Path(picture).exists():
        pixels = _pixels(
            picture, study.config.contributions.resolution
        )  # first: a mistake shows before a model is trained
        return replace(study_evidence(study), generated=pixels[None], sampling=None)
    seed, sampling = int(picture), study.config.sampling
    if seed not in sampling.seeds:
        seeds = sampling.seeds
        raise UserError(f"PICTURE: seed {seed}; the study's images have the seeds {seeds[0]} to {seeds[-1]}")
    evidence, row = study_evidence(study), sampling.seeds.index(seed)
    return replace(
        evidence, generated=evidence.generated[row : row + 1], sampling=replace(sampling, seed=seed, images=1)
    )


def _pixels(picture: str, resolution: int) -> "NDArray[np.uint8]":
    """Return an image file as (resolution, resolution, 3) pixels."""
    from diffcredit.contributions.images import UnreadableImage, open_image, square_pixels, without_pillows_warnings

    try:
        with without_pillows_warnings(), open_image(Path(picture)) as image:
            return square_pixels(image, resolution)
    except UnreadableImage as error:
        why = str(error)
    except Exception as error:  # on hostile files Pillow's decoders raise anything
        why = f"cannot be decoded ({type(error).__name__}: {error})"
    raise UserError(f"PICTURE: {picture}: {why}; an image file or a seed is expected")


def _print(contributions: "Contributions", scores: Mapping[str, Any], found: Mapping[str, list[int]]) -> None:
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, title=Text("\nThe closest training images", "bold"), title_justify="left")
    for column in ("method", "contributor", "image", "score"):
        grid.add_column(column, overflow="fold", justify="right" if column == "score" else "left")
    for name, rows in found.items():
        for place, row in enumerate(rows[:3]):
            who = contributions.contributors[contributions.owner[row]]
            cells = (name if place == 0 else "", who, contributions.names[row], f"{scores[name][row]:.4g}")
            grid.add_row(*(Text(single_line(cell)) for cell in cells))
    console.print(grid)
