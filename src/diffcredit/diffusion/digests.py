"""Fingerprints of tensors."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def tensors_fingerprint(tensors: Mapping[str, Tensor], description: str = "") -> str:
    """Return the SHA-256 of a ``description`` and of ``tensors`` by name."""
    digest = hashlib.sha256(description.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}\x1f{tuple(tensor.shape)}\x1f".encode())
        bits = tensor.detach().cpu().contiguous()
        if bits.dtype == torch.bfloat16:  # numpy has no such numbers
            bits = bits.view(torch.int16)
        digest.update(bits.numpy().tobytes())
    return digest.hexdigest()
