"""Merkle trees against the definition in RFC 6962, written down once more, and against its reference vectors."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffcredit.proofs.merkle import leaf_hash, root_of, tree

# the leaves and roots that Certificate Transparency's implementations are tested with
LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def mth(data: list[bytes]) -> bytes:
    """RFC 6962, 2.1: the Merkle tree hash."""
    if len(data) == 1:
        return sha256(b"\x00", data[0])
    k = max(1 << power for power in range(20) if 1 << power < len(data))
    return sha256(b"\x01", mth(data[:k]), mth(data[k:]))


def path(m: int, data: list[bytes]) -> list[bytes]:
    """RFC 6962, 2.1.1: the Merkle audit path."""
    if len(data) == 1:
        return []
    k = max(1 << power for power in range(20) if 1 << power < len(data))
    return [*path(m, data[:k]), mth(data[k:])] if m < k else [*path(m - k, data[k:]), mth(data[:k])]


@pytest.mark.parametrize("count", range(1, 9))
def test_the_published_roots(count):
    root, _ = tree([leaf_hash(bytes.fromhex(leaf)) for leaf in LEAVES[:count]])
    assert root.hex() == ROOTS[count - 1]


@pytest.mark.parametrize("count", [*range(1, 40), 64, 65, 1000])
def test_roots_and_paths_are_those_of_the_definition(count):
    data = [str(i).encode() for i in range(count)]
    hashes = [leaf_hash(each) for each in data]
    root, paths = tree(hashes)
    assert root == mth(data)
    for i in range(count) if count < 100 else (0, 511, 512, 998, 999):
        assert paths[i] == path(i, data)
        assert root_of(hashes[i], i, count, paths[i]) == root


@given(st.integers(1, 70), st.data())
def test_another_leaf_place_number_or_path_gives_another_root(count, data):
    hashes = [leaf_hash(str(i).encode()) for i in range(count)]
    root, paths = tree(hashes)
    i = data.draw(st.integers(0, count - 1))
    steps = paths[i]

    def differs(leaf=hashes[i], index=i, leaves=count, beside=steps):
        try:
            return root_of(leaf, index, leaves, beside) != root
        except ValueError:
            return True

    assert not differs()
    assert differs(leaf=leaf_hash(b"another"))
    assert differs(index=data.draw(st.integers(-2, count + 2).filter(lambda other: other != i)))
    assert differs(beside=[*steps, steps[-1] if steps else hashes[i]])
    if steps:
        j = data.draw(st.integers(0, len(steps) - 1))
        assert differs(beside=[*steps[:j], leaf_hash(b"another"), *steps[j + 1 :]])
        assert differs(beside=steps[:j] + steps[j + 1 :])
    # a node is no leaf: two hashes one after the other, taken for a leaf's content
    if count == 2:
        assert differs(leaf=leaf_hash(hashes[0] + hashes[1]), index=0, leaves=1, beside=[])


def test_a_tree_has_leaves():
    with pytest.raises(ValueError, match="at least one leaf"):
        tree([])
