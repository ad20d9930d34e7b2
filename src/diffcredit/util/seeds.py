"""Seeds derived from names, so that a random number depends neither on the worker nor on the order of work."""

import hashlib
import operator


def derive_seed(*parts: int | str) -> int:
    """Return a 63-bit seed from any sequence of integers and strings, the same on every machine.

    ``derive_seed(study_seed, coalition_bits, replicate)``, for instance, is the seed of an evaluation.
    """
    text = "\x1f".join(_escaped(_typed(part)) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _typed(part: int | str) -> str:
    """Distinguish a number from its digits as text, but not numpy's numbers from Python's."""
    return f"str:{part}" if isinstance(part, str) else f"int:{int(operator.index(part))}"


def _escaped(text: str) -> str:
    """Return ``text`` without the separator, so that no part reads as two: names of files may contain anything."""
    return text.replace("\x1e", "\x1e\x1e").replace("\x1f", "\x1e.")
