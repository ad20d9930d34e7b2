"""Feature extractors: images to vectors and, with a classifier, to class scores.

A study file names an extractor, with its options where it has any::

    properties:
      - {name: fid, features: inception_v3}
      - {name: fid, features: {name: "my_module:MyExtractor", layer: 3}, as: my-fid}

To write one, inherit from :class:`Extractor`, or write any class with the members that it must have.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diffcredit.errors import UserError
from diffcredit.util.artifacts import canonical_json

Images = NDArray[np.uint8]  # (m, h, w, 3)
FeaturesOption = str | dict[str, Any]
"""How a study file names an extractor: ``efficientnet_lite0``, or a mapping with its ``name`` and options."""


@dataclass(frozen=True)
class Features:
    """The features of m images: ``vectors`` (m, d) and, from a classifier, ``logits`` (m, k); float32."""

    vectors: NDArray[np.float32]
    logits: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def select(self, rows: NDArray[np.int64] | slice) -> "Features":
        """Return the features of some of the images, in the order of ``rows``."""
        return Features(self.vectors[rows], None if self.logits is None else self.logits[rows])

    def probabilities(self) -> NDArray[np.float64]:
        """Return each image's class probabilities (m, k), the softmax of its logits."""
        if self.logits is None:
            raise UserError("features: the extractor is no classifier, and class probabilities are needed")
        scores = self.logits.astype(np.float64)
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        named = {"vectors": self.vectors}
        return named if self.logits is None else {**named, "logits": self.logits}

    @classmethod
    def joined(cls, parts: Sequence["Features"]) -> "Features":
        """Concatenate the features of several sets of images."""
        logits = [part.logits for part in parts if part.logits is not None]
        return cls(np.concatenate([part.vectors for part in parts]), np.concatenate(logits) if logits else None)


class Extractor:
    """Base class of feature extractors.

    One must have ``batch_size``, ``dimensions``, :meth:`identity` and :meth:`extract`. The rest has defaults. The
    fields of a dataclass are the options of the study file. Making one must be cheap: weights are read by :meth:`load`,
    which is called once, before ``dimensions``, ``classes``, ``labels`` or any other method.

    An extractor is used by one thread at a time.
    """

    batch_size: int
    """The most images that :meth:`extract` is given at once."""
    dimensions: int
    """d, the length of a vector."""
    classes: int | None = None
    """k, the number of logits; None: it is no classifier."""
    labels: Sequence[str] | None = None
    """The names of the k classes, where they have some."""
    cpu_batch: int | None = None
    """The most images at once on a CPU, where that is less than ``batch_size``."""

    def load(self, device: str) -> None:
        """Read the weights, verified where their hash is published, onto a torch device such as ``cuda:0``."""

    def identity(self) -> dict[str, Any]:
        """Return all that fixes its numbers, as JSON: the weights' hash (never a path), the resizing, the layer."""
        raise NotImplementedError

    def extract(self, images: Images) -> Features:
        """Return the features of 1 to ``batch_size`` images (m, h, w, 3), finite and float32, each by itself.

        Where a GPU's memory does not suffice, torch's OutOfMemoryError has the caller try again with half of them.
        """
        raise NotImplementedError

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return embeddings (len(texts), d) of texts in the space of the vectors; optional."""
        raise NotImplementedError


def package(module: str, extractor: str, extra: str) -> Any:
    """Import what an extractor needs; raise a UserError that names the package and our extra if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        name = module.partition(".")[0].replace("_", "-")
        raise UserError(f"features: {extractor} needs the package {name}; pip install 'diffcredit[{extra}]'") from None


def option_name(option: FeaturesOption) -> str:
    name = option.get("name") if isinstance(option, dict) else option
    if not isinstance(name, str):
        raise UserError(f"features: {option!r} is not accepted; an extractor's name, or a mapping with its name")
    return name


def option_key(option: FeaturesOption) -> str:
    """Return one text for one option: a plain name and a mapping with only a name are the same."""
    try:
        return canonical_json(option if isinstance(option, dict) else {"name": option_name(option)})
    except (TypeError, ValueError):
        raise UserError(f"features: {option!r} is not accepted; texts and finite numbers are") from None


def unit_rows(vectors: ArrayLike) -> NDArray[np.float64]:
    """Divide each row of vectors (m, d) by its Euclidean length; a row of zeros stays."""
    rows: NDArray[Any] = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)
