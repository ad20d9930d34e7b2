"""What a feature extractor is: images to vectors, and to class scores where it is a classifier."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from diffcredit.errors import UserError
from diffcredit.util.artifacts import canonical_json

Images = NDArray[np.uint8]
"""(m, h, w, 3) uint8."""

CPU_BATCH = 4
"""``cpu_batch`` of a network: larger batches only cost memory traffic there (a half more time, measured)."""

Precision = Literal["float32", "bf16"]
"""Of a network's products: bf16 is several times faster on a GPU, and rounds features to two or three digits."""

FeaturesOption = str | dict[str, Any]
"""How a study file names an extractor: ``efficientnet_lite0``, or a mapping with its ``name`` and options."""


@dataclass(frozen=True)
class Features:
    """What an extractor sees in m images: ``vectors`` (m, d) and, of a classifier, ``logits`` (m, k); float32."""

    vectors: NDArray[np.float32]
    logits: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def select(self, rows: NDArray[np.int64] | slice) -> "Features":
        """Those of some of the images, in the order of ``rows``."""
        return Features(self.vectors[rows], None if self.logits is None else self.logits[rows])

    def probabilities(self) -> NDArray[np.float64]:
        """(m, k): each image's class probabilities, the softmax of its logits."""
        if self.logits is None:
            raise UserError("features: the extractor is no classifier, and class probabilities are needed")
        scores = self.logits.astype(np.float64)
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """As named arrays, for a file."""
        named = {"vectors": self.vectors}
        return named if self.logits is None else {**named, "logits": self.logits}

    @classmethod
    def joined(cls, parts: Sequence["Features"]) -> "Features":
        """One after another."""
        logits = [part.logits for part in parts if part.logits is not None]
        return cls(np.concatenate([part.vectors for part in parts]), np.concatenate(logits) if logits else None)


class Extractor(Protocol):
    """Images to vectors. A plug-in ``package.module:Class`` is as good as ours; its fields are the options of the
    study file. Making one is cheap: weights are read by :meth:`load`, before anything else is asked.

    A classifier may have ``labels``, the names of its k classes; one that also embeds texts has
    ``embed_texts(texts)``, (len(texts), d), in the space of the vectors.
    """

    label: ClassVar[str]
    """Its name for readers, such as ``Inception-v3``."""

    batch_size: int
    """How many images :meth:`extract` is given at once; on a CPU, ``cpu_batch`` where it has that and it is less."""

    @property
    def dimensions(self) -> int:
        """d, of the vectors."""
        ...

    @property
    def classes(self) -> int | None:
        """k, of the logits; None where it is no classifier."""
        ...

    def load(self, device: str) -> None:
        """Reads the weights, verified where their hash is published, onto a torch device such as ``cuda:0``."""
        ...

    def identity(self) -> dict[str, Any]:
        """All that fixes its numbers, as JSON: ``weights`` (a hash), ``resize`` (size and method), layers; never a
        path, for a file is known by its content."""
        ...

    def extract(self, images: Images) -> Features:
        """The features of at most ``batch_size`` images (m, h, w, 3), each on its own: which other images come with
        it changes nothing but rounding."""
        ...


def option_name(option: FeaturesOption) -> str:
    """The extractor's name in a ``features`` option."""
    name = option.get("name") if isinstance(option, dict) else option
    if not isinstance(name, str):
        raise UserError(f"features: {option!r} is not accepted; an extractor's name, or a mapping with its name")
    return name


def option_key(option: FeaturesOption) -> str:
    """One text for one option: a plain name and a mapping with nothing else are the same."""
    settings: Mapping[str, Any] = option if isinstance(option, dict) else {"name": option_name(option)}
    try:
        return canonical_json(settings)
    except (TypeError, ValueError):
        raise UserError(f"features: {option!r} is not accepted; texts and finite numbers are") from None
