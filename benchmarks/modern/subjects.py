"""The studies: their data, written to a folder of scratch, and their study files, large for a GPU, small for a CPU."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from studies.make_text_to_image import caption, designers, write_contributions

from diffcredit.study import Study

CIFAR, EMOJI, AUTOENCODER = "cifar20.npz", "openmoji_64.npz", "taef2"
FLOW = {"objective": "flow", "density": {"name": "logit_normal"}}


@dataclass(frozen=True)
class Scale:
    """Sizes of the models and lengths of the trainings that suit a machine."""

    dit: Mapping[str, Any]
    emoji: Mapping[str, Any]


GPU = Scale(
    dit={
        "resolution": 32,
        "preset": "dit-small",
        "train": {"steps": 50_000, "batch_size": 128, "learning_rate": 3e-4, "schedule": "cosine", "warmup_steps": 500}
        | {"ema": 0.9995, "optimizer": "adamw", "weight_decay": 0.01},
        "recover": 10_000,
        "tune": 1000,
        "images": 1024,
        "steps": 50,
    },
    emoji={
        "resolution": 128,
        "preset": "mmdit-small",
        "train": {"steps": 30_000, "batch_size": 64, "learning_rate": 3e-4, "schedule": "cosine", "warmup_steps": 500}
        | {"ema": 0.9995, "optimizer": "adamw", "weight_decay": 0.01},
        "rank": 16,
        "adapt": {"steps": 2000, "batch_size": 32, "learning_rate": 1e-3, "schedule": "cosine", "optimizer": "adamw"},
        "recover": 300,
        "tune": 300,
        "images": 256,
        "steps": 30,
    },
)
CPU = Scale(
    dit={
        "resolution": 16,
        "preset": "dit-tiny",
        "train": {"steps": 4000, "batch_size": 64, "learning_rate": 2e-3, "schedule": "cosine", "warmup_steps": 100}
        | {"ema": 0.998, "optimizer": "adamw", "weight_decay": 0.01},
        "recover": 600,
        "tune": 100,
        "images": 160,
        "steps": 20,
    },
    emoji={
        "resolution": 64,
        "preset": "mmdit-tiny",
        "train": {"steps": 6000, "batch_size": 32, "learning_rate": 2e-3, "schedule": "cosine", "warmup_steps": 100}
        | {"ema": 0.998, "optimizer": "adamw", "weight_decay": 0.01},
        "rank": 8,
        "adapt": {"steps": 300, "batch_size": 16, "learning_rate": 3e-3, "schedule": "cosine", "optimizer": "adamw"},
        "recover": 60,
        "tune": 60,
        "images": 96,
        "steps": 20,
    },
)


def class_conditional(data: Path, scratch: Path, scale: Scale) -> Study:
    """Return the study of CIFAR-20's twenty labelers, whose images carry the names of the four superclasses."""
    file = scratch / "cifar20.npz"
    if not file.exists():
        with np.load(data / CIFAR) as arrays:
            names = arrays["superclass_names"][arrays["superclass_of_class"]]
            own = {key: arrays[key] for key in ("images", "labels", "split")}
            np.savez(file, superclass=names[arrays["labels"]], **own)
    of = scale.dit
    source = {"source": "npz", "path": file.name, "contributor": "labels", "caption": "superclass", "heldout": "split"}
    return _study(
        scratch / "dit.yaml",
        contributions=source | {"resolution": of["resolution"]},
        model={"family": "ddpm", "preset": of["preset"], **FLOW, "conditions": "labels", "train": of["train"]},
        retraining={"method": "sparsified", "parameters": 0.6, "recover_steps": of["recover"], "steps": of["tune"]},
        sampling={"images": of["images"], "steps": of["steps"], "guidance": 2.0},
        properties=["colourfulness", {"name": "heldout_loss", "time_steps": 4}],
    )


def text_to_image(data: Path, scratch: Path, text_encoder: Path, scale: Scale) -> Study:
    """Return the study whose base model is the text-to-image transformer of the ten largest designers of OpenMoji."""
    first, _ = _emoji(data, scratch)
    of = scale.emoji
    model = {"family": "latent", "preset": of["preset"], **FLOW, "conditions": "captions"}
    return _study(
        scratch / "emoji-base.yaml",
        contributions=first | {"resolution": of["resolution"]},
        model=model | _encoders(data, text_encoder) | {"train": of["train"] | {"flip": False}},
        retraining={"method": "fine_tune", "steps": of["tune"]},
        sampling={"images": of["images"], "steps": of["steps"], "guidance": 3.0},
        properties=["colourfulness"],
    )


def adapters(data: Path, scratch: Path, text_encoder: Path, base: Path, scale: Scale) -> Study:
    """Return the study of adapters on that ``base`` for the next forty designers, which it has not seen."""
    _, others = _emoji(data, scratch)
    of = scale.emoji
    model = {"family": "lora", "pretrained": str(base), "rank": of["rank"]} | _encoders(data, text_encoder)
    return _study(
        scratch / "emoji-lora.yaml",
        contributions=others | {"resolution": of["resolution"]},
        model=model | {"train": of["adapt"] | {"flip": False}},
        retraining={"method": "sparsified", "parameters": 0.5, "recover_steps": of["recover"], "steps": of["tune"]},
        sampling={"images": of["images"], "steps": of["steps"], "guidance": 3.0},
        properties=["colourfulness", {"name": "heldout_loss", "time_steps": 4}],
    )


def _encoders(data: Path, text_encoder: Path) -> dict[str, str]:
    return {"autoencoder": str(data / AUTOENCODER), "text_encoder": str(text_encoder)}


def _emoji(data: Path, scratch: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write the emoji of the largest designers and of those after them, and return both as contributions."""
    sources = []
    with np.load(data / EMOJI) as arrays:
        authors, hexcodes = arrays["author"], arrays["hexcode"]
        captions = np.array([caption(*pair) for pair in zip(hexcodes, arrays["group"], strict=True)])
        for name, own in zip(("base", "others"), designers(authors), strict=True):
            folder, rows = scratch / f"emoji-{name}", np.isin(authors, own)
            if not folder.exists():
                write_contributions(folder, arrays["images"][rows], hexcodes[rows], authors[rows], captions[rows])
            sources.append({"source": "imagefolder", "path": folder.name, "contributor": "author", "holdout": 0.1})
    return sources[0], sources[1]


def _study(file: Path, **sections: Any) -> Study:
    text = {"name": file.stem, "results": f"results/{file.stem}", "stop": {"evaluations": 200}, **sections}
    file.write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    return Study.load(file)
