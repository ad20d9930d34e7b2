"""The extractors of a study: each loaded once, whatever many properties share it, and what they saw kept on disk."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from diffcredit.errors import UserError
from diffcredit.features import EXTRACTORS
from diffcredit.features.base import Extractor, Features, FeaturesOption, Images, option_key, option_name
from diffcredit.util.artifacts import canonical_json, fingerprint, fingerprint_arrays, read_arrays, write_arrays
from diffcredit.util.plugins import build, code_of, in_plugin
from diffcredit.util.progress import Progress, silent

MEMBERS = ("label", "batch_size", "dimensions", "classes", "load", "identity", "extract")


class Extractors:
    """Makes and loads extractors on ``device`` as they are asked for.

    ``beside`` is where plug-ins are looked for beside the installed packages; ``folder`` is where :meth:`kept` keeps
    features (None: nowhere).
    """

    def __init__(
        self,
        device: str = "cpu",
        beside: Path = Path(),
        folder: Path | None = None,
        progress: Progress = silent,
    ) -> None:
        self._device, self._beside, self._folder, self._progress = device, beside, folder, progress
        self._loaded: dict[str, Extractor] = {}

    @property
    def device(self) -> str:
        return self._device

    def get(self, option: FeaturesOption) -> Extractor:
        """The extractor that a ``features`` option names, loaded."""
        key = option_key(option)
        if key not in self._loaded:
            extractor = make_extractor(option, self._beside)
            with in_plugin(f"features: {option_name(option)}: load({self._device!r})"):
                extractor.load(self._device)
            self._loaded[key] = extractor
        return self._loaded[key]

    def identity(self, option: FeaturesOption) -> dict[str, Any]:
        """All that fixes the extractor's numbers: its name, weights, resizing, and the code of a plug-in."""
        extractor, name = self.get(option), option_name(option)
        with in_plugin(f"features: {name}: identity(), which is to be JSON,"):
            identity = {"name": name, **extractor.identity(), **code_of(extractor)}
            canonical_json(identity)
        return identity

    def extract(
        self, option: FeaturesOption, images: Images, on_batch: Callable[[int, int], None] | None = None
    ) -> Features:
        """The features of images (m, h, w, 3) uint8; ``on_batch(done, total)`` reports progress."""
        check_images(images)
        extractor = self.get(option)
        if extractor.batch_size < 1:
            whose = f"features: {type(extractor).__name__}"
            raise UserError(f"{whose} has the batch_size {extractor.batch_size}; at least 1 is expected")
        parts = []
        size = extractor.batch_size
        if self._device == "cpu":
            size = min(size, getattr(extractor, "cpu_batch", size))
        for start in range(0, len(images), size):
            batch = images[start : start + size]
            parts.append(_checked(_extracted(extractor, batch), len(batch), extractor))
            if on_batch:
                on_batch(start + len(batch), len(images))
        return Features.joined(parts)

    def kept(self, option: FeaturesOption, images: Images, what: str) -> Features:
        """The same, kept in the folder by what was seen and who saw it: several properties ask for the training
        images. ``what`` tells the progress whose features they are."""
        name = fingerprint([self.identity(option), fingerprint_arrays({"images": images})])[:12]
        file = self._folder / f"features-{name}.safetensors" if self._folder else None
        if file is not None and file.exists():
            return Features(**read_arrays(file))

        def tell(done: int, total: int) -> None:
            self._progress(f"features of {what} ({option_name(option)})", done, total)

        features = self.extract(option, images, tell)
        if file is not None:
            write_arrays(file, features.arrays())
        return features


def make_extractor(option: FeaturesOption, beside: Path = Path()) -> Extractor:
    """The extractor that ``option`` names, not yet loaded."""
    name = option_name(option)
    options = {} if isinstance(option, str) else {key: value for key, value in option.items() if key != "name"}
    extractor = build(name, options, EXTRACTORS, where="features", beside=beside)
    for member in MEMBERS:
        if not hasattr(type(extractor), member) and member not in getattr(type(extractor), "__annotations__", {}):
            raise UserError(f"features: {name!r} has no {member}; an Extractor is expected")
    return extractor


def label_of(option: FeaturesOption) -> str:
    """An extractor's name for readers: ours by their labels, a plug-in by its class."""
    name = option_name(option)
    if name not in EXTRACTORS:
        return name.rpartition(":")[2]
    module, _, attribute = EXTRACTORS[name].partition(":")
    return getattr(import_module(module), attribute).label


def check_images(images: Any) -> None:
    """Refuses what is no stack of RGB images."""
    shape, kind = getattr(images, "shape", None), getattr(images, "dtype", type(images).__name__)
    if not isinstance(images, np.ndarray) or images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
        raise UserError(f"images: {kind} of shape {shape}; uint8 of shape (m, height, width, 3) is accepted")
    if not len(images) or not images.shape[1] or not images.shape[2]:
        raise UserError(f"images: of shape {shape}; at least one image with at least one pixel is needed")


def _extracted(extractor: Extractor, batch: Images) -> Features:
    """The features of a batch, in halves where a GPU's memory is too small for all of it."""
    with in_plugin(f"features: {type(extractor).__name__}: extract(images)"):
        try:
            return extractor.extract(batch)
        except RuntimeError as error:
            if type(error).__name__ != "OutOfMemoryError" or len(batch) == 1:  # torch's, which is not imported for it
                raise
    middle = len(batch) // 2
    return Features.joined([_extracted(extractor, half) for half in (batch[:middle], batch[middle:])])


def _checked(features: Any, images: int, extractor: Extractor) -> Features:
    """``features`` as they must be, of so many images."""
    whose = f"features: {type(extractor).__name__}"
    if not isinstance(features, Features):
        raise UserError(f"{whose} extracts {type(features).__name__}; Features are expected")
    widths = {"vectors": extractor.dimensions, "logits": extractor.classes}
    for name, array in features.arrays().items():
        if not isinstance(array, np.ndarray) or array.dtype != np.float32:
            kind = getattr(array, "dtype", type(array).__name__)
            raise UserError(f"{whose}: {name} of type {kind}; float32 arrays are expected")
        if array.shape != (images, widths[name]):
            expected = "none are" if widths[name] is None else f"{(images, widths[name])} is"
            raise UserError(f"{whose}: {name} of shape {array.shape} for {images} images; {expected} expected")
        if not np.isfinite(array).all():
            raise UserError(f"{whose}: {name} are not finite")
    if features.logits is None and extractor.classes is not None:
        raise UserError(f"{whose}: logits are missing, and {extractor.classes} classes are told")
    return features
