"""Any image model of timm."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from diffcredit.errors import UserError
from diffcredit.features.base import Images, package
from diffcredit.features.torch_features import NetworkExtractor
from diffcredit.features.weights import load_state, read_state
from diffcredit.util.artifacts import fingerprint_arrays

KEY = "features.model"


@dataclass
class TimmVision(NetworkExtractor):
    """The vector that a timm model hands to its classifier, and the logits where it has a classifier.

    Images are resized and cropped as the model's own data config says. ``model`` is a name such as ``resnet50.a1_in1k``
    whose published weights are downloaded once; ``weights`` is a file (safetensors) in their place.
    """

    model: str
    weights: str | None = None

    def load(self, device: str) -> None:
        try:
            timm, data = (package(name, "timm", "timm") for name in ("timm", "timm.data"))
        except RuntimeError as error:  # torchvision, which timm imports, may be built for another torch
            raise UserError(f"features: the package timm cannot be imported ({error})") from error
        if not timm.is_model(self.model):
            raise UserError(f"{KEY}: {self.model!r} is unknown; names that timm.list_models() lists are accepted")
        try:
            with torch.random.fork_rng(devices=[]):  # timm draws weights, which the trained ones replace
                network = timm.create_model(self.model, pretrained=self.weights is None)
        except Exception as error:  # timm, the hub and the network each raise their own
            reason = " ".join(str(error).split())[:300]
            remedy = (
                "" if self.weights else "; name its model.safetensors, downloaded from the hub, with features.weights"
            )
            raise UserError(f"{KEY}: {self.model!r} cannot be made ({reason}){remedy}") from error
        if self.weights is not None:
            file = Path(self.weights).expanduser()
            load_state(network, read_state(file, "features.weights"), file, "features.weights")
        network = network.float().eval().requires_grad_(False)
        self._config = config = _accepted(data.resolve_model_data_config(network), self.model)
        side = "a side" if config["crop_mode"] == "squash" else "shortest side"
        self._use(
            network.to(device),
            device,
            weights=fingerprint_arrays({name: tensor.cpu().numpy() for name, tensor in network.state_dict().items()}),
            architecture=self.model.partition(".")[0],
            resize=f"{_enlarged(config)} px {side}, {config['interpolation']}, antialiased, "
            f"centre crop {config['input_size'][1]} px",
            mean=list(config["mean"]),
            deviation=list(config["std"]),
            layer="what the classifier is given",
        )

    @property
    def dimensions(self) -> int:
        return self._network.head_hidden_size

    @property
    def classes(self) -> int | None:
        return self._network.num_classes or None

    def _forward(self, images: Images) -> tuple[Tensor, Tensor | None]:
        features = self._network.forward_features(torch.tensor(prepared(images, self._config), device=self._device))
        vectors = self._network.forward_head(features, pre_logits=True)
        return vectors, self._network.forward_head(features) if self.classes else None


def prepared(images: Images, config: Mapping[str, Any]) -> NDArray[np.float32]:
    """Resize, crop and normalise images as ``config`` says: (m, h, w, 3) uint8 → (m, 3, size, size).

    Pillow resizes to ⌊size/crop share⌋ pixels, on both sides (``squash``) or on the shorter one; the centre is cropped;
    then (x/255 − mean)/deviation.
    """
    size, enlarged = config["input_size"][1], _enlarged(config)
    height, width = images.shape[1:3]
    target = (enlarged, enlarged)
    if config["crop_mode"] != "squash":  # (width, height), as Pillow has it
        shorter = min(height, width)
        target = (enlarged * width // shorter, enlarged * height // shorter)
    left, top = (round((side - size) / 2) for side in target)
    method = Image.Resampling[config["interpolation"].upper()]
    cut = np.stack([np.asarray(Image.fromarray(image).resize(target, method)) for image in images])
    cut = cut[:, top : top + size, left : left + size].astype(np.float32) / 255
    normalised = (cut - np.float32(config["mean"])) / np.float32(config["std"])
    return np.ascontiguousarray(normalised.transpose(0, 3, 1, 2))


def _enlarged(config: Mapping[str, Any]) -> int:
    return math.floor(config["input_size"][1] / config["crop_pct"])


def _accepted(config: dict[str, Any], model: str) -> dict[str, Any]:
    """Return a model's data config; raise a UserError if :func:`prepared` cannot follow it."""
    channels, height, width = config["input_size"]
    if channels != 3 or height != width or config["crop_mode"] not in ("center", "squash"):
        found = f"{channels} channels of {height} × {width} px, crop mode {config['crop_mode']!r}"
        raise UserError(f"{KEY}: {model!r} takes {found}; accepted: 3 channels, squares, 'center' and 'squash'")
    return config
