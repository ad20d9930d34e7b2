"""Valid files, damaged: bytes set, inserted, removed, repeated or cut off, more often at the beginning than later."""

import io
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from PIL import Image

Edit = tuple[str, int, bytes]

# numbers that headers are asked about: none, one, all bits, the largest of their kind, larger than any memory
INTERESTING = [
    b"\x00",
    b"\x01",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\x00\x00\xff\xff",
    b"\xff\xff",
    b"\x00\x01\x00\x00",
]
_POSITIONS = st.one_of(st.integers(0, 40), st.integers(0, 400), st.integers(0, 1 << 20))
_EDITS = st.tuples(
    st.sampled_from(["set", "set", "insert", "remove", "repeat", "cut"]),
    _POSITIONS,
    st.one_of(st.sampled_from(INTERESTING), st.binary(min_size=1, max_size=4)),
)
EDITS = st.lists(_EDITS, min_size=1, max_size=5)


def damaged(content: bytes, edits: Sequence[Edit]) -> bytes:
    for kind, where, put in edits:
        place = where % (len(content) + 1)
        if kind == "set":
            content = content[:place] + put + content[place + len(put) :]
        elif kind == "insert":
            content = content[:place] + put + content[place:]
        elif kind == "remove":
            content = content[:place] + content[place + put[0] :]
        elif kind == "repeat":
            content = content[:place] + content[place : place + 16] * (1 + put[0]) + content[place:]
        else:
            content = content[:place]
    return content


def with_right_sums(png: bytes) -> bytes:
    """A PNG whose chunks have the check sums of what they hold by now: else the first would end every case."""
    repaired, place = [png[:8]], 8
    while place + 12 <= len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        body = png[place + 4 : place + 8 + length]
        repaired += [png[place : place + 4], body, struct.pack(">I", zlib.crc32(body))]
        place += 12 + length
    return b"".join([*repaired, png[place:]])


def _images() -> dict[str, list[bytes]]:
    """Small valid images of each accepted format, in several pixel types."""
    random = np.random.default_rng(0)
    colours = Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    grey = colours.convert("L")
    clear = colours.convert("RGBA")
    few = colours.quantize(8)
    deep = Image.fromarray(random.integers(0, 65536, (9, 12), dtype=np.uint16))
    exif = Image.Exif()
    exif[0x0112] = 6
    kinds = {
        "png": [
            (colours, {}),
            (grey, {}),
            (clear, {}),
            (few, {"transparency": 1}),
            (deep, {}),
            (colours, {"exif": exif}),
        ],
        "jpg": [
            (colours, {}),
            (grey, {}),
            (colours.convert("CMYK"), {}),
            (colours, {"exif": exif, "progressive": True}),
        ],
        "gif": [(few, {}), (few, {"save_all": True, "append_images": [few, few]})],
        "webp": [(colours, {}), (clear, {"lossless": True}), (clear, {"save_all": True, "append_images": [clear]})],
        "bmp": [(colours, {}), (few, {}), (grey, {})],
        "tif": [(colours, {}), (deep, {}), (colours, {"compression": "tiff_lzw"}), (grey, {"compression": "jpeg"})],
        "ppm": [(colours, {}), (grey, {})],
    }
    found: dict[str, list[bytes]] = {}
    for ending, variants in kinds.items():
        kind = {"jpg": "JPEG", "tif": "TIFF"}.get(ending, ending.upper())
        for image, options in variants:
            file = io.BytesIO()
            image.save(file, kind, **options)
            found.setdefault(ending, []).append(file.getvalue())
    return found


IMAGES = _images()


@st.composite
def damaged_images(draw: st.DrawFn) -> tuple[str, bytes]:
    """The ending and the content of a file that once was an image; now and then of another kind than it says."""
    ending = draw(st.sampled_from(sorted(IMAGES)))
    content = damaged(draw(st.sampled_from(IMAGES[ending])), draw(EDITS))
    if ending == "png" and draw(st.booleans()):
        content = with_right_sums(content)
    return draw(st.sampled_from([ending, ending, ending, "png"])), content
