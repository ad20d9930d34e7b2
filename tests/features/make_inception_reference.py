"""Writes inception_reference.json: what pytorch-fid 0.3.0, torch-fidelity 0.4.0 and torchvision themselves compute.

Run with those packages installed, in an environment of their own: ``python make_inception_reference.py``.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from inception_reference import RESIZES, SIZES, images, seeded_state, summary
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

# torchvision asks for its compiled operators when it is imported, and none of them is used here
_OPERATORS = torch.library.Library("torchvision", "DEF")
for _operator in ("nms", "qnms"):
    _OPERATORS.define(f"{_operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import pytorch_fid.inception  # noqa: E402
import torchvision  # noqa: E402
from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3  # noqa: E402
from torch_fidelity.interpolate_compat_tensorflow import interpolate_bilinear_2d_like_tensorflow1x  # noqa: E402
from torchvision import transforms  # noqa: E402

FILE = Path(__file__).with_name("inception_reference.json")


def shapes_of(state: dict[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in state.items()}


def tensors(shapes: dict[str, list[int]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.asarray(array)) for name, array in seeded_state(shapes).items()}


def layers_of(network: nn.Module, run: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """What ``run`` returns, and a summary of what each top-level layer with weights gave meanwhile."""
    seen: dict[str, Any] = {}

    def keep(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda module, inputs, output: seen.__setitem__(name, summary(output.numpy()))

    named = [(name, child) for name, child in network.named_children() if name.startswith(("Conv2d", "Mixed"))]
    hooks = [child.register_forward_hook(keep(name)) for name, child in named]
    result = run()
    for hook in hooks:
        hook.remove()
    return result, seen


def channels_first(stack: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(stack).permute(0, 3, 1, 2).contiguous()


def from_torch_fidelity() -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Its whole extractor, resizing included."""
    wanted = ["2048", "logits_unbiased"]  # what it takes FID and the Inception Score from
    with torch.device("meta"):
        torchvision_shapes = torchvision.models.inception_v3(num_classes=1008, aux_logits=False, init_weights=False)
    state = tensors(shapes_of(torchvision_shapes.state_dict()))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "weights.pth"
        torch.save(state, file)
        network = FeatureExtractorInceptionV3("reference", wanted, feature_extractor_weights_path=str(file))
    reference: dict[str, Any] = {
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "shapes": shapes_of(network.state_dict()),
        "images": {},
    }
    for name, (count, size) in SIZES.items():
        stack = channels_first(images(name, count, size, size))
        (pooled, logits), layers = layers_of(network, lambda stack=stack: network(stack))
        reference["images"][name] = {
            "layers": layers,
            "vectors": summary(pooled.numpy(), 64),
            "logits": summary(logits.numpy(), 64),
        }
    return reference, state


def from_pytorch_fid(state: dict[str, Tensor]) -> dict[str, Any]:
    """Its pooled features of an image that has the right size: it resizes and scales otherwise than TensorFlow."""
    pytorch_fid.inception.load_state_dict_from_url = lambda url, progress: state
    network = pytorch_fid.inception.InceptionV3(resize_input=False, normalize_input=False).eval()
    name = "one of 299 px"
    (pooled,) = network((channels_first(images(name, *SIZES[name], 299)).float() - 128) / 128)
    return {name: summary(pooled.squeeze(3).squeeze(2).numpy(), 64)}


def from_torchvision() -> dict[str, Any]:
    """Its classifier as pretrained weights are used with it, on images resized to 299 pixels by its own transforms."""
    network = torchvision.models.inception_v3(transform_input=True, init_weights=False).eval()
    shapes = shapes_of(network.state_dict())
    network.load_state_dict(tensors(shapes))
    preset = torchvision.models.Inception_V3_Weights.IMAGENET1K_V1.transforms()
    prepare = transforms.Compose(
        [
            transforms.Resize((299, 299), transforms.InterpolationMode.BILINEAR),
            transforms.ToTensor(),
            transforms.Normalize(preset.mean, preset.std),
        ]
    )
    used = [parameter.numel() for name, parameter in network.named_parameters() if not name.startswith("AuxLogits.")]
    reference: dict[str, Any] = {"parameters": sum(used), "shapes": shapes, "images": {}}
    pooled: list[Tensor] = []
    network.avgpool.register_forward_hook(lambda module, inputs, output: pooled.append(output.flatten(1)))
    for name, (count, size) in SIZES.items():
        stack = torch.stack([prepare(Image.fromarray(image)) for image in images(name, count, size, size)])
        logits, layers = layers_of(network, lambda stack=stack: network(stack))
        reference["images"][name] = {
            "layers": layers,
            "vectors": summary(pooled.pop().numpy(), 64),
            "logits": summary(logits.numpy(), 64),
        }
    return reference


def resized_by_torch_fidelity() -> dict[str, Any]:
    resized = {}
    for name, (height, width, size) in RESIZES.items():
        stack = channels_first(images(name, 1, height, width)).float()
        output = interpolate_bilinear_2d_like_tensorflow1x(stack, (size, size), align_corners=False)
        resized[name] = summary(output.numpy(), 192)
    return resized


@torch.no_grad()
def main() -> None:
    fid, state = from_torch_fidelity()
    reference = {
        "versions": {
            name: version(name) for name in ("torch", "torch-fidelity", "pytorch-fid", "torchvision", "pillow")
        },
        "fid": fid,
        "pytorch-fid": from_pytorch_fid(state),
        "torchvision": from_torchvision(),
        "resized": resized_by_torch_fidelity(),
    }
    FILE.write_text(json.dumps(reference, separators=(",", ":")) + "\n", encoding="utf-8")
    sys.stdout.write(f"{FILE.name}: {FILE.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
