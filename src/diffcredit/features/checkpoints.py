"""Checkpoints of Hugging Face's transformers, in a folder or on the hub.

They come from strangers: weights are read from safetensors alone, and no code of theirs is run.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from diffcredit.diffusion.pretrained import loading, quiet, read_json
from diffcredit.errors import UserError, located
from diffcredit.features.weights import file_hash
from diffcredit.util.artifacts import canonical_json, fingerprint

KEY = "features.model"
SAFE = {"local_files_only": True, "trust_remote_code": False}
# files to download from the hub: descriptions, tokenizers and safe weights, not the weights in other formats
DOWNLOADED = ("*.json", "*.txt", "model.safetensors", "model-*.safetensors")
DESCRIPTIONS = ("config.json", "preprocessor_config.json", "processor_config.json")
WRITERS = ("_name_or_path", "_commit_hash", "transformers_version")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Checkpoint:
    """A model of transformers in ``folder``: its config.json, weights, and image processor."""

    folder: Path

    def identity(self) -> dict[str, Any]:
        """Return the hash of the weights, and of the settings of the model and its image processor."""
        hashes = [file_hash(file, KEY) for file in self._weights()]
        settings = {name: self.description(name) for name in DESCRIPTIONS if (self.folder / name).is_file()}
        return {"weights": hashes[0] if len(hashes) == 1 else fingerprint(hashes), "settings": fingerprint(settings)}

    def load(self, kind: Any, optional: str | None = None) -> tuple[Any, bool]:
        """Load the network by transformers' class ``kind``, in float32; say if it has the ``optional`` weights too."""
        self._weights()
        found, wanted = self.description("config.json").get("model_type"), getattr(kind, "config_class", None)
        if wanted is not None and found != wanted.model_type:  # transformers would make a network of random weights
            raise UserError(f"{KEY}: {self.folder}: model_type {found!r}; accepted: {wanted.model_type!r}")
        random_numbers = torch.random.fork_rng(devices=[])  # missing weights are drawn
        with located(KEY), loading(kind, self.folder), quiet(), random_numbers:
            network, report = kind.from_pretrained(self.folder, **SAFE, use_safetensors=True, output_loading_info=True)
        missing = sorted(report["missing_keys"])
        if needed := [name for name in missing if optional is None or not name.startswith(optional)]:
            missed = f"{len(needed)} tensors of {type(network).__name__} are missing, such as {needed[0]!r}"
            raise UserError(f"{KEY}: {self.folder}: {missed}")
        return network.float().eval().requires_grad_(False), not missing

    def image_processor(self) -> Any:
        """Load its own preprocessing of images."""
        from transformers import AutoImageProcessor

        # Pillow resizes even if torchvision is installed, which rounds differently; transformers 4 knows only use_fast
        with located(KEY), loading(AutoImageProcessor, self.folder), quiet():
            return AutoImageProcessor.from_pretrained(self.folder, **SAFE, backend="pil", use_fast=False)

    def description(self, name: str) -> dict[str, Any]:
        """Return what a JSON file of the folder says, but for keys that change no number."""
        with located(KEY):
            return {key: value for key, value in read_json(self.folder / name).items() if key not in WRITERS}

    def _weights(self) -> list[Path]:
        """Return the files of weights: one, or its shards."""
        one = self.folder / "model.safetensors"
        files = [one] if one.is_file() else sorted(self.folder.glob("model-*.safetensors"))
        if not files:
            raise UserError(f"{KEY}: {self.folder}: no model.safetensors; other forms of weights are not accepted")
        return files


def resizing(processor: Any) -> str:
    """Describe an image processor, such as ``224 px shortest side, bicubic, antialiased, centre crop 224 × 224``."""
    config, parts = processor.to_dict(), []
    if config.get("do_resize"):
        method = Image.Resampling(config.get("resample", Image.Resampling.BILINEAR)).name.lower()
        parts += [_size(config["size"]), method, "not antialiased" if method == "nearest" else "antialiased"]
        if config.get("crop_pct") is not None:
            parts += [f"centre crop of {config['crop_pct']:g}"]
    if config.get("do_center_crop"):
        parts += [f"centre crop {_size(config['crop_size']).removesuffix(' px')}"]
    return ", ".join(parts) or "none"


def _size(size: Any) -> str:
    match size:
        case {"height": int(height), "width": int(width)}:
            return f"{height} × {width} px"
        case {"shortest_edge": int(edge)}:
            return f"{edge} px shortest side"
    return canonical_json(size)


def find_folder(reference: str) -> Path:
    """Return the folder that ``reference`` names: a path, or a model on the hub, which is downloaded once."""
    with suppress(OSError):  # a name that no folder can have
        if Path(reference).expanduser().is_dir():
            return Path(reference).expanduser().resolve()
    if not _HUB_ID.fullmatch(reference):
        raise UserError(f"{KEY}: {reference!r} is no folder, and no hub id such as 'user/name'; either is accepted")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        with quiet():
            return Path(snapshot_download(reference, allow_patterns=list(DOWNLOADED)))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"{KEY}: {reference!r} is no folder, and cannot be downloaded from the hub ({reason}); where the hub "
            f"can be reached, run 'hf download {reference} --local-dir FOLDER', and say {KEY}: FOLDER"
        ) from None
