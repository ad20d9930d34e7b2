"""``diffcredit init``: a study file from a folder of images."""

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.console import say
from diffcredit.errors import UserError

if TYPE_CHECKING:
    from diffcredit.contributions import Contributions

HOLDOUT, FEWEST = 0.1, 5  # the share that is held out, if every contributor has at least 5 images

TEMPLATE = """\
# A study: everything that fixes the credits. Relative paths start from this file's folder.
name: {name}
seed: 0

contributions:
  path: {path}
  source: {source}            # folders, imagefolder, npz, openmoji
{contributor}  resolution: {resolution}
{holdout}
model:
  family: ddpm
  preset: {preset}             # tiny (CPU, 16 px), small (GPU, 32 to 64 px), ddpm-cifar (GPU, 32 px)
  train: {{steps: {steps}, batch_size: {batch}, learning_rate: {rate}, schedule: cosine, ema: {ema}}}

retraining:                   # a coalition's model: sparsified, fine_tune or from_scratch
  method: sparsified
  parameters: {kept}             # share of the parameters that pruning keeps
  recover_steps: {recover}
  steps: {tune}
  learning_rate: {tune_rate}      # lower is quieter: credits rest on differences between coalitions

sampling: {{scheduler: ddim, steps: {ddim}, images: {images}, seed: 0}}

properties:                   # or your own: my_module:MyProperty
{properties}
design: {{distribution: uniform, seed: 0}}
stop: {{evaluations: {evaluations}}}
keep: images                  # of every evaluation, so that a property added later costs no retraining; or nothing
"""


@dataclass(frozen=True)
class Scale:
    """Settings for a kind of machine."""

    preset: str
    resolution: int
    steps: int
    batch: int
    rate: float
    ema: float
    kept: float
    recover: int
    tune: int
    tune_rate: float
    ddim: int
    images: int


CPU = Scale(
    preset="tiny",
    resolution=16,
    steps=3000,
    batch=32,
    rate=2e-3,
    ema=0.995,
    kept=0.4,
    recover=800,
    tune=60,
    tune_rate=5e-4,
    ddim=10,
    images=160,
)
GPU = Scale(
    preset="small",
    resolution=32,
    steps=20000,
    batch=64,
    rate=2e-4,
    ema=0.9995,
    kept=0.55,
    recover=10000,
    tune=1000,
    tune_rate=1e-4,
    ddim=50,
    images=1024,
)


def init(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Images: a folder per contributor, an imagefolder, or an .npz."),
    ],
    contributor: Annotated[
        str, typer.Option(help="The metadata column, or array, that names the contributors.")
    ] = "contributor",
    output: Annotated[Path, typer.Option(help="The study file to write.")] = Path("study.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the study file.")] = False,
) -> None:
    """Write a study file for a folder of images, with settings that fit this machine."""
    import torch

    from diffcredit.contributions import load_contributions
    from diffcredit.contributions.sources import detect
    from diffcredit.util.artifacts import write_text

    if output.exists() and not force:
        raise UserError(f"{output}: exists already; choose another --output, or --force to overwrite it")
    scale = GPU if torch.cuda.is_available() else CPU
    contributions = load_contributions(folder, contributor=contributor, resolution=scale.resolution, unreadable="skip")
    write_text(output, study_text(folder, detect(folder), contributor, contributions, output, scale))
    say(
        f"{output}: {len(contributions.images):,} images of {contributions.n} contributors "
        f"({contributions.counts.min()} to {contributions.counts.max()} each). "
        f"Next: diffcredit plan {output}, then diffcredit run {output}"
    )
    for line in contributions.skipped:
        say(f"unreadable: {line}; the run stops there unless contributions.unreadable is skip")


def study_text(
    folder: Path,
    source: str,
    contributor: str,
    contributions: "Contributions",
    output: Path,
    scale: Scale,
) -> str:
    """Return the text of a study file for these contributions."""
    enough = contributions.counts.min() >= FEWEST
    properties = ["colourfulness", "cluster_entropy"]
    if enough:
        properties.insert(0, "heldout_loss")
    return TEMPLATE.format(
        name=json.dumps(study_name(folder.resolve()), ensure_ascii=False),
        path=json.dumps(os.path.relpath(folder.resolve(), output.resolve().parent), ensure_ascii=False),
        source=source,
        contributor="" if source == "folders" else f"  contributor: {json.dumps(contributor, ensure_ascii=False)}\n",
        holdout=f"  holdout: {HOLDOUT}                # a tenth of every contributor's, not trained on\n"
        if enough
        else "",
        properties="".join(f"  - name: {name}\n" for name in properties),
        evaluations=max(60, 10 * contributions.n),
        **asdict(scale),
    )


def study_name(place: Path) -> str:
    """Return a study's name after its folder or file of images, in the accepted characters and length."""
    name = place.name if place.is_dir() else place.stem
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:100] or "study"
