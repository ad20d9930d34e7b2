"""Seeds that follow from names alone, so that a number never depends on who drew it or when."""

import hashlib
import operator


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from any sequence of integers and strings, the same on every machine.

    ``derive_seed(study_seed, coalition_bits, replicate)`` is an evaluation's seed: not the worker's, not the
    batch's, not the order of execution's.
    """
    text = "\x1f".join(_escaped(_typed(part)) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _typed(part: int | str) -> str:
    """A number and its digits as text differ; a number is the same whatever its width, numpy's and Python's."""
    return f"str:{part}" if isinstance(part, str) else f"int:{int(operator.index(part))}"


def _escaped(text: str) -> str:
    """``text`` without the separator, so that no part reads as two: names of files may contain anything."""
    return text.replace("\x1e", "\x1e\x1e").replace("\x1f", "\x1e.")
