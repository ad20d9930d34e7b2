"""Seeds that follow from names alone, so that a number never depends on who drew it or when."""

import hashlib


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from any sequence of integers and strings, the same on every machine.

    ``derive_seed(study_seed, coalition_bits, replicate)`` is an evaluation's seed: not the worker's, not the
    batch's, not the order of execution's.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
