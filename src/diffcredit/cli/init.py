"""``diffcredit init``: a study file from a folder of images."""

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diffcredit.cli.console import say
from diffcredit.errors import UserError
from diffcredit.util.links import real_path

if TYPE_CHECKING:
    from diffcredit.study.proposal import Proposal

HOLDOUT, FEWEST = 0.1, 5  # the share that is held out, if every contributor has at least 5 images

TEMPLATE = """\
# A study: everything that fixes the credits. Relative paths start from this file's folder.
name: {name}
seed: 0

contributions:
  path: {path}
  source: {source}            # folders, imagefolder, npz, openmoji
{contributor}  resolution: {resolution}
{holdout}{house}
# What contributors are compared with: F without any of them. Credits sum to F(all) - F(reference).
{reference}
# {reason}.
# `diffcredit plan` says what the study costs on this machine.
model:
{family}  train: {{steps: {steps}, batch_size: {batch}, learning_rate: {rate}, schedule: cosine{average}}}

retraining:                   # a coalition's model: sparsified, fine_tune or from_scratch
  method: sparsified
  parameters: {kept}             # share of the {what} that pruning keeps
  recover_steps: {recover}
  steps: {tune}
  learning_rate: {tune_rate}      # lower is quieter: credits rest on differences between coalitions

sampling: {{scheduler: ddim, steps: {ddim}, images: {images}, seed: 0}}

properties:                   # or your own: my_module:MyProperty
{properties}
design: {{distribution: uniform, seed: 0}}
stop: {{evaluations: {evaluations}}}
keep: images                  # of every evaluation, so that a property added later costs no retraining; or nothing

# If contributors will be paid: by which rule. The first run enters it in the ledger, before anybody knows the credits.
# With r: reliability all are paid by the fixed rule alone until the credits have passed a test (diffcredit validate).
# payout: {{property: {paid}, fixed: equal, merit: {merit}, r: reliability, currency: EUR}}
"""

HOUSE = """\
reference: house              # the model of the house images alone: what there would be without contributors
"""
UNTRAINED = """\
# Nobody's alternative is an untrained network, and its level makes everybody's share about 1/n: shares are not shown.
# Better: house images, your own, licensed or public-domain ones (contributions.house: a folder; reference: house), or
# the value of the model that is in use today, for every property:
# reference: {stated}
reference: untrained
"""

PRESET = "  preset: {}             # tiny (CPU, 16 px), small (GPU, 32 to 64 px), latent-small (GPU, latents), …\n"
PIXELS = "  family: ddpm\n" + PRESET
LATENT = "  family: latent\n  autoencoder: {}\n" + PRESET
ADAPTER = """\
  family: lora                # an adapter on the frozen pipeline
  pretrained: {}
  rank: {}
"""
PROMPT = "  prompt: {}              # the caption of every image; without it each has its own\n"
PIPELINE = """\
reference: pretrained         # the pipeline without an adapter
"""
SAID = {
    "house": "the model of the house images alone.",
    "pipeline": "the pipeline without an adapter.",
    "untrained": "the untrained network, so that shares are not shown; --house FOLDER gives one that means something, "
    "and the study file says which others there are.",
}


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Images: a folder per contributor, an imagefolder, or an .npz.")
    ],
    contributor: Annotated[
        str, typer.Option(help="The metadata column, or array, that names the contributors.")
    ] = "contributor",
    house: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="House images: in every coalition and credited to nobody, such as your own, licensed or public-domain "
            "ones. The model of these alone is what contributors are compared with.",
        ),
    ] = None,
    autoencoder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="An autoencoder for a latent model, or a pipeline that has one. Default: one in a folder beside the "
            "study file or the images, if there is a GPU.",
        ),
    ] = None,
    pipeline: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="A text-to-image pipeline of diffusers. Coalitions train LoRA adapters on it, with the images' "
            "captions or with one --prompt.",
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With --pipeline: the caption of every image.")
    ] = None,
    output: Annotated[Path, typer.Option(help="The study file to write.")] = Path("study.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the study file.")] = False,
) -> None:
    """Write a study file for a folder of images, with settings that fit this machine."""
    import torch

    from diffcredit.contributions import load_contributions
    from diffcredit.contributions.sources import detect
    from diffcredit.diffusion.first_stage import has_first_stage
    from diffcredit.study.proposal import find_autoencoder, propose, propose_adapter, side_of
    from diffcredit.util.artifacts import write_text

    if output.exists() and not force:
        raise UserError(f"{output}: exists already; choose another --output, or --force to overwrite it")
    place, gpu = real_path(output).parent, torch.cuda.is_available()
    if autoencoder is not None and not has_first_stage(autoencoder):
        raise UserError(
            f"--autoencoder {autoencoder}: no autoencoder there; accepted: a folder with an AutoencoderKL, an "
            "AutoencoderTiny or a VQModel, a pipeline that has one, or TAESD's pair of files"
        )
    if pipeline is None and prompt is not None:
        raise UserError("--prompt is the caption of images that adapt a pipeline; --pipeline is missing")
    if pipeline is not None:
        if autoencoder is not None:
            raise UserError("--autoencoder: a --pipeline has its own; leave it out")
        proposal = propose_adapter(side_of(folder), pipeline)
    else:
        if gpu and autoencoder is None:
            autoencoder = find_autoencoder([place, real_path(folder).parent])
        proposal = propose(side_of(folder), gpu=gpu, autoencoder=autoencoder)
    contributions = load_contributions(
        folder, contributor=contributor, resolution=proposal.resolution, unreadable="skip", house=house
    )
    if pipeline is not None and prompt is None and not all(contributions.captions or [""]):
        raise UserError(f"{folder}: not every image has a caption; give all images one by --prompt TEXT")
    source, enough = detect(folder), contributions.counts.min() >= FEWEST
    properties = [*(["heldout_loss"] if enough else []), "colourfulness", "cluster_entropy"]
    holdout = f"  holdout: {HOLDOUT}                # a tenth of every contributor's, not trained on\n"
    stated = ", ".join(f"{name}: …" for name in properties)
    family, reference = _family(proposal, place, pipeline, prompt), "untrained" if house is None else "house"
    if pipeline is not None and house is None:
        reference = "pipeline"
    references = {"house": HOUSE, "pipeline": PIPELINE, "untrained": UNTRAINED.format(stated=f"{{{stated}}}")}
    settings = {key: value for key, value in vars(proposal).items() if key not in ("autoencoder", "ema", "rank")}
    text = TEMPLATE.format(
        name=json.dumps(study_name(real_path(folder)), ensure_ascii=False),
        path=_quoted(folder, place),
        source=source,
        contributor="" if source == "folders" else f"  contributor: {json.dumps(contributor, ensure_ascii=False)}\n",
        holdout=holdout if enough else "",
        house="" if house is None else f"  house: {_quoted(house, place)}   # in every coalition, credited to nobody\n",
        reference=references[reference],
        family=family,
        average="" if proposal.ema is None else f", ema: {proposal.ema}",
        what="parameters" if pipeline is None else "adapter's rank pairs",
        properties="".join(f"  - name: {name}\n" for name in properties),
        paid=properties[0],
        # help is counted from the reference, which must mean something
        merit="least" if reference == "untrained" else "help",
        evaluations=max(60, 10 * contributions.n),
        **settings,
    )
    write_text(output, text)
    every = f"({contributions.counts.min()} to {contributions.counts.max()} each)"
    ours = f" and {contributions.house.sum():,} house images" if contributions.has_house else ""
    say(f"{output}: {(~contributions.house).sum():,} images of {contributions.n} contributors {every}{ours}")
    say(f"Proposed: {proposal.preset} at {proposal.resolution} px. {proposal.reason}.")
    say(f"Reference: {SAID[reference]}")
    say(f"Next: diffcredit plan {output}, then diffcredit run {output}")
    for line in contributions.skipped:
        say(f"unreadable: {line}; the run stops there unless contributions.unreadable is skip")


def _family(proposal: "Proposal", place: Path, pipeline: Path | None, prompt: str | None) -> str:
    """Return the first lines of the study file's model."""
    if pipeline is not None:
        said = "" if prompt is None else PROMPT.format(json.dumps(prompt, ensure_ascii=False))
        return ADAPTER.format(_quoted(pipeline, place), proposal.rank) + said
    if proposal.autoencoder is None:
        return PIXELS.format(proposal.preset)
    return LATENT.format(_quoted(proposal.autoencoder, place), proposal.preset)


def _quoted(path: Path, place: Path) -> str:
    """Return a path as YAML, relative to the study file's folder."""
    return json.dumps(os.path.relpath(real_path(path), place), ensure_ascii=False)


def study_name(place: Path) -> str:
    """Return a study's name after its folder or file of images, in the accepted characters and length."""
    name = place.name if place.is_dir() else place.stem
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:100] or "study"
