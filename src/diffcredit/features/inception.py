"""Inception-v3, the network that FID, KID and the Inception Score were defined with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor, nn

from diffcredit.errors import UserError
from diffcredit.features.base import Images
from diffcredit.features.resizing import resized, tensorflow_bilinear
from diffcredit.features.torch_features import NetworkExtractor
from diffcredit.features.weights import PublishedWeights, file_hash, load_state, read_state

Variant = Literal["fid", "torchvision"]

PUBLISHED = {
    "fid": PublishedWeights(
        "https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/pt_inception-2015-12-05-6726825d.pth",
        "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2",
        "Apache-2.0",
    ),
    "torchvision": PublishedWeights(
        "https://download.pytorch.org/models/inception_v3_google-0cc3c7bd.pth", "0cc3c7bd", "BSD-3-Clause"
    ),
}
KEY = "features.weights"
SIZE = 299  # pixels a side
CLASSES: dict[Variant, int] = {"fid": 1008, "torchvision": 1000}
AUXILIARY = "AuxLogits."  # torchvision's second classifier, which only training needs


@dataclass(kw_only=True)
class InceptionV3(NetworkExtractor):
    """The 2048 numbers of the last pooling, and logits.

    ``fid`` is the network of the original FID and Inception Score (TensorFlow, December 2015) with its resizing; use it
    to compare with published numbers. ``torchvision`` is torchvision's ImageNet classifier, on whole images resized to
    299 pixels a side. ``weights`` is a file in place of the published one; ``published: false``: it has others.
    """

    variant: Variant = "fid"
    weights: str | None = None
    published: bool = True
    batch_size: Annotated[int, Ge(1)] = 64

    dimensions = 2048

    def __post_init__(self) -> None:
        if self.weights is None and not self.published:
            raise UserError(f"features.published: false, and no file of weights is named; name one with {KEY}")

    @property
    def classes(self) -> int:
        return CLASSES[self.variant]

    def load(self, device: str) -> None:
        file = self._file()
        state = {name: tensor for name, tensor in read_state(file, KEY).items() if not name.startswith(AUXILIARY)}
        with torch.device("meta"):  # the weights come from the file
            network = InceptionNetwork(self.variant)
        load_state(network, state, file, KEY)
        fid = self.variant == "fid"
        self._use(
            network.eval().requires_grad_(False).to(device, torch.float32),
            device,
            weights=file_hash(file, KEY),
            variant=self.variant,
            resize=f"{SIZE} px, bilinear, {'as TensorFlow 1: not antialiased' if fid else 'antialiased'}, no crop",
            layer="last average pooling",
            logits="without bias" if fid else "with bias",
        )

    def _forward(self, images: Images) -> tuple[Tensor, Tensor]:
        if self.variant == "fid":
            pixels = torch.tensor(images, device=self._device).permute(0, 3, 1, 2).float()
            given = (tensorflow_bilinear(pixels, SIZE) - 128) / 128
        else:  # what torchvision's normalisation and its network's transform_input amount to
            given = resized(images, SIZE, "bilinear", self._device) / 127.5 - 1
        return self._network(given.contiguous(memory_format=torch.channels_last))  # faster on a CPU

    def _file(self) -> Path:
        published = PUBLISHED[self.variant]
        if self.weights is None:
            return published.file(KEY)
        file = Path(self.weights).expanduser()
        if self.published:
            published.verify(file, KEY, " or, where it is meant to hold others, say features.published: false")
        return file


Kernel = tuple[int, int]
Link = tuple[int, tuple[Kernel, ...]]
"""A link of a branch: its output channels, and its kernel; or two kernels, whose outputs are put side by side."""
Branches = dict[str, tuple[Link, ...]]
"""The branches of a block by name, in the order of their outputs. ``branch_pool`` starts with a pooling of the input.
A block without it halves the image: its branches end with stride 2, and the pooled input is its last output."""

ONE, THREE, FIVE = ((1, 1),), ((3, 3),), ((5, 5),)
ROW, COLUMN = ((1, 7),), ((7, 1),)
FORK = ((1, 3), (3, 1))
POOL = "branch_pool"


def _at_35_px(pooled: int) -> Branches:
    return {
        "branch1x1": ((64, ONE),),
        "branch5x5": ((48, ONE), (64, FIVE)),
        "branch3x3dbl": ((64, ONE), (96, THREE), (96, THREE)),
        POOL: ((pooled, ONE),),
    }


def _at_17_px(inner: int) -> Branches:
    return {
        "branch1x1": ((192, ONE),),
        "branch7x7": ((inner, ONE), (inner, ROW), (192, COLUMN)),
        "branch7x7dbl": ((inner, ONE), (inner, COLUMN), (inner, ROW), (inner, COLUMN), (192, ROW)),
        POOL: ((192, ONE),),
    }


_AT_8_PX: Branches = {
    "branch1x1": ((320, ONE),),
    "branch3x3": ((384, ONE), (384, FORK)),
    "branch3x3dbl": ((448, ONE), (384, THREE), (384, FORK)),
    POOL: ((192, ONE),),
}

BLOCKS: dict[str, Branches] = {
    "Mixed_5b": _at_35_px(32),
    "Mixed_5c": _at_35_px(64),
    "Mixed_5d": _at_35_px(64),
    "Mixed_6a": {"branch3x3": ((384, THREE),), "branch3x3dbl": ((64, ONE), (96, THREE), (96, THREE))},
    "Mixed_6b": _at_17_px(128),
    "Mixed_6c": _at_17_px(160),
    "Mixed_6d": _at_17_px(160),
    "Mixed_6e": _at_17_px(192),
    "Mixed_7a": {
        "branch3x3": ((192, ONE), (320, THREE)),
        "branch7x7x3": ((192, ONE), (192, ROW), (192, COLUMN), (192, THREE)),
    },
    "Mixed_7b": _AT_8_PX,
    "Mixed_7c": _AT_8_PX,
}


class InceptionNetwork(nn.Module):
    """Images (m, 3, 299, 299) on the scale −1 to 1 → the pooled features (m, 2048) and the logits (m, classes).

    ``fid`` differs from ``torchvision`` in its classes (1008, of which 1000 have a meaning), in averages without the
    padding, in a maximum where the last block should average, and in its logits, which are without bias.
    """

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self.variant = variant
        self.Conv2d_1a_3x3 = Convolution(3, 32, (3, 3), stride=2, padded=False)
        self.Conv2d_2a_3x3 = Convolution(32, 32, (3, 3), padded=False)
        self.Conv2d_2b_3x3 = Convolution(32, 64, (3, 3))
        self.Conv2d_3b_1x1 = Convolution(64, 80, (1, 1))
        self.Conv2d_4a_3x3 = Convolution(80, 192, (3, 3), padded=False)
        channels = 192
        for name, branches in BLOCKS.items():
            pooling: nn.Module = nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=variant == "torchvision")
            if POOL not in branches:
                pooling = nn.MaxPool2d(3, stride=2)
            elif (variant, name) == ("fid", "Mixed_7c"):
                pooling = nn.MaxPool2d(3, stride=1, padding=1)
            block = Block(channels, branches, pooling)
            self.add_module(name, block)
            channels = block.channels
        self.fc = nn.Linear(channels, CLASSES[variant])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = F.max_pool2d(x, 3, stride=2)
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x))
        x = F.max_pool2d(x, 3, stride=2)
        for name in BLOCKS:
            x = self.get_submodule(name)(x)
        pooled = x.float().mean(dim=(2, 3))
        return pooled, F.linear(pooled, self.fc.weight, None if self.variant == "fid" else self.fc.bias)


class Block(nn.Module):
    """Branches side by side: (m, inputs, h, w) → (m, channels, h, w), or about half of h and w."""

    def __init__(self, inputs: int, branches: Branches, pooling: nn.Module) -> None:
        super().__init__()
        self.pooling = pooling
        self.halves = POOL not in branches
        self.channels = inputs if self.halves else 0
        self.paths: dict[str, list[list[str]]] = {}  # names of the convolutions, by branch and link
        for branch, links in branches.items():
            channels, path = inputs, []
            for number, (outputs, kernels) in enumerate(links, start=1):
                halves = self.halves and number == len(links)
                link = branch if len(links) == 1 else f"{branch}_{number}"
                names = [link] if len(kernels) == 1 else [f"{link}a", f"{link}b"]
                for name, kernel in zip(names, kernels, strict=True):
                    self.add_module(name, Convolution(channels, outputs, kernel, 2 if halves else 1, not halves))
                channels = outputs * len(names)
                path.append(names)
            self.channels += channels
            self.paths[branch] = path

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.pooling(x)
        outputs = []
        for branch, path in self.paths.items():
            y = pooled if branch == POOL else x
            for names in path:
                y = torch.cat([self.get_submodule(name)(y) for name in names], dim=1)
            outputs.append(y)
        return torch.cat([*outputs, pooled] if self.halves else outputs, dim=1)


class Convolution(nn.Module):
    """A convolution without bias, batch normalisation and ReLU; ``padded`` so that stride 1 keeps the size."""

    def __init__(self, inputs: int, outputs: int, kernel: Kernel, stride: int = 1, padded: bool = True) -> None:
        super().__init__()
        padding = (kernel[0] // 2, kernel[1] // 2) if padded else 0
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)), inplace=True)
