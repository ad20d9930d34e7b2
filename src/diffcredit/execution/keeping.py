"""What stays of an evaluation, so that a property added later costs no retraining: its images, what extractors saw in
them, its model, or nothing."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import safe_open

from diffcredit.artifacts import atomic_folder, intact, read_arrays, write_arrays
from diffcredit.execution.tasks import Task
from diffcredit.features import Features
from diffcredit.features.extractors import Extractors
from diffcredit.properties.measuring import Observation

Kind = Literal["images", "features", "model", "nothing"]


@dataclass(frozen=True)
class Keeper:
    """Keeps evaluations of one recipe in ``folder``, and finds them again: a file or folder each."""

    folder: Path
    kind: Kind

    def keep(self, task: Task, observation: Observation) -> None:
        """Writes what is to be kept of a measured evaluation; what is there already stays, and features of further
        extractors come to it."""
        place = self._place(task, self.kind)
        if self.kind == "nothing" or (self.kind != "features" and place.exists()):
            return
        if self.kind == "model":
            with atomic_folder(place) as folder:
                observation.model.save(folder)
        elif self.kind == "images":
            assert observation.images is not None  # an evaluation has just generated them
            write_arrays(place, {"images": observation.images})
        else:
            known = _read_features(place) if place.exists() else {}
            if observation.features.keys() <= known.keys():
                return
            arrays = {
                f"{extractor}.{name}": array
                for extractor, features in {**observation.features, **known}.items()
                for name, array in features.arrays().items()
            }
            write_arrays(place, arrays)

    def find(self, task: Task, extractors: Extractors, load: Callable[[Path], Any]) -> Observation | None:
        """All that was kept of an evaluation, under this ``kind`` or another; None where nothing was. ``load`` reads a
        model's folder."""
        images, features, model = (self._place(task, kind) for kind in ("images", "features", "model"))
        if not any(path.exists() for path in (images, features, model)):
            return None
        return Observation(
            extractors,
            images=read_arrays(images)["images"] if images.exists() else None,
            model=load(model) if model.exists() else None,
            features=_read_features(features) if features.exists() else {},
        )

    def kept(self, task: Task) -> frozenset[str]:
        """What there is of an evaluation: ``images``, ``model``, and the fingerprints of extractors whose features
        are."""
        there = {kind for kind in ("images", "model") if self._place(task, kind).exists()}
        features = self._place(task, "features")
        if features.exists():
            with intact(features), safe_open(features, "np") as file:
                there |= {key.rpartition(".")[0] for key in file.keys()}  # noqa: SIM118  (no mapping)
        return frozenset(there)

    def _place(self, task: Task, kind: Kind) -> Path:
        # a coalition of many contributors makes a longer name than a file may have
        text = f"{task.coalition} {task.replicate}"
        suffix = "" if kind == "model" else ".safetensors"
        return self.folder / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:24]}{suffix}"


def _read_features(file: Path) -> dict[str, Features]:
    by_extractor: dict[str, dict[str, Any]] = {}
    for key, array in read_arrays(file).items():
        extractor, _, name = key.rpartition(".")
        by_extractor.setdefault(extractor, {})[name] = array
    return {extractor: Features(**arrays) for extractor, arrays in by_extractor.items()}
