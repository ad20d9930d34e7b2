"""What extractors share that are networks of torch: running them in full precision, and reading the checkpoints of
Hugging Face's transformers.

Checkpoints come from strangers: weights are read from safetensors alone, and no code of theirs is run.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from diffcredit.diffusion.pretrained import loading, quiet, read_json
from diffcredit.errors import UserError, located
from diffcredit.features.base import Images, Precision
from diffcredit.features.weights import file_hash
from diffcredit.util.artifacts import canonical_json, fingerprint

KEY = "features.model"
# Of a model on the hub: descriptions, tokenizers and safe weights, not the same weights again in other forms.
DOWNLOADED = ("*.json", "*.txt", "model.safetensors", "model-*.safetensors")
DESCRIPTIONS = ("config.json", "preprocessor_config.json", "processor_config.json")
# Of a description: who wrote it, which fixes no number.
WRITERS = ("_name_or_path", "_commit_hash", "transformers_version")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@contextmanager
def inference(precision: Precision = "float32", device: str = "cpu") -> Generator[None]:
    """Inference that is the same each time; in float32, where on CUDA convolutions would else round their inputs to
    TF32, or with products in bf16 on ``device``."""
    cudnn = torch.backends.cudnn
    flags = cudnn.flags(enabled=cudnn.enabled, benchmark=False, deterministic=True, allow_tf32=False)
    rounding = torch.autocast(torch.device(device).type, torch.bfloat16, enabled=precision == "bf16")
    with torch.inference_mode(), flags, rounding:
        yield


def noted(precision: Precision) -> dict[str, str]:
    """What an extractor's identity says of it: nothing of float32, which goes without saying."""
    return {} if precision == "float32" else {"precision": precision}


def as_array(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.float().cpu().numpy()


def transformers_package(extractor: str) -> Any:
    """The package transformers, which ``extractor`` needs."""
    try:
        import transformers
    except ImportError:
        raise UserError(
            f"features: {extractor} needs the package transformers; pip install 'diffcredit[vision]'"
        ) from None
    return transformers


@dataclass(frozen=True)
class Checkpoint:
    """A model of transformers in ``folder``: its config.json, weights, and image processor."""

    folder: Path

    @classmethod
    def find(cls, reference: str, model_type: str | None = None) -> "Checkpoint":
        """In a folder or on the hub, whence it is downloaded once; of one ``model_type`` (None: of any)."""
        checkpoint = cls(_folder_of(reference))
        found = checkpoint.config.get("model_type")
        if model_type is not None and found != model_type:
            file = checkpoint.folder / "config.json"
            raise UserError(f"{KEY}: {file}: model_type {found!r}; accepted: {model_type!r}")
        return checkpoint

    @property
    def config(self) -> dict[str, Any]:
        file = self.folder / "config.json"
        if not file.is_file():
            raise UserError(f"{KEY}: {self.folder}: no config.json; a folder of transformers' save_pretrained has it")
        with located(KEY):
            return read_json(file)

    def weights(self) -> list[Path]:
        """The files that are read: one, or its shards; refuses a folder without."""
        one = self.folder / "model.safetensors"
        files = [one] if one.is_file() else sorted(self.folder.glob("model-*.safetensors"))
        if not files:
            raise UserError(f"{KEY}: {self.folder}: no model.safetensors; other forms of weights are not accepted")
        return files

    def identity(self) -> dict[str, Any]:
        """The hash of the weights' files, and that of what the model and its image processor are told."""
        hashes = [file_hash(file, KEY) for file in self.weights()]
        told = {name: self._description(name) for name in DESCRIPTIONS if (self.folder / name).is_file()}
        return {"weights": hashes[0] if len(hashes) == 1 else fingerprint(hashes), "settings": fingerprint(told)}

    def _description(self, name: str) -> dict[str, Any]:
        with located(KEY):
            return {key: value for key, value in read_json(self.folder / name).items() if key not in WRITERS}

    def load(self, kind: Any, may_lack: str | None = None) -> tuple[Any, bool]:
        """The network by transformers' class ``kind``, on the CPU in float32, frozen; and whether it is whole: weights
        whose names start with ``may_lack`` may be missing, and are then random."""
        self.weights()
        random_numbers = torch.random.fork_rng(devices=[])  # what is missing is drawn
        with located(KEY), loading(kind, self.folder), quiet(), random_numbers:
            network, report = kind.from_pretrained(
                self.folder,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
        missing = sorted(report["missing_keys"])
        if lacking := [name for name in missing if may_lack is None or not name.startswith(may_lack)]:
            raise UserError(
                f"{KEY}: {self.folder}: the weights lack {len(lacking)} tensors of {type(network).__name__}, such as "
                f"{lacking[0]!r}"
            )
        return network.float().eval().requires_grad_(False), not missing

    def image_processor(self) -> "ImageProcessor":
        from transformers import AutoImageProcessor

        with located(KEY), loading(AutoImageProcessor, self.folder), quiet():
            return ImageProcessor(
                AutoImageProcessor.from_pretrained(
                    self.folder,
                    local_files_only=True,
                    trust_remote_code=False,
                    # Pillow resizes, whether or not torchvision, which rounds otherwise, is installed; transformers 4
                    # knows only the second of these words
                    backend="pil",
                    use_fast=False,
                )
            )


@dataclass(frozen=True)
class ImageProcessor:
    """A checkpoint's own way from images to what its network is given."""

    processor: Any

    def __call__(self, images: Images, device: str) -> Tensor:
        """(m, h, w, 3) uint8 → (m, 3, height, width) float32."""
        # told, since an image 3 pixels high would else pass for one with its channels first
        given = self.processor(images=list(images), return_tensors="pt", input_data_format="channels_last")
        return given["pixel_values"].to(device, torch.float32)

    def described(self) -> str:
        """Such as ``224 px shortest side, bicubic, antialiased, centre crop 224 × 224``."""
        told = self.processor.to_dict()
        parts = []
        if told.get("do_resize"):
            method = Image.Resampling(told.get("resample", Image.Resampling.BILINEAR)).name.lower()
            parts += [_size(told["size"]), method, "not antialiased" if method == "nearest" else "antialiased"]
            if told.get("crop_pct") is not None:
                parts += [f"centre crop of {told['crop_pct']:g}"]
        if told.get("do_center_crop"):
            parts += [f"centre crop {_size(told['crop_size']).removesuffix(' px')}"]
        return ", ".join(parts) or "none"


def _size(size: Any) -> str:
    match size:
        case {"height": int(height), "width": int(width)}:
            return f"{height} × {width} px"
        case {"shortest_edge": int(edge)}:
            return f"{edge} px shortest side"
    return canonical_json(size)


def _folder_of(reference: str) -> Path:
    """The folder that ``reference`` names: a path, or a model on the hub, which is downloaded once."""
    with suppress(OSError):  # of a name that no folder can have
        if Path(reference).expanduser().is_dir():
            return Path(reference).expanduser().resolve()
    if not _HUB_ID.fullmatch(reference):
        raise UserError(
            f"{KEY}: {reference!r} is no folder, and no hub id such as 'openai/clip-vit-large-patch14'; one of both is "
            "accepted"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        with quiet():
            return Path(snapshot_download(reference, allow_patterns=list(DOWNLOADED)))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"{KEY}: {reference!r} is no folder, and the hub does not give it ({reason}); where the hub can be "
            f"reached, run 'hf download {reference} --local-dir FOLDER', and say {KEY}: FOLDER"
        ) from None
