"""``diffcredit init``: a study file from a folder of images."""

import json
import os
import re
from pathlib import Path
from typing import Annotated

import typer

from diffcredit.cli.console import say
from diffcredit.errors import UserError

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


SETTINGS = {  # for a CPU, for a GPU
    "preset": ("tiny", "small"),
    "resolution": (16, 32),
    "steps": (3000, 20000),
    "batch": (32, 64),
    "rate": (2e-3, 2e-4),
    "ema": (0.995, 0.9995),
    "kept": (0.4, 0.55),
    "recover": (800, 10000),
    "tune": (60, 1000),
    "tune_rate": (5e-4, 1e-4),
    "ddim": (10, 50),
    "images": (160, 1024),
}


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Images: a folder per contributor, an imagefolder, or an .npz.")
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
    settings = {key: values[torch.cuda.is_available()] for key, values in SETTINGS.items()}
    contributions = load_contributions(
        folder, contributor=contributor, resolution=int(settings["resolution"]), unreadable="skip"
    )
    source, enough = detect(folder), contributions.counts.min() >= FEWEST
    properties = [*(["heldout_loss"] if enough else []), "colourfulness", "cluster_entropy"]
    holdout = f"  holdout: {HOLDOUT}                # a tenth of every contributor's, not trained on\n"
    text = TEMPLATE.format(
        name=json.dumps(study_name(folder.resolve()), ensure_ascii=False),
        path=json.dumps(os.path.relpath(folder.resolve(), output.resolve().parent), ensure_ascii=False),
        source=source,
        contributor="" if source == "folders" else f"  contributor: {json.dumps(contributor, ensure_ascii=False)}\n",
        holdout=holdout if enough else "",
        properties="".join(f"  - name: {name}\n" for name in properties),
        evaluations=max(60, 10 * contributions.n),
        **settings,
    )
    write_text(output, text)
    say(
        f"{output}: {len(contributions.images):,} images of {contributions.n} contributors "
        f"({contributions.counts.min()} to {contributions.counts.max()} each). "
        f"Next: diffcredit plan {output}, then diffcredit run {output}"
    )
    for line in contributions.skipped:
        say(f"unreadable: {line}; the run stops there unless contributions.unreadable is skip")


def study_name(place: Path) -> str:
    """Return a study's name after its folder or file of images, in the accepted characters and length."""
    name = place.name if place.is_dir() else place.stem
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:100] or "study"
