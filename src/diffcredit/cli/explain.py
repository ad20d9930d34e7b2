"""``diffcredit explain``: the training images that one picture is closest to."""

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.baselines import EXAMPLE
from diffcredit.cli.console import Bars, console, say, stopping_gently, table
from diffcredit.cli.options import BaselineOption, StudyArgument, parse_component
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.util.sanitize import single_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from diffcredit.baselines import Evidence
    from diffcredit.study.study import Study

UNSAFE = re.compile(r"[^\w-]+")  # in a file's name
SHOWN, PRINTED = 8, 3  # training images per method
METHODS = ("pixel_similarity", "feature_similarity", "patch_similarity", "gradient_similarity", "trak", "d_trak")


def explain(
    study: StudyArgument,
    picture: Annotated[
        str,
        typer.Argument(metavar="PICTURE", help="An image file, or the seed of a generated image of the base model."),
    ],
    method: BaselineOption = None,
    output: Annotated[
        Path | None, typer.Option(help="File for the contact sheet. Default: in the results folder.")
    ] = None,
) -> None:
    """Show which contributors and training images one picture is closest to, by each method."""
    from diffcredit.baselines import BaselineCredits
    from diffcredit.baselines.base import Scoring
    from diffcredit.baselines.registry import check_members, checked_scores
    from diffcredit.baselines.selection import build_baselines
    from diffcredit.baselines.study import changed_options
    from diffcredit.execution.threads import limited_threads
    from diffcredit.report.contact_sheet import Tile, contact_sheet
    from diffcredit.study.study import Study
    from diffcredit.util.artifacts import write_text

    if output is not None and output.is_dir():
        raise UserError(f"--output: {output} is a folder; a file is expected")
    with stopping_gently(), Bars() as bars:
        loaded = Study.load(study, bars)
        loaded.check_recorded()
        built = build_baselines(loaded, [parse_component(text, "--method", EXAMPLE) for text in method or METHODS])
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
    data = loaded.contributions
    found = {}
    for name, values in scores.items():
        closest = (-values).argsort(kind="stable")[:SHOWN].tolist()
        found[name] = [Tile(data.images[i], data.giver(i), data.names[i], f"{values[i]:.4g}") for i in closest]
    rows = [
        [single_line(text) for text in ("" if place else name, tile.contributor, tile.name, tile.score)]
        for name, tiles in found.items()
        for place, tile in enumerate(tiles[:PRINTED])
    ]
    columns = ("method", "contributor", "image", "score")
    console.print(table(columns, rows, left=columns[:3], title="The closest training images"))
    file = output or loaded.folder / f"explain-{UNSAFE.sub('-', Path(picture).stem)[:40]}.html"
    title = f"The training images closest to {'the image of seed ' if evidence.sampling else ''}{picture}"
    write_text(file, contact_sheet(title, evidence.generated[0], found))
    say(f"\nContact sheet: {file}")


def evidence_of(study: "Study", picture: str) -> "Evidence":
    """Return the study's evidence with one picture in place of all generated images."""
    from diffcredit.baselines.study import study_evidence

    if not re.fullmatch(r"[0-9]{1,18}", picture) or Path(picture).exists():
        pixels = _pixels(picture, study.config.contributions.resolution)  # before a model is trained
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
    from diffcredit.contributions.images import UnreadableImage, open_image, square_pixels, without_pillows_warnings

    try:
        with without_pillows_warnings(), open_image(Path(picture)) as image:
            return square_pixels(image, resolution)
    except UnreadableImage as error:
        why = str(error)
    except Exception as error:  # on hostile files Pillow's decoders raise anything
        why = f"cannot be decoded ({type(error).__name__}: {error})"
    raise UserError(f"PICTURE: {picture}: {why}; an image file or a seed is expected")
