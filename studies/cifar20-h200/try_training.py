"""Trains the study's model once on all images and tells what its images are worth; a line for pilot/trainings.jsonl.

python studies/cifar20-h200/try_training.py --training '{"steps": 5000, "learning_rate": 1.6e-3}'
python studies/cifar20-h200/try_training.py --real

What is not given is as in study.yaml. ``--noise`` changes the noise schedule, with the keys of diffusers' schedulers.
"""

import argparse
import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from classifier import Cifar20Classifier
from PIL import Image

from diffcredit.cli.console import Bars
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.objectives.noise_schedule import NoiseSchedule
from diffcredit.diffusion.training import train
from diffcredit.features import Features, Images
from diffcredit.properties.classes import inception_score
from diffcredit.properties.colourfulness import colourfulness
from diffcredit.properties.distances import frechet_distance, moments, square_root
from diffcredit.study.study import Study

STUDY = Path(__file__).with_name("study.yaml")
ROWS, COLUMNS = 6, 16  # of the picture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--training", type=json.loads, default={})
    parser.add_argument("--noise", type=json.loads, default={})
    parser.add_argument("--preset", default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--real", action="store_true", help="the held-out images in place of a model's")
    options = parser.parse_args()
    study = Study.load(STUDY)
    known, device = study.contributions.images, "cuda" if torch.cuda.is_available() else "cpu"
    if options.real:
        made, told = study.contributions.heldout, {"images": "held-out"}
    else:
        settings = dataclasses.replace(study.config.model.train, **options.training)
        preset = options.preset or study.config.model.options["preset"]
        model = DDPM.create(preset, known.shape[1], options.seed)
        model = DDPM(model.network.to(device), model.config, NoiseSchedule({**DDPM.schedule, **options.noise}))
        with Bars() as bars:
            train(model, model.encode(known), settings, seed=options.seed, on_step=partial(bars, "training"))
        made = generate(model, study.config.sampling)
        told = {"preset": preset, "training": dataclasses.asdict(settings), "noise": options.noise}
    print(json.dumps(told | {"seed": options.seed} | worth(made, known, device)))
    if options.picture:
        picture(made).save(options.picture)


def worth(made: Images, known: Images, device: str) -> dict[str, Any]:
    """What the classifier makes of images that a model ``made``: the Fréchet distance from those that are ``known``,
    the share of which it is surer than ½, its Inception Score, how many it takes for each class; and colourfulness."""
    classifier = Cifar20Classifier()
    classifier.load(device)

    def seen(images: Images) -> Features:
        size = classifier.batch_size
        starts = range(0, len(images), size)
        return Features.joined([classifier.extract(images[start : start + size]) for start in starts])

    mean, covariance = moments(seen(known).vectors)
    features = seen(made)
    chances = features.probabilities()
    return {
        "fid": frechet_distance(features.vectors, mean, square_root(covariance)),
        "sure": float((chances.max(axis=1) > 0.5).mean()),
        "inception score": inception_score(features),
        "colourfulness": float(colourfulness(made).mean()),
        "of each class": np.bincount(chances.argmax(axis=1), minlength=chances.shape[1]).tolist(),
    }


def picture(images: Images) -> Image.Image:
    """The first of them, side by side."""
    size = images.shape[1]
    some = images[: ROWS * COLUMNS].reshape(ROWS, COLUMNS, size, size, 3)
    return Image.fromarray(some.transpose(0, 2, 1, 3, 4).reshape(ROWS * size, COLUMNS * size, 3))


if __name__ == "__main__":
    main()
