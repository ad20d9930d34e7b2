"""The parts of an evaluation that are kept (its images, their features, its model, or nothing), so that a property that
is added later costs no retraining."""

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from safetensors import safe_open

from diffcredit.execution.tasks import Task
from diffcredit.features import Features
from diffcredit.features.extractors import Extractors
from diffcredit.properties.measuring import Observation
from diffcredit.util.artifacts import atomic_folder, intact, read_arrays, write_arrays
from diffcredit.util.store import Store

Kind = Literal["images", "features", "model", "nothing"]


@dataclass(frozen=True)
class Keeper:
    """The kept results of one recipe's evaluations: a file or folder each, in ``folder``. With a ``store`` they are
    kept only there, under the folder's last two names, and ``folder`` has those that were fetched."""

    folder: Path
    kind: Kind
    store: Store | None = None

    def keep(self, task: Task, observation: Observation) -> None:
        """Write what is to be kept of a measured evaluation. Nothing is overwritten; features of other extractors are
        added."""
        if self.kind == "nothing":
            return
        place = self._place(task, self.kind)
        if self.store is None:
            self._write(place, observation)
            return
        name = "/".join(place.parts[-3:])
        if self.kind != "features" and self.store.exists(name):
            return
        with tempfile.TemporaryDirectory(prefix="diffcredit-") as temporary:
            made = Path(temporary) / place.name
            if self.kind == "features":
                self.store.fetch(name, made)
            self._write(made, observation)
            self.store.put(made, name, replace=self.kind == "features")  # features only grow

    def _write(self, place: Path, observation: Observation) -> None:
        if self.kind != "features" and place.exists():
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
        """Return all that was kept of an evaluation; None if nothing was. ``load`` reads a model's folder."""
        images, features, model = (self._fetched(task, kind) for kind in ("images", "features", "model"))
        if not any(path.exists() for path in (images, features, model)):
            return None
        return Observation(
            extractors,
            images=read_arrays(images)["images"] if images.exists() else None,
            model=load(model) if model.exists() else None,
            features=_read_features(features) if features.exists() else {},
        )

    def kept(self, task: Task) -> frozenset[str]:
        """Return what was kept of an evaluation: ``images``, ``model``, and fingerprints of features' extractors."""
        there = {kind for kind in ("images", "model") if self._is_there(self._place(task, kind))}
        if self._is_there(features := self._place(task, "features")):
            features = self._fetched(task, "features")
            with intact(features), safe_open(features, "np") as file:
                there |= {key.rpartition(".")[0] for key in file.keys()}  # noqa: SIM118  (no mapping)
        return frozenset(there)

    def _is_there(self, place: Path) -> bool:
        return place.exists() if self.store is None else place.name in self._listed

    @cached_property
    def _listed(self) -> frozenset[str]:
        assert self.store is not None
        return frozenset(self.store.list(f"{self.folder.parent.name}/{self.folder.name}"))

    def _fetched(self, task: Task, kind: Kind) -> Path:
        """Return the path of an evaluation's artifact, fetched from the store if it is there."""
        place = self._place(task, kind)
        if self.store is not None and (kind == "features" or not place.exists()):  # features may have grown
            self.store.fetch("/".join(place.parts[-3:]), place)
        return place

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
