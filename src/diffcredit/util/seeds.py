"""Seeds derived from names, so that a random number depends neither on the worker nor on the order of work."""

import hashlib
import operator


def derive_seed(*parts: int | str) -> int:
    """Return a 63-bit seed from any sequence of integers and strings, the same on every machine. That of an evaluation
    is ``derive_seed(study_seed, coalition_bits, replicate)``."""
    # a number is not its digits as text, but numpy's numbers are Python's
    typed = (f"str:{part}" if isinstance(part, str) else f"int:{int(operator.index(part))}" for part in parts)
    # without the separator in it, no part reads as two: names of files may contain anything
    text = "\x1f".join(part.replace("\x1e", "\x1e\x1e").replace("\x1f", "\x1e.") for part in typed)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
