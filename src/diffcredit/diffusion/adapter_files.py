"""Adapters that were trained elsewhere: files of diffusers, kohya's sd-scripts, ai-toolkit and others.

Names and layouts differ between trainers. diffusers' own loaders convert them, so that an adapter here is the one that
``load_lora_weights`` loads. What these loaders leave out, such as another component's layers, is refused: credits are
about all that was trained.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from diffcredit.diffusion.adapters import METADATA, WEIGHTS, A, Adapter, B, fitting
from diffcredit.diffusion.pipeline import Pipeline
from diffcredit.diffusion.pretrained import quiet
from diffcredit.errors import UserError

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
OF_TEXTS = re.compile(r"lora_te\d?_|text_encoder|conditioner\.")
# patterns of names of what is no plain low-rank update, and what it is
OTHERS = {
    r"dora_scale|lora_magnitude_vector": "DoRA",
    r"\.lokr_": "LoKr",
    r"\.hada_": "LoHa",
    r"\.oft_": "OFT",
    r"\.lora_mid\.": "LoCon with a Tucker decomposition",
    r"\.diff(_b)?$": "whole weights beside LoRA",
    r"lora_(up|B)\.bias$": "LoRA with biases",
}
PLAIN = (None, True, False, "gaussian", "orthogonal", "eva")  # peft's initialisations that leave the base as it is

Tensors = dict[str, Tensor]


def read_adapter(path: Path, base: Pipeline) -> Adapter:
    """Return the adapter in the file or folder ``path``; one that does not fit the network of ``base`` is refused."""
    file = find_file(path)
    given, metadata = _read(file)
    for name in given:
        _check_name(name, file)
    converted, alphas, folded = _converted(given, base, file)
    component = base.denoiser.component
    start, tensors = f"{component}.", Tensors()
    for name, tensor in converted.items():
        layer = name.removeprefix(start)
        if layer == name:
            raise UserError(
                f"{file}: {name} is not of this pipeline's {component}; an adapter of that alone is accepted"
            )
        if layer.endswith(".alpha") and tensor.numel() == 1:
            alphas[layer.removesuffix(".alpha")] = float(tensor)
        else:
            tensors[layer] = tensor
    layers = fitting(tensors, base, file)
    stated = {key.removeprefix(start): each for key, each in metadata.items() if key.startswith(start)}
    scales = {}
    for layer in layers:
        rank = len(tensors[layer + A])
        alpha = alphas[layer] / rank if layer in alphas else _stated_scale(stated, layer, rank, file)
        scales[layer] = _fold(tensors, layer, alpha, folded.get(layer, (1.0, 1.0)), file)
    return Adapter(tensors, {layer: scale for layer, scale in scales.items() if scale != 1})


def find_file(path: Path) -> Path:
    """Return the safetensors file that ``path`` is, or the one in this folder."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    found = [file for file in files if file.suffix == ".safetensors" and file.is_file()]
    named = [file for file in found if file.name == WEIGHTS]
    if len(chosen := named or found) == 1:
        return chosen[0]
    if not path.exists():
        raise UserError(f"{path}: no such file or folder; an adapter's safetensors file is expected")
    if found:
        raise UserError(f"{path}: has {len(found)} safetensors files, such as {found[0].name}; name one of them")
    if pickled := [file for file in files if file.suffix in PICKLES]:
        raise UserError(f"{pickled[0]}: pickled, which may run code when it is read; save it as safetensors")
    raise UserError(f"{path}: not a safetensors file, and no folder with one; an adapter's is expected")


def _read(file: Path) -> tuple[Tensors, dict[str, Any]]:
    """Return the tensors of a file in float32, and what it says of ranks and scales as diffusers does."""
    try:
        with safe_open(file, "pt") as opened:
            given = {name: opened.get_tensor(name).float() for name in opened.keys()}  # noqa: SIM118 - no mapping
            stated = json.loads((opened.metadata() or {}).get(METADATA) or "{}")
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: not a safetensors file, or a damaged one ({error})") from None
    if not given or not any("lora" in name for name in given):
        first = f", such as {next(iter(given))}" if given else ""
        raise UserError(f"{file}: not an adapter; of its {len(given)} tensors{first}, none has 'lora' in its name")
    if empty := [name for name, each in given.items() if not each.numel()]:
        raise UserError(f"{file}: {empty[0]} has no numbers; an adapter of rank 1 or more is accepted")
    if not isinstance(stated, dict):
        raise UserError(f"{file}: {METADATA} is {type(stated).__name__}; a JSON object is expected")
    return given, stated


def _check_name(name: str, file: Path) -> None:
    """Refuse tensors whose part of the adapter diffusers or a study would leave out."""
    if OF_TEXTS.match(name):
        raise UserError(
            f"{file}: {name} changes a text encoder, which studies keep as it is; an adapter of the denoiser alone is "
            "accepted (for sd-scripts: --network_train_unet_only)"
        )
    for pattern, kind in OTHERS.items():
        if re.search(pattern, name):
            raise UserError(f"{file}: {name} is of {kind}; plain LoRA is accepted")


def _converted(
    given: Tensors, base: Pipeline, file: Path
) -> tuple[Tensors, dict[str, float], dict[str, tuple[float, float]]]:
    """Return the tensors under diffusers' names, the α of layers that have one, and the factors by which the conversion
    multiplied A and B of each layer."""
    import diffusers

    kind = base.index["_class_name"]
    read = getattr(getattr(diffusers, kind, None), "lora_state_dict", None)
    if read is None or not base.denoiser.loads_adapters:
        return given, {}, {}
    # some conversions multiply the factors by α/r; ones, converted likewise, show by how much
    ones = {name: each if each.numel() == 1 else torch.ones(()).expand(each.shape) for name, each in given.items()}
    config = base.network().config
    try:
        with quiet():
            converted, alphas = _by_diffusers(read, given, config)
            factors, _ = _by_diffusers(read, ones, config)
    except Exception as error:  # the conversions raise errors of many kinds
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(f"{file}: {kind} does not read it as an adapter ({reason})") from None
    start = f"{base.denoiser.component}."
    alphas = {name.removeprefix(start).partition(".lora_A")[0].removesuffix(".alpha"): a for name, a in alphas.items()}
    layers = [name.removesuffix(A) for name in factors if name.endswith(A) and name.removesuffix(A) + B in factors]
    folded = {
        layer.removeprefix(start): (factors[layer + A].flatten()[0].item(), factors[layer + B].flatten()[0].item())
        for layer in layers
    }
    return converted, alphas, folded


def _by_diffusers(read: Callable[..., Any], tensors: Tensors, config: Any) -> tuple[Tensors, dict[str, float]]:
    """Return the tensors and the α under the names that diffusers and peft have for them."""
    from diffusers.utils import convert_unet_state_dict_to_peft

    # it takes tensors out of the mapping; loaders without α, or without block numbers to map, ignore these options
    found, *alphas, _ = read(dict(tensors), return_alphas=True, return_lora_metadata=True, unet_config=config)
    given = {name: float(alpha) for each in alphas for name, alpha in (each or {}).items()}
    return convert_unet_state_dict_to_peft(found), convert_unet_state_dict_to_peft(given)


def _stated_scale(stated: Mapping[str, Any], layer: str, rank: int, file: Path) -> float:
    """Return α/r of a layer without an α of its own: as the file's metadata say, else 1."""
    if not stated:
        return 1.0
    from peft.utils.other import get_pattern_key

    if stated.get("use_dora") or stated.get("lora_bias") or stated.get("init_lora_weights") not in PLAIN:
        raise UserError(
            f"{file}: {METADATA} has use_dora, lora_bias or an init_lora_weights that changes the base; plain LoRA is "
            "accepted"
        )
    try:
        ranks, alphas = (stated.get(key) or {} for key in ("rank_pattern", "alpha_pattern"))
        said = ranks.get(get_pattern_key([*ranks], layer), stated["r"])
        alpha = float(alphas.get(get_pattern_key([*alphas], layer), stated["lora_alpha"]))
    except (AttributeError, KeyError, TypeError, ValueError, re.error) as error:
        raise UserError(f"{file}: {METADATA} does not state ranks and scales ({error!r})") from None
    if said != rank:
        raise UserError(f"{file}: {METADATA} says that {layer} has rank {said}; its factors have {rank}")
    return alpha / (math.sqrt(rank) if stated.get("use_rslora") else rank)


def _fold(tensors: Tensors, layer: str, scale: float, folded: tuple[float, float], file: Path) -> float:
    """Multiply B of a layer by its remaining ``scale``, in place, and return the whole s to the nearest power of two.
    What a conversion multiplied A by, to the nearest power of two, moves to B."""
    a, b = tensors[layer + A], tensors[layer + B]
    if not (a.isfinite().all() and b.isfinite().all() and scale > 0 and math.isfinite(scale)):
        raise UserError(f"{file}: {layer} has a scale α/r of {scale:g}, or numbers that are not finite")
    moved = _power_of_two(folded[0])
    tensors[layer + A], tensors[layer + B] = a / moved, b * (scale * moved)
    return _power_of_two(scale) * moved * _power_of_two(folded[1])


def _power_of_two(number: float) -> float:
    return 2.0 ** round(math.log2(number)) if number > 0 else 1.0
