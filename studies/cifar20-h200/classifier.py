"""A classifier of CIFAR-20's classes, through which the study's properties see images.

``train_classifier.py`` trains it on the training split; its weights lie beside this file.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from diffcredit.errors import UserError
from diffcredit.features import Features, Images
from diffcredit.features.torch_features import as_array, inference
from diffcredit.features.weights import file_hash

WEIGHTS = Path(__file__).with_name("classifier.safetensors")
CLASSES, WIDTH = 20, 32
MEAN, SCALE = (0.5, 0.5, 0.5), 0.25  # of pixels from 0 to 1


class Block(nn.Module):
    """Two convolutions and what they are added to."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.first_norm, self.second_norm = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.shortcut = nn.Conv2d(into, out, 1, stride, bias=False) if (into, stride) != (out, 1) else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.second_norm(self.second(F.relu(self.first_norm(self.first(x)))))
        return F.relu(self.shortcut(x) + y)


class Network(nn.Module):
    """A residual network for 32 px: images (m, 3, h, w) from 0 to 1 → vectors (m, 256) and logits (m, 20)."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [WIDTH, WIDTH, 2 * WIDTH, 4 * WIDTH, 8 * WIDTH]
        self.stem = nn.Conv2d(3, WIDTH, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTH)
        self.stages = nn.Sequential(
            *(
                Block(before if place == 0 else size, size, 2 if place == 0 and size > WIDTH else 1)
                for before, size in pairwise(sizes)
                for place in range(2)
            )
        )
        self.head = nn.Linear(sizes[-1], CLASSES)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = (images - torch.tensor(MEAN, device=images.device)[:, None, None]) / SCALE
        x = self.stages(F.relu(self.norm(self.stem(x)))).mean(dim=(2, 3))
        return x, self.head(x)


@dataclass
class Cifar20Classifier:
    """The 256 numbers of the last pooling, and the logits of the 20 classes."""

    batch_size: Annotated[int, Ge(1)] = 1024

    label: ClassVar[str] = "CIFAR-20 ResNet"
    dimensions: ClassVar[int] = 8 * WIDTH
    classes: ClassVar[int] = CLASSES

    def load(self, device: str) -> None:
        if not WEIGHTS.is_file():
            raise UserError(f"features: {WEIGHTS} is missing; train_classifier.py beside it makes it")
        self._device = device
        self._network = Network().eval().requires_grad_(False)
        self._network.load_state_dict({name: weight.float() for name, weight in load_file(WEIGHTS).items()})
        self._network.to(device, memory_format=torch.channels_last)

    def identity(self) -> dict[str, Any]:
        return {"weights": file_hash(WEIGHTS, "features"), "resize": "none", "layer": "last average pooling"}

    def extract(self, images: Images) -> Features:
        with inference():
            pixels = torch.from_numpy(np.ascontiguousarray(images)).to(self._device).permute(0, 3, 1, 2).float() / 255
            vectors, logits = self._network(pixels)
        return Features(as_array(vectors), as_array(logits))
