"""Kinds of image among the generated ones: the Inception Score, how many classes there are, how many images show
certain ones, and how evenly images spread over clusters of the base model's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, MinLen
from numpy.typing import NDArray
from pydantic import Strict

from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.features import Extractor, Features, FeaturesOption
from diffcredit.features.extractors import label_of
from diffcredit.properties.base import Context, State
from diffcredit.properties.kinds import FeatureProperty, MeanProperty, jackknife_error, resampled_counts

ClassName = Annotated[int, Strict()] | str
"""A class by its index, from 0, or by the extractor's label. Strict: YAML reads an unquoted ``yes`` as true, which
must not pass for class 1."""

SHOWN = 3  # names in a title or an error
BLOCK = 128  # images whose class probabilities are held at once, in a processor's cache


@dataclass
class InceptionScore(FeatureProperty):
    """exp(E KL(p(y|x) ‖ p(y))) of Salimans et al. (2016).

    p(y|x) are a classifier's probabilities for an image, p(y) their mean over images. With ``splits`` it is the mean of
    the lower scores of that many parts (image j in part j mod splits); many published numbers use ten.
    """

    features: FeaturesOption = "efficientnet_lite0"
    splits: Annotated[int, Ge(1)] = 1

    name = "inception_score"
    heading = "Inception Score"
    classifier = True
    unit = "classes"
    explanation = (
        "How clearly the generated images show something, and how many different things: 1 when all look alike to a "
        "classifier, at most the number of its classes."
    )
    bias = (
        "Too low when images are few for the classes they show, and the lower the fewer they are: compare equal "
        "numbers of images only."
    )
    range = (1.0, float("inf"))

    @property
    def title_of_each(self) -> str:
        return f"Certainty of an image's class, −entropy ({label_of(self.features)})"

    def least(self, dimensions: int) -> int:
        return self.splits

    def measure_features(self, features: Features) -> float:
        return float(np.mean([inception_score(part) for part in self._parts(features)]))

    def of_each(self, features: Features) -> NDArray[np.float64]:
        """Return −H(p(y|x)) in nats for each image, (m,): how sure the classifier is, at most 0."""
        return _sums(features)[1]

    def standard_error(self, features: Features) -> float:
        """Estimate it by the jackknife, √Σ_s SE_s² / splits.

        In simulations with 200 images and 1,000 classes it is 1.1 to 1.4 times the spread over fresh sets. The
        bootstrap would be a third too small: in its resamples a class that is seen once is seen never or twice.
        """
        errors = [jackknife_error(scores_without_each(part)) for part in self._parts(features)]
        return float(np.sqrt(np.square(errors).sum()) / self.splits)

    def _parts(self, features: Features) -> list[Features]:
        return [features.select(slice(start, None, self.splits)) for start in range(self.splits)]


def inception_score(features: Features) -> float:
    """Return exp(H(p̄) − mean_i H(p_i)), the exponential of the mean KL(p_i ‖ p̄); H is the entropy in nats."""
    total, certainties = _sums(features)
    return float(np.exp(certainties.mean() - _negative_entropy(total / len(features))))


def scores_without_each(features: Features) -> NDArray[np.float64]:
    """Return the Inception Scores without each one of the images, (m,)."""
    total, certainties = _sums(features)
    others = len(features) - 1
    if not others:
        return np.ones(1)
    scores = np.empty(len(features))
    for start in range(0, len(features), BLOCK):
        rows = slice(start, start + BLOCK)
        # rounding may leave less than 0 for a class of one image
        rest = np.maximum(total - features.select(rows).probabilities(), 0) / others
        scores[rows] = np.exp((certainties.sum() - certainties[rows]) / others - _negative_entropy(rest))
    return scores


def _sums(features: Features) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Σ_i p_i, (k,), and −H(p_i) of each image, (m,)."""
    total, certainties = 0.0, []
    for start in range(0, len(features), BLOCK):
        probabilities = features.select(slice(start, start + BLOCK)).probabilities()
        total = total + probabilities.sum(axis=0)
        certainties.append(_negative_entropy(probabilities))
    return np.asarray(total), np.concatenate(certainties)


def _negative_entropy(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Σ p log p over the last axis, with 0 log 0 = 0."""
    from scipy.special import xlogy

    return xlogy(probabilities, probabilities).sum(axis=-1)


class _Classes(FeatureProperty):
    """A property of the classes that images are assigned to, each to its likeliest."""

    classifier = True
    range = (0.0, 1.0)

    classes: Any  # one or a list of the chosen; None: all

    def check_extractor(self, extractor: Extractor, contributions: Contributions) -> None:
        self._indices(extractor)

    def fit(self, context: Context) -> State:
        self.check(context.contributions, len(context.generated))
        return self._indices(context.extractors.get(self.features))

    def _indices(self, extractor: Extractor) -> State:
        """Return the sorted indices of the classes and, as ``known``, the number of the extractor's classes."""
        known, labels, where = extractor.classes, extractor.labels, f"{self.name}.classes"
        if known is None:
            needed = "an extractor with classes is needed"
            raise UserError(f"{self.name}.features: {self.features!r} is no classifier; {needed}")
        chosen = self.classes if isinstance(self.classes, list) else [self.classes]
        indices = range(known) if self.classes is None else {index_of(each, known, labels, where) for each in chosen}
        return {"classes": np.array(sorted(indices), np.int64), "known": np.array([known], np.int64)}

    def restore(self, state: State) -> None:
        self._classes, self._known = state["classes"], int(state["known"][0])


@dataclass
class ClassCoverage(_Classes):
    """The share of ``classes`` (default: all) that are the likeliest for at least ``images`` generated images."""

    features: FeaturesOption = "efficientnet_lite0"
    classes: Annotated[list[ClassName], MinLen(1)] | None = None
    images: Annotated[int, Ge(1)] = 1

    name = "class_coverage"
    heading = "Class coverage"
    unit = "share of the classes"
    differences = (
        "pictures would show {} fewer of the kinds of things",
        "pictures would show {} more of the kinds of things",
    )
    explanation = (
        "How many of the kinds of thing that a classifier knows turn up among the generated images. 1 means that none "
        "is missing."
    )
    bias = "Rises with the number of images, since rare classes turn up in time; only values of equally many compare."

    def check(self, contributions: Contributions, images: int) -> None:
        if images < self.images:
            found = f"{self.images} of each class among {images} generated images"
            raise UserError(f"class_coverage.images: {found}; accepted: at most sampling.images")

    def measure_features(self, features: Features) -> float:
        counts = np.bincount(assigned(features, self._known), minlength=self._known)
        return float((counts[self._classes] >= self.images).mean())

    def standard_error(self, features: Features) -> float:
        """Estimate it by the bootstrap over the images' classes.

        Rough where ``images`` is 1, since a resample misses a third of the classes that a single image shows: up to
        40 % too small where many classes are rare, up to twice too large where nearly all are covered.
        """
        counts = resampled_counts(assigned(features, self._known), self._known)
        return float((counts[:, self._classes] >= self.images).mean(axis=1).std())


@dataclass
class ClassShare(_Classes, MeanProperty):
    """The share of the generated images whose likeliest class is one of ``classes``.

    With ``probability`` it is the mean probability of these classes together.
    """

    classes: ClassName | Annotated[list[ClassName], MinLen(1)]
    features: FeaturesOption = "efficientnet_lite0"
    probability: bool = False

    name = "class_share"
    unit = "share of the images"
    differences = (
        "{} fewer pictures would show the chosen kinds of things",
        "{} more pictures would show the chosen kinds of things",
    )
    explanation = "How much of what the model generates a classifier takes for one of the chosen classes. 1 means all."

    @property
    def title(self) -> str:
        chosen = self.classes if isinstance(self.classes, list) else [self.classes]
        names = [name if isinstance(name, str) else f"class {name}" for name in chosen]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        what = "Mean probability" if self.probability else "Share"
        return f"{what} of {', '.join(names[:SHOWN])}{more} ({label_of(self.features)})"

    def of_each(self, features: Features) -> NDArray[np.float64]:
        """Return 1 for an image that shows one of the classes, else 0, or their probability, (m,)."""
        likeliest = assigned(features, self._known)
        if self.probability:
            return features.probabilities()[:, self._classes].sum(axis=1)
        return np.isin(likeliest, self._classes).astype(np.float64)

    _each = of_each


def assigned(features: Features, known: int) -> NDArray[np.int64]:
    """Return the likeliest of the ``known`` classes for each image, (m,)."""
    if features.logits is None or features.logits.shape[1] != known:
        found = "none" if features.logits is None else str(features.logits.shape[1])
        raise UserError(f"features: the scores of {known} classes are needed; the extractor gives {found}")
    return features.logits.argmax(axis=1)


def index_of(chosen: ClassName, known: int, labels: Sequence[str] | None, where: str) -> int:
    """Return the index of a class given by index or label; ``where`` starts every error."""
    accepted = f"an index of 0 to {known - 1}"
    if isinstance(chosen, int):
        if not 0 <= chosen < known:
            raise UserError(f"{where}: {chosen} is no class; accepted: {accepted}")
        return chosen
    if labels is None:
        raise UserError(f"{where}: {chosen!r} is a label, and the extractor has none; accepted: {accepted}")
    found = [index for index, label in enumerate(labels) if label == chosen]
    if not found:
        near = ", ".join(repr(label) for label in get_close_matches(chosen, labels, SHOWN, cutoff=0))
        raise UserError(f"{where}: {chosen!r} is no label; accepted: {accepted}, or a label such as {near}")
    if len(found) > 1:
        raise UserError(f"{where}: {chosen!r} is the label of the classes {', '.join(map(str, found))}; give an index")
    return found[0]


@dataclass
class ClusterEntropy(FeatureProperty):
    """The entropy −Σ p_k log p_k, in nats, of the images' shares p_k in ``clusters`` reference clusters.

    The clusters are Ward's, of the base model's images; a new image belongs to the cluster with the nearest mean.
    """

    clusters: Annotated[int, Ge(2)] = 20
    features: FeaturesOption = "layout"

    name = "cluster_entropy"
    heading = "Diversity"
    unit = "nats"
    differences = ("pictures would be {} less varied", "pictures would be {} more varied")
    explanation = (
        "How evenly the generated images spread over kinds of image: the entropy over clusters of the base "
        "model's own images. 0 means all of one kind."
    )

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, math.log(self.clusters)

    @property
    def bias(self) -> str:
        return (
            f"Too low by about {(self.clusters - 1) / 2:g} nats divided by the number of images (Miller–Madow); only "
            "values of equally many images compare."
        )

    def check(self, contributions: Contributions, images: int) -> None:
        if images < self.clusters:
            found = f"{self.clusters} clusters of {images} generated images"
            raise UserError(f"cluster_entropy.clusters: {found}; accepted: at most sampling.images")

    def fit(self, context: Context) -> State:
        self.check(context.contributions, len(context.generated))
        seen = context.extractors.kept(self.features, context.generated, "the base model's images")
        return {"centres": cluster_means(seen, self.clusters)}

    def restore(self, state: State) -> None:
        self.centres: NDArray[np.float64] = state["centres"]

    def measure_features(self, features: Features) -> float:
        counts = np.bincount(self.assign(features), minlength=self.clusters)
        shares = counts[counts > 0] / len(features)
        return float(-(shares * np.log(shares)).sum())

    def standard_error(self, features: Features) -> float:
        """Estimate it by the bootstrap over the images' clusters."""
        shares = resampled_counts(self.assign(features), self.clusters) / len(features)
        entropies = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1)
        return float(entropies.std())

    def assign(self, features: Features) -> NDArray[np.int64]:
        """Return the nearest cluster of each image, (m,)."""
        from scipy.spatial.distance import cdist

        return cdist(features.vectors.astype(np.float64), self.centres).argmin(axis=1)


def cluster_means(features: Features, clusters: int) -> NDArray[np.float64]:
    """Return the means (clusters, d) of Ward's clusters of at least as many images."""
    from sklearn.cluster import AgglomerativeClustering

    vectors = features.vectors.astype(np.float64)
    labels = AgglomerativeClustering(clusters, linkage="ward").fit_predict(vectors)
    return np.stack([vectors[labels == k].mean(axis=0) for k in range(clusters)])
