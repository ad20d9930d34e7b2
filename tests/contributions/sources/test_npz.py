import io
import zipfile

import numpy as np
import pytest

from diffcredit.contributions import load_contributions
from diffcredit.contributions.sources import npz
from diffcredit.contributions.sources.npz import Npz
from diffcredit.errors import UserError

from ..pictures import flat

IMAGES = np.stack([np.full((6, 6), value, np.uint8) for value in (5, 6, 7, 8)])
ARTISTS = np.array(["bob", "Ada ", "bob", "Ada"])


def load(path, **arrays):
    np.savez(path / "a.npz", **arrays)
    return load_contributions(path / "a.npz", contributor="artist", resolution=4)


@pytest.mark.parametrize("images", [IMAGES, IMAGES[..., None], np.repeat(IMAGES[..., None], 3, axis=3)])
def test_grey_and_colour_arrays(tmp_path, images):
    found = load(tmp_path, images=images, artist=ARTISTS)
    assert flat(found.images) == [(5, 5, 5), (6, 6, 6), (7, 7, 7), (8, 8, 8)]
    assert found.contributors == ("Ada", "bob")
    assert found.owner.tolist() == [1, 0, 1, 0]
    assert found.names == ("00000000", "00000001", "00000002", "00000003")


def options(path, arrays, **options):
    np.savez(path / "a.npz", images=IMAGES, artist=ARTISTS, **arrays)
    return load_contributions(path / "a.npz", source=Npz(**options), contributor="artist", resolution=4)


@pytest.mark.parametrize("split", [np.array([0, 1, 0, 0], np.int8), np.array([False, True, False, False])])
def test_held_out_rows(tmp_path, split):
    found = options(tmp_path, {"split": split}, heldout="split")
    assert found.names == ("00000000", "00000002", "00000003")
    assert flat(found.images) == [(5, 5, 5), (7, 7, 7), (8, 8, 8)]
    assert flat(found.heldout) == [(6, 6, 6)]


def test_captions(tmp_path):
    texts, split = np.array(["five", "six", "", "eight"]), np.array([0, 1, 1, 0])
    found = options(tmp_path, {"words": texts, "split": split}, caption="words", heldout="split")
    assert found.captions == ("five", "eight")
    assert found.heldout_captions == ("six", "")


@pytest.mark.parametrize("kind", [np.uint8, np.int64])
def test_class_indices_are_captions(tmp_path, kind):
    found = options(tmp_path, {"label": np.array([3, 0, 12, 3], kind)}, caption="label")
    assert found.captions == ("3", "0", "12", "3")


@pytest.mark.parametrize(
    ("arrays", "chosen", "message"),
    [
        ({}, {"caption": "words"}, "no array 'words'; there are: images, artist"),
        ({"words": np.ones(4)}, {"caption": "words"}, "words is float64; texts or integers are accepted"),
        ({"words": np.ones(4, bool)}, {"caption": "words"}, "words is bool; texts or integers are accepted"),
        ({"words": np.array(["a"])}, {"caption": "words"}, r"words has shape \(1,\)"),
        ({"split": np.array(["train"] * 4)}, {"heldout": "split"}, "split is <U5; integers or booleans are accepted"),
        ({"split": np.zeros(3, int)}, {"heldout": "split"}, r"split has shape \(3,\)"),
        ({"split": np.ones(4, int)}, {"heldout": "split"}, "no images there"),
    ],
)
def test_options_that_do_not_fit(tmp_path, arrays, chosen, message):
    with pytest.raises(UserError, match=f"{tmp_path / 'a.npz'}: {message}"):
        options(tmp_path, arrays, **chosen)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": IMAGES}, "no array 'artist'; there are: images"),
        ({"pictures": IMAGES, "artist": ARTISTS}, "no array 'images'; there are: pictures, artist"),
        ({"images": IMAGES, "artist": ARTISTS[:3]}, r"artist has shape \(3,\); one value for each of the 4"),
        ({"images": IMAGES, "artist": ARTISTS[:, None]}, r"artist has shape \(4, 1\)"),
        ({"images": IMAGES, "artist": np.ones(4)}, "artist is float64; texts or integers"),
        (
            {"images": IMAGES, "artist": np.array(list("aabb"), dtype=object)},
            "not a readable .npz of plain arrays",
        ),
        (
            {"images": IMAGES, "artist": np.array(["a", "b", " ", "a"])},
            r"artist\[2\]: an image without contributor",
        ),
        ({"images": IMAGES.astype(float), "artist": ARTISTS}, "images is float64"),
        ({"images": IMAGES[0], "artist": ARTISTS}, r"images is uint8 \(6, 6\)"),
        ({"images": np.zeros((4, 6, 6, 4), np.uint8), "artist": ARTISTS}, r"images is uint8 \(4, 6, 6, 4\)"),
        ({"images": np.zeros((4, 0, 6), np.uint8), "artist": ARTISTS}, r"images is uint8 \(4, 0, 6\)"),
        ({"images": IMAGES[:0], "artist": ARTISTS[:0]}, "no images there"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path, arrays, message):
    with pytest.raises(UserError, match=f"{tmp_path / 'a.npz'}: .*{message}|{tmp_path / 'a.npz'}: {message}"):
        load(tmp_path, **arrays)


def single_array(path):
    with path.open("wb") as file:
        np.save(file, IMAGES)


def truncated(path):
    np.savez_compressed(path, images=np.random.default_rng(0).integers(0, 256, (9, 9, 9), dtype=np.uint8))
    path.write_bytes(path.read_bytes()[:300])


def header(shape, kind="|u1"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
    return file.getvalue()


def endless_rows_of_nothing(path):
    """10¹⁸ images without pixels, and as many names without letters: two small files."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", header((10**18, 0, 0)))
        archive.writestr("artist.npy", header((10**18,), "<U0"))


def encrypted(path):
    np.savez(path, images=IMAGES, artist=ARTISTS)
    content = bytearray(path.read_bytes())
    content[6] |= 1  # "encrypted", in the first member's header
    content[content.index(b"PK\x01\x02") + 8] |= 1  # and in the directory
    path.write_bytes(content)


@pytest.mark.parametrize(
    "make",
    [
        single_array,
        truncated,
        endless_rows_of_nothing,
        encrypted,
        lambda path: path.write_text("text"),
        lambda path: path.touch(),
        lambda path: path.mkdir(),
    ],
)
def test_what_is_no_npz(tmp_path, make):
    make(tmp_path / "a.npz")
    with pytest.raises(UserError, match=f"{tmp_path / 'a.npz'}: "):
        load_contributions(tmp_path / "a.npz", source="npz", contributor="artist")


def zeros(path, count, name="images"):
    """A member of ``count`` bytes, packed a thousandfold."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open(f"{name}.npy", "w") as file:
        file.write(header((count // 64, 8, 8)))
        for _ in range(count // 2**20):
            file.write(bytes(2**20))


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "FREE_BYTES", 2**23)
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("it was unpacked"))
    np.savez(tmp_path / "a.npz", artist=ARTISTS)
    zeros(tmp_path / "a.npz", 2**24)
    with pytest.raises(UserError, match=r"bytes that unpack to 16,777,\d+; at most .* 100 times the file's size"):
        load_contributions(tmp_path / "a.npz", contributor="artist")


def test_members_that_nobody_asked_for_are_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "FREE_BYTES", 2**20)
    np.savez(tmp_path / "a.npz", images=IMAGES, artist=ARTISTS)
    zeros(tmp_path / "a.npz", 2**24, "bomb")
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("../../outside.npy", b"x")
    assert load_contributions(tmp_path / "a.npz", contributor="artist", resolution=4).n == 2
    assert not (tmp_path.parent.parent / "outside.npy").exists()
