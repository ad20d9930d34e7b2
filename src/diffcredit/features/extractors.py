"""The extractors of a study: each is loaded once, and the features of images that are asked for often are cached."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from diffcredit.errors import UserError
from diffcredit.features import EXTRACTORS
from diffcredit.features.base import Extractor, Features, FeaturesOption, Images, option_key, option_name
from diffcredit.util.artifacts import canonical_json, fingerprint_arrays
from diffcredit.util.cache import artifact_name, cached_arrays
from diffcredit.util.plugins import Adapted, build, code_of, in_plugin, missing_members
from diffcredit.util.progress import Progress, silent

LABELS = {
    "layout": "layout, edges and colours",
    "efficientnet_lite0": "EfficientNet-Lite0",
    "inception_v3": "Inception-v3",
    "clip": "CLIP",
    "blip_vqa": "BLIP-VQA",
    "transformers": "transformers model",
    "timm": "timm model",
}
"""The extractors' names for readers, where they are others than in a study file."""


class Extractors:
    """Makes extractors, plug-ins also from ``beside``, and loads them on ``device``, each at its first use.

    :meth:`kept` caches features in ``folder`` (None: not at all).
    """

    def __init__(
        self, device: str = "cpu", beside: Path = Path(), folder: Path | None = None, progress: Progress = silent
    ) -> None:
        self.device, self._beside, self._folder, self._progress = device, beside, folder, progress
        self._loaded: dict[str, Extractor] = {}

    def get(self, option: FeaturesOption) -> Extractor:
        """Return the extractor that a ``features`` option names, loaded."""
        key = option_key(option)
        if key not in self._loaded:
            extractor = make_extractor(option, self._beside)
            with in_plugin(f"features: {option_name(option)}: load({self.device!r})"):
                extractor.load(self.device)
            self._loaded[key] = extractor
        return self._loaded[key]

    def identity(self, option: FeaturesOption) -> dict[str, Any]:
        """Return all that fixes the extractor's numbers: its name, weights, resizing, and the code of a plug-in."""
        extractor, name = self.get(option), option_name(option)
        with in_plugin(f"features: {name}: identity(), which is to be JSON,"):
            identity = {"name": name, **extractor.identity(), **code_of(extractor)}
            canonical_json(identity)
        return identity

    def extract(
        self, option: FeaturesOption, images: Images, on_batch: Callable[[int, int], None] | None = None
    ) -> Features:
        """Return the features of images (m, h, w, 3) uint8; ``on_batch(done, total)`` reports progress."""
        check_images(images)
        extractor, whose = self.get(option), f"features: {option_name(option)}"
        size = extractor.batch_size
        if size < 1:
            raise UserError(f"{whose} has the batch_size {size}; at least 1 is expected")
        if self.device == "cpu":
            size = min(size, extractor.cpu_batch or size)
        parts = []
        for start in range(0, len(images), size):
            batch = images[start : start + size]
            parts.append(_checked(_extracted(extractor, batch, whose), len(batch), extractor, whose))
            if on_batch:
                on_batch(start + len(batch), len(images))
        return Features.joined(parts)

    def kept(self, option: FeaturesOption, images: Images, what: str) -> Features:
        """Return features from the cache, by the extractor's identity and the images, which progress calls ``what``."""
        name = artifact_name("features", [self.identity(option), fingerprint_arrays({"images": images})])

        report = partial(self._progress, f"features of {what} ({option_name(option)})")
        return Features(**cached_arrays(self._folder, name, lambda: self.extract(option, images, report).arrays()))


class AdaptedExtractor(Adapted, Extractor):
    """A user's extractor that does not inherit from :class:`Extractor`."""


def make_extractor(option: FeaturesOption, beside: Path = Path()) -> Extractor:
    """Make the extractor that ``option`` names, without loading it."""
    name = option_name(option)
    options = {} if isinstance(option, str) else {key: value for key, value in option.items() if key != "name"}
    component = build(name, options, EXTRACTORS, where="features", beside=beside)
    for member in missing_members(component, Extractor, ("batch_size", "dimensions", "identity", "extract")):
        raise UserError(f"features: {name!r} has no {member}; an Extractor is expected")
    return component if isinstance(component, Extractor) else AdaptedExtractor(component)


def label_of(option: FeaturesOption) -> str:
    """Return an extractor's name for readers; of a plug-in, the name of its class."""
    name = option_name(option)
    return LABELS.get(name, name.rpartition(":")[2])


def check_images(images: Any) -> None:
    """Raise a UserError unless ``images`` is a stack of RGB images, (m, h, w, 3) uint8, none of the sizes 0."""
    array = isinstance(images, np.ndarray)
    if not array or images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
        found = f"{images.dtype} of shape {images.shape}" if array else type(images).__name__
        raise UserError(f"images: {found}; uint8 of shape (m, height, width, 3) is accepted")
    if not images.size:
        raise UserError(f"images: of shape {images.shape}; at least one image with at least one pixel is needed")


def _extracted(extractor: Extractor, batch: Images, whose: str) -> Features:
    """Extract the features of a batch, in halves where a GPU's memory is too small for all of it."""
    with in_plugin(f"{whose}: extract(images)"):
        try:
            return extractor.extract(batch)
        except RuntimeError as error:
            if type(error).__name__ != "OutOfMemoryError" or len(batch) == 1:  # torch's, which is not imported for it
                raise
    middle = len(batch) // 2
    return Features.joined([_extracted(extractor, half, whose) for half in (batch[:middle], batch[middle:])])


def _checked(features: Any, images: int, extractor: Extractor, whose: str) -> Features:
    """Return ``features`` if they are as :meth:`Extractor.extract` must return them."""
    if not isinstance(features, Features):
        raise UserError(f"{whose} extracts {type(features).__name__}; Features are expected")
    widths = {"vectors": extractor.dimensions, "logits": extractor.classes}
    for name, array in features.arrays().items():
        if not isinstance(array, np.ndarray) or array.dtype != np.float32:
            kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise UserError(f"{whose}: {name} of type {kind}; float32 arrays are expected")
        if array.shape != (images, widths[name]):
            expected = "none are" if widths[name] is None else f"{(images, widths[name])} is"
            raise UserError(f"{whose}: {name} of shape {array.shape} for {images} images; {expected} expected")
        if not np.isfinite(array).all():
            raise UserError(f"{whose}: {name} are not finite")
    if features.logits is None and extractor.classes is not None:
        raise UserError(f"{whose}: logits are missing; {extractor.classes} classes are expected")
    return features
