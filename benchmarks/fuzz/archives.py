"""``.npz`` archives by the hand of somebody who means no good: headers that lie, odd types, names that lead outside."""

import io
import warnings
import zipfile

import numpy as np
from hypothesis import strategies as st

from benchmarks.fuzz.bytes import EDITS, damaged

_SIZES = st.sampled_from([0, 1, 2, 3, 4, 6, 255, 65536, 2**31, 2**40, 10**18, 2**64, -1])
_SHAPES = st.one_of(
    st.just((4, 6, 6)),
    st.just((4,)),
    st.just((4, 6, 6, 3)),
    st.lists(_SIZES, max_size=5).map(tuple),
    st.just("(4,"),
)
_KINDS = st.sampled_from(
    [
        "|u1",
        "<U3",
        "|O",
        "<f8",
        "<M8[s]",
        "|V0",
        "<U0",
        "|S4",
        "<i8",
        ">u2",
        "|b1",
        [("a", "<i4")],
        "<U99999999",
        "x",
        "",
    ]
)
_MEMBERS = st.sampled_from(
    ["images.npy", "artist.npy", "images", "artist", "../../outside/planted.npy", "/tmp/planted.npy", "a\x00b.npy", ""]
)
_PACKINGS = st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
_PAYLOADS = st.one_of(st.just(bytes(144)), st.just(bytes(432)), st.binary(max_size=40))


@st.composite
def _arrays(draw: st.DrawFn) -> bytes:
    header = repr({"descr": draw(_KINDS), "fortran_order": draw(st.booleans()), "shape": draw(_SHAPES)})
    text = (header + "\n").encode()
    version = draw(st.sampled_from([1, 1, 1, 2, 3, 9]))
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + draw(_PAYLOADS)


@st.composite
def _written(draw: st.DrawFn) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", draw(_PACKINGS)) as archive:
        warnings.simplefilter("ignore")  # of names that are there twice, which is the point
        for _ in range(draw(st.integers(0, 3))):
            archive.writestr(zipfile.ZipInfo(draw(_MEMBERS)), draw(_arrays()))
        if draw(st.booleans()):
            archive.writestr("artist.npy", _good("artist.npy"))
    return file.getvalue()


def _good(member: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(VALID)) as archive:
        return archive.read(member)


def _valid() -> bytes:
    file = io.BytesIO()
    images = np.random.default_rng(0).integers(0, 256, (4, 6, 6), dtype=np.uint8)
    np.savez_compressed(file, images=images, artist=np.array(["a", "b", "a", "b"]))
    return file.getvalue()


VALID = _valid()
archives = st.one_of(
    st.tuples(st.just(VALID), EDITS).map(lambda pair: damaged(*pair)),
    _written(),
    st.tuples(_written(), EDITS).map(lambda pair: damaged(*pair)),
)
