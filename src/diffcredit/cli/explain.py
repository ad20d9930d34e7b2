"""``diffcredit explain``: whose images is one generated picture closest to?"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diffcredit.cli.baselines import MethodOption, parsed
from diffcredit.cli.console import Bars, StudyArgument, console, say
from diffcredit.errors import DiffcreditWarning, UserError

if TYPE_CHECKING:
    from diffcredit.baselines import Evidence
    from diffcredit.contributions import Contributions
    from diffcredit.study import Study

SHOWN = 8  # training images of each method
METHODS = ("pixel_similarity", "feature_similarity", "patch_similarity", "gradient_similarity", "trak", "d_trak")


def explain(
    study: StudyArgument,
    picture: Annotated[
        str,
        typer.Argument(metavar="PICTURE", help="An image file, or the seed of a generated image of the base model."),
    ],
    method: MethodOption = None,
    output: Annotated[Path | None, typer.Option(help="Where the contact sheet goes. Default: the results.")] = None,
) -> None:
    """Show which contributors and training images one picture is closest to, by each method."""
    import warnings

    from diffcredit.artifacts import write_text
    from diffcredit.cli.run import stopping_gently
    from diffcredit.execution.threads import limited_threads
    from diffcredit.report.contact_sheet import contact_sheet
    from diffcredit.study import Study
    from diffcredit.study_baselines import build_baselines

    with stopping_gently(), Bars() as bars:
        loaded = Study.load(study, bars)
        evidence = evidence_of(loaded, picture)
        wanted = [parsed(text) for text in method or METHODS]
        scores = {}
        for name, _, baseline in build_baselines(loaded, wanted):
            if not hasattr(baseline, "scores"):
                raise UserError(f"--method: {name!r} scores no images one by one, and explains no picture")
            try:
                with limited_threads(loaded.config.threads):
                    scores[name] = baseline.scores(evidence)
            except UserError as error:
                if method:
                    raise
                warnings.warn(f"{name}: left out: {error}", DiffcreditWarning, stacklevel=2)
    contributions = loaded.contributions
    found = {name: (-values).argsort(kind="stable")[:SHOWN].tolist() for name, values in scores.items()}
    _print(contributions, scores, found)
    owners = [contributions.contributors[owner] for owner in contributions.owner]
    file = output or loaded.folder / f"explain-{re.sub(r'[^A-Za-z0-9_-]+', '-', Path(picture).stem)[:60]}.html"
    title = f"The training images closest to {'the image of seed ' if evidence.sampling else ''}{picture}"
    sheet = contact_sheet(
        title, evidence.generated[0], found, scores, contributions.images, owners, contributions.names
    )
    write_text(file, sheet)
    say(f"\nContact sheet: {file}")


def evidence_of(study: "Study", picture: str) -> "Evidence":
    """What methods look at, with one picture in place of all generated images."""
    from diffcredit.study_baselines import study_evidence

    evidence, sampling = study_evidence(study), study.config.sampling
    if re.fullmatch(r"\d{1,18}", picture) and not Path(picture).exists():
        seed = int(picture)
        if seed not in sampling.seeds:
            seeds = sampling.seeds
            raise UserError(f"PICTURE: seed {seed}; those of the study's images are {seeds[0]} to {seeds[-1]}")
        row = list(sampling.seeds).index(seed)
        return replace(
            evidence, generated=evidence.generated[row : row + 1], sampling=replace(sampling, seed=seed, images=1)
        )
    from diffcredit.contributions.images import UnreadableImage, open_image, square_pixels

    try:
        pixels = square_pixels(open_image(Path(picture)), study.config.contributions.resolution)
    except UnreadableImage as error:
        raise UserError(f"PICTURE: {picture}: {error}; an image file or a seed is expected") from None
    return replace(evidence, generated=pixels[None], sampling=None)


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
            grid.add_row(*map(Text, cells))
    console.print(grid)
