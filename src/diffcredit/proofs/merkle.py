"""Merkle trees in the form of RFC 6962, section 2.1, with SHA-256: one hash, the *root*, of any number of leaves.

A leaf proves that it is in the tree by its *path*: the hashes of the nodes beside its way to the root. It needs no
other leaf for that. Hashes of leaves begin with a byte 0 and those of nodes with a byte 1, so that neither can pass for
the other.

>>> root, paths = tree([leaf_hash(name) for name in (b"ada", b"ben", b"cy")])
>>> root_of(leaf_hash(b"ben"), 1, 3, paths[1]) == root
True
"""

import hashlib
from collections.abc import Sequence


def leaf_hash(content: bytes) -> bytes:
    """Return the hash of a leaf."""
    return hashlib.sha256(b"\0" + content).digest()


def _node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def tree(leaves: Sequence[bytes]) -> tuple[bytes, list[list[bytes]]]:
    """Return the root of leaves' hashes, of which there must be one at least, and the path of each from leaf to
    root."""
    if not leaves:
        raise ValueError("a tree has at least one leaf")
    if len(leaves) == 1:
        return leaves[0], [[]]
    half = 1 << (len(leaves) - 1).bit_length() - 1  # the largest power of two below the number of leaves
    (left, below), (right, beside) = tree(leaves[:half]), tree(leaves[half:])
    return _node_hash(left, right), [[*path, right] for path in below] + [[*path, left] for path in beside]


def root_of(leaf: bytes, index: int, count: int, path: Sequence[bytes]) -> bytes:
    """Return the root that follows from the hash of the leaf ``index`` (from 0) of ``count`` and its path. Raise a
    ValueError where no tree has such a path."""
    if not 0 <= index < count:
        raise ValueError(f"there is no leaf {index} among {count}")
    found, place, last = leaf, index, count - 1
    for beside in path:
        if last == 0:
            raise ValueError(f"a path of {len(path)} hashes is too long for {count} leaves")
        while place == last and not place % 2:  # a node without another beside it is that of the level above
            place, last = place // 2, last // 2
        found = _node_hash(beside, found) if place % 2 else _node_hash(found, beside)
        place, last = place // 2, last // 2
    if last:
        raise ValueError(f"a path of {len(path)} hashes is too short for {count} leaves")
    return found
