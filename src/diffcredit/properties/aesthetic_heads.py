"""The LAION aesthetic predictors: from an image's CLIP embedding to a score."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from diffcredit.errors import UserError
from diffcredit.features.weights import PublishedWeights, read_state

Head = Literal["linear", "mlp"]

LAYERS: dict[Head, tuple[str, ...]] = {
    "linear": ("",),
    "mlp": (
        "layers.0.",
        "layers.2.",
        "layers.4.",
        "layers.6.",
        "layers.7.",
    ),  # dropout between, which scoring ignores
}
"""The prefixes of each head's layers in its file, first to last; ``weight`` (out, in) and ``bias`` (out,) follow."""

PUBLISHED: dict[Head, PublishedWeights] = {
    "linear": PublishedWeights(
        "https://github.com/LAION-AI/aesthetic-predictor/raw/main/sa_0_4_vit_l_14_linear.pth",
        "2cd4e60f4f24ae3bcd57b847b13c1f3ba27edc28cc1a7f9ce74ee9f421243cba",
        "MIT",
    ),
    "mlp": PublishedWeights(
        "https://github.com/christophschuhmann/improved-aesthetic-predictor/raw/main/"
        "sac%2Blogos%2Bava1-l14-linearMSE.pth",
        "21dd590f3ccdc646f0d53120778b296013b096a035a2718c9cb0d511bff0f1e0",
        "Apache-2.0",
    ),
}

BUNDLED = Path(__file__).parent / "laion" / PUBLISHED["linear"].name


def read_head(head: Head, weights: str | None, key: str) -> dict[str, NDArray[np.float32]]:
    """Read the arrays of a head's layers from the file ``weights``, or (None) from the published one.

    The published file is verified by its hash. ``key``, the study file's key for the file, starts every error.
    """
    if weights is not None:
        file = Path(weights)
    elif head == "linear":
        file = BUNDLED
        PUBLISHED[head].verify(file, key)
    else:
        file = PUBLISHED[head].file(key)
    layers = {name: tensor.float().numpy() for name, tensor in read_state(file, key).items()}
    _check_layers(head, layers, f"{key}: {file}")
    return layers


def _check_layers(head: Head, layers: Mapping[str, NDArray[np.float32]], where: str) -> None:
    """Raise a UserError unless the arrays are a chain of affine maps to one number."""
    needed = [f"{prefix}{kind}" for prefix in LAYERS[head] for kind in ("weight", "bias")]
    if set(layers) != set(needed):
        raise UserError(f"{where} holds {', '.join(sorted(layers))}; the {head} head has {', '.join(needed)}")
    widths = None
    for prefix in reversed(LAYERS[head]):
        weight, bias = layers[f"{prefix}weight"].shape, layers[f"{prefix}bias"].shape
        outputs = 1 if widths is None else widths
        if len(weight) != 2 or weight[0] != outputs or bias != (outputs,):
            raise UserError(
                f"{where}: {prefix}weight of shape {weight} and {prefix}bias of shape {bias}; "
                f"({outputs}, …) and ({outputs},) are expected"
            )
        widths = weight[1]


def affine_map(head: Head, layers: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.float64], float]:
    """Return w (d,) and b of the score w·x + b.

    Neither head has activations between its layers, so that W_L (… (W_1 x + b_1) …) + b_L is one affine map.
    """
    first, *others = LAYERS[head]
    weight = layers[f"{first}weight"].astype(np.float64)
    bias = layers[f"{first}bias"].astype(np.float64)
    for prefix in others:
        step = layers[f"{prefix}weight"].astype(np.float64)
        weight, bias = step @ weight, step @ bias + layers[f"{prefix}bias"]
    return weight[0], float(bias[0])
