"""Whether the study's models are good enough for their properties to mean something.

    python -m benchmarks.cifar20.images

measures the base model's images beside held-out ones, with more and more noise added to these, and shows some. It needs
the study's data and results; what it finds is a section beside those of ``diffcredit validate``.
"""

import json
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.cifar20.record import CLASSES, SEEN, STUDY
from diffcredit.execution.threads import limited_threads
from diffcredit.features import Images
from diffcredit.properties.measuring import Observation, measure_all
from diffcredit.study.study import Study
from diffcredit.util.images import image_grid
from diffcredit.validation.data import ValidationData
from diffcredit.validation.presentation.sections import Cell, Photograph, Section, Table
from diffcredit.validation.presentation.writing import write_section

PART = "images"
CLASSIFIER = "classifier:Cifar20Classifier"
NOISES = (8, 16, 32, 64)  # standard deviations, of 255
ROWS, COLUMNS = 6, 16  # of the picture


def section(study: Study) -> Section:
    generated, heldout = study.prepared.generated_images(), study.contributions.heldout
    assert heldout is not None  # the study file asks for some
    sets = {"held-out images": heldout}
    sets |= {f"held-out images, noise of {noise}": noisy(heldout, noise) for noise in NOISES}
    sets["images of the base model"] = generated
    rows: list[tuple[Cell, ...]] = [(name, *_values(study, images)) for name, images in sets.items()]
    rows += retrained(ValidationData(study), [prop.name for prop in study.prepared.properties])
    values = Table(
        "images-values",
        "What the properties say of images",
        ("of", *(prop.title for prop in study.prepared.properties)),
        tuple(rows),
    )
    picture = Photograph(
        "images-base",
        "Images of the base model",
        f"The first {ROWS * COLUMNS} of {len(generated):,} images of the model that was trained on everybody's images.",
        image_grid(generated[: ROWS * COLUMNS], COLUMNS, scale=2),
    )
    return Section(
        PART, "Are the models good enough?", (), (values, _classes(study, generated)), photographs=(picture,)
    )


def noisy(images: Images, deviation: float) -> Images:
    """The images with normal noise of this standard deviation, of 255, added."""
    noise = np.random.default_rng(0).normal(0.0, deviation, images.shape)
    return np.clip(np.rint(images + noise), 0, 255).astype(np.uint8)


def _values(study: Study, images: Images) -> list[Cell]:
    found = measure_all(study.prepared.properties, Observation(study.prepared.extractors, images))
    return [each.value for each in found]


def retrained(contest: ValidationData, properties: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    """Of the models that were retrained from scratch on half of the labelers: the mean, and how far they differ."""
    done = contest.scratch.evaluations(status="done", purpose="truth")
    half = [each for each in done if each.coalition.count("1") == contest.n // 2]
    if half:
        known = [{value.property: value.value for value in each.values} for each in half]
        values = np.array([[each.get(name) for name in properties] for each in known], dtype=np.float64)
        yield f"images of {len(half)} models retrained on half of the labelers: mean", *np.nanmean(values, axis=0)
        yield "their standard deviation", *np.nanstd(values, axis=0, ddof=1)


def _classes(study: Study, generated: Images) -> Table:
    """What the classifier takes the base model's images for."""
    right: dict[str, float] = json.loads(CLASSES.read_text(encoding="utf-8"))["of each class"]
    chances: NDArray[np.float64] = study.prepared.extractors.extract(CLASSIFIER, generated).probabilities()
    taken = chances.argmax(axis=1)
    rows = [
        (name, right[name], float((taken == place).mean()), _mean(chances.max(axis=1)[taken == place] > 0.5))
        for place, name in enumerate(right)
    ]
    columns = "class", "held-out images that it gets right", "share of the model's images", "of which it is sure (> ½)"
    return Table("images-classes", "What the classifier takes the base model's images for", columns, tuple(rows), 2)


def _mean(values: NDArray[np.bool_]) -> float | None:
    return float(values.mean()) if len(values) else None


def main() -> None:
    study = Study.load(STUDY)
    with limited_threads(study.config.threads):  # as evaluations are measured
        found = section(study)
    write_section(found, study.folder / SEEN / PART)
    for table in found.tables:
        print(table.columns, *table.rows, sep="\n")


if __name__ == "__main__":
    main()
