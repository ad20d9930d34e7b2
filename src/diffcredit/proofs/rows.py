"""The hash of a ledger's row. It follows from the hash of the row before it and the row's content:

    hash_k = SHA-256(hash_{k−1} ‖ canonical JSON of row k's kind and content),   hash_0 the empty text

This definition must never change.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from diffcredit.util.artifacts import canonical_json


def next_hash(previous: str, kind: str, content: Mapping[str, Any]) -> str:
    """Return the hash of a row that follows one with the hash ``previous``."""
    return hash_of_text(previous, text_of(kind, content))


def text_of(kind: str, content: Mapping[str, Any]) -> str:
    """Return the canonical JSON of a row."""
    return canonical_json({"kind": kind, "row": content})


def hash_of_text(previous: str, text: str) -> str:
    """Return the hash of a row by its canonical JSON."""
    return hashlib.sha256((previous + text).encode()).hexdigest()
