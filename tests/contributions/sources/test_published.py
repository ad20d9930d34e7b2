import csv
import pickle
import re
import struct

import numpy as np
import pytest

from diffcredit.contributions import load_contributions
from diffcredit.contributions.sources.published import ArtBench, Cifar100
from diffcredit.errors import UserError

from ..pictures import colour_of, flat, paint

COARSE = ["fish", "flowers", "large_carnivores", "vehicles_1", "household_electrical_devices"]
FINE = ["bear", "bus", "clock", "orchid", "rose", "trout"]
# superclass and class of each record
CIFAR_TRAIN = [(1, 4), (2, 0), (0, 5), (3, 1), (1, 3), (4, 2), (1, 4)]
CIFAR_TEST = [(0, 5), (2, 0), (1, 4)]


def pixels(count, seed):
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def binary(labels, images):
    """Byte by byte as the owners describe it: two labels, then 1024 red, 1024 green and 1024 blue values."""
    content = b""
    for (coarse, fine), image in zip(labels, images, strict=True):
        content += struct.pack("BB", coarse, fine)
        for channel in range(3):
            content += bytes(int(image[y, x, channel]) for y in range(32) for x in range(32))
    return content


@pytest.fixture
def cifar(tmp_path):
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "train.bin").write_bytes(binary(CIFAR_TRAIN, pixels(len(CIFAR_TRAIN), 0)))
    (folder / "test.bin").write_bytes(binary(CIFAR_TEST, pixels(len(CIFAR_TEST), 1)))
    (folder / "coarse_label_names.txt").write_text("\n".join(COARSE) + "\n\n")
    (folder / "fine_label_names.txt").write_text("\n".join(FINE) + "\n")
    return tmp_path


@pytest.mark.parametrize("place", [".", "cifar-100-binary"])
def test_the_published_classes(cifar, place):
    found = load_contributions(cifar / place, source="cifar100")
    chosen = [0, 1, 3, 4, 5, 6]  # all but the trout
    assert found.contributors == ("bear", "bus", "clock", "orchid", "rose")
    assert found.names == tuple(f"train/{row:08d}" for row in chosen)
    assert [found.contributors[index] for index in found.owner] == [FINE[CIFAR_TRAIN[row][1]] for row in chosen]
    assert np.array_equal(found.images, pixels(len(CIFAR_TRAIN), 0)[chosen])
    assert np.array_equal(found.heldout, pixels(len(CIFAR_TEST), 1)[[1, 2]])
    assert found.captions is None


def test_superclasses_or_classes_as_captions(cifar):
    chosen = [0, 1, 3, 4, 5, 6]
    for caption, names, place in (("superclass", COARSE, 0), ("class", FINE, 1)):
        found = load_contributions(cifar, source=Cifar100(caption=caption))
        assert found.captions == tuple(names[CIFAR_TRAIN[row][place]] for row in chosen)
        assert found.heldout_captions == tuple(names[CIFAR_TEST[row][place]] for row in (1, 2))


@pytest.mark.parametrize("names", [("large carnivores", "flowers"), ("flowers", "large_carnivores")])
def test_other_superclasses_in_both_spellings(cifar, names):
    found = load_contributions(cifar, source=Cifar100(names))
    assert found.contributors == ("bear", "orchid", "rose")
    assert len(found.heldout) == 2


def test_a_superclass_that_is_not_there(cifar):
    with pytest.raises(UserError, match=r"superclasses: 'birds' is not in .*; there are: fish, flowers, large_"):
        load_contributions(cifar, source=Cifar100(("flowers", "birds")))
    with pytest.raises(UserError, match="superclasses: an empty list"):
        load_contributions(cifar, source=Cifar100(()))


@pytest.mark.parametrize("cut", [1, 3073, 3074 * len(CIFAR_TRAIN)])
def test_a_truncated_file(cifar, cut):
    file = cifar / "cifar-100-binary/train.bin"
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(UserError, match=rf"train\.bin: {3074 * len(CIFAR_TRAIN) - cut} bytes, .* truncated"):
        load_contributions(cifar, source="cifar100")


@pytest.mark.parametrize("place", [".", "cifar-100-python"])
def test_pickles_are_refused_unopened(tmp_path, place):
    class Bomb:
        def __reduce__(self):
            return open, (str(tmp_path / "exploded"), "w")

    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in ("train", "test", "meta"):
        (folder / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(UserError, match=r"cifar-100-python: the pickled version .* the binary version .* is accepted"):
        load_contributions(tmp_path / place, source="cifar100")
    assert not (tmp_path / "exploded").exists()


# CelebA-HQ's number, CelebA's file, identity
PEOPLE = [
    (0, "119613.jpg", 2880),
    (1, "099094.jpg", 17),
    (2, "200121.jpg", 2880),
    (10, "000001.jpg", 17),
    (11, "7.jpg", 5),
]
ROW = "11       7          7.jpg\n"
CELEBA_IMAGES, CELEBA_MAPPING, CELEBA_IDENTITIES = (
    "CelebA-HQ-img",
    "CelebA-HQ-to-CelebA-mapping.txt",
    "identity_CelebA.txt",
)


@pytest.fixture
def celeba(tmp_path):
    folder = tmp_path / "CelebAMask-HQ"
    for number, _, _ in PEOPLE:
        paint(folder / CELEBA_IMAGES / f"{number}.jpg", colour_of(str(number)))
    lines = [f"{number:<8d} {int(file[:-4]):<10d} {file}\n" for number, file, _ in PEOPLE]
    (folder / CELEBA_MAPPING).write_text("idx      orig_idx   orig_file\n" + "".join(lines))
    others = "000002.jpg 2937\n"  # CelebA has many more images
    (folder / CELEBA_IDENTITIES).write_text(others + "".join(f"{file} {who}\n" for _, file, who in reversed(PEOPLE)))
    return folder


def load_celeba(path, **options):
    return load_contributions(path, source="celebahq", resolution=8, **options)


@pytest.mark.parametrize("place", [".", ".."])
def test_identities_are_the_contributors(celeba, place):
    found = load_celeba(celeba / place)
    assert found.contributors == ("17", "2880", "5")
    owners = {name: found.contributors[index] for name, index in zip(found.names, found.owner, strict=True)}
    assert owners == {f"{number}.jpg": str(who) for number, _, who in PEOPLE}
    for name, colour in zip(found.names, flat(found.images), strict=True):
        wanted = colour_of(name.removesuffix(".jpg"))
        assert np.abs(np.subtract(colour, wanted)).max() <= 3  # JPEG rounds
    assert len(found.heldout) == 0


def test_identities_one_level_up(celeba):
    (celeba / CELEBA_IDENTITIES).rename(celeba.parent / CELEBA_IDENTITIES)
    assert load_celeba(celeba).counts.tolist() == [2, 2, 1]
    (celeba.parent / CELEBA_IDENTITIES).unlink()
    with pytest.raises(UserError, match=rf"{celeba / CELEBA_IDENTITIES}: does not exist, nor does "):
        load_celeba(celeba)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            CELEBA_MAPPING,
            ROW,
            "",
            rf"{CELEBA_IMAGES}/11\.jpg: an image without contributor: {CELEBA_MAPPING} has no row",
        ),
        (
            CELEBA_IDENTITIES,
            "7.jpg 5\n",
            "",
            rf"{CELEBA_IMAGES}/11\.jpg: an image without contributor: .* no row for 7\.jpg",
        ),
        (CELEBA_MAPPING, ROW, "11 7 7.jpg\n12 8 8.jpg\n", rf"{CELEBA_IMAGES}/12\.jpg: does not exist"),
        (CELEBA_MAPPING, ROW, "11 7 7.jpg\n11 8 8.jpg\n", rf"{CELEBA_MAPPING}:7: 11 is in an earlier"),
        (CELEBA_MAPPING, ROW, "11 7\n", rf"{CELEBA_MAPPING}:6: '11 7'; 3 words a line"),
        (CELEBA_MAPPING, ROW, "../11 7 7.jpg\n", rf"{CELEBA_IMAGES}/11\.jpg: an image without contributor"),
        (CELEBA_IDENTITIES, "7.jpg 5\n", "7.jpg 5\n7.jpg 6\n", rf"{CELEBA_IDENTITIES}:3: 7\.jpg is in an earlier"),
        (CELEBA_IDENTITIES, "7.jpg 5\n", "7.jpg\n", rf"{CELEBA_IDENTITIES}:2: '7\.jpg'; 2 words a line"),
    ],
)
def test_tables_that_do_not_fit(celeba, file, old, new, message):
    text = (celeba / file).read_text()
    assert old in text
    (celeba / file).write_text(text.replace(old, new))
    with pytest.raises(UserError, match=message):
        load_celeba(celeba)


STYLE = "post_impressionism"
COLUMNS = ["name", "artist", "url", "is_public_domain", "length", "width", "label", "split", "cifar_index"]
# the order is not that of the names, and the artist not the name's beginning
PAINTINGS = [
    ("z_irises.jpg", "vincent-van-gogh", STYLE, "train"),
    ("a_apples.jpg", "paul-cezanne", STYLE, "train"),
    ("m_tahiti.jpg", "paul-gauguin", STYLE, "train"),
    ("b_apples.jpg", "vincent-van-gogh", STYLE, "train"),
    ("c_night.jpg", "vincent-van-gogh", STYLE, "test"),
    ("d_late.jpg", "henri-rousseau", STYLE, "test"),
    ("a_apples.jpg", "caravaggio", "baroque", "train"),
    ("e_dark.jpg", "caravaggio", "baroque", "train"),
    ("f_dark.jpg", "rembrandt", "baroque", "train"),
]


def art_rows(paintings=PAINTINGS):
    return [
        dict(zip(COLUMNS, (name, artist, "https://example.org", "True", 9, 9, label, split, number), strict=True))
        for number, (name, artist, label, split) in enumerate(paintings)
    ]


def write_table(file, table):
    with file.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS)
        writer.writeheader()
        writer.writerows(table)


def make(artbench, folder, split):
    for name, _, label, part in PAINTINGS:
        place = f"{part}/{label}/{name}" if split else f"{label}/{name}"
        paint(artbench / folder / place, colour_of(f"{label}/{name}"))
    write_table(artbench / "ArtBench-10.csv", art_rows())
    return artbench


@pytest.fixture
def artbench(tmp_path):
    return make(tmp_path, "artbench-10-imagefolder-split", split=True)


def load_art(path, style=STYLE, **options):
    return load_contributions(path, source=ArtBench(style), resolution=8, **options)


def alike(colours, wanted):
    return np.abs(np.subtract(colours, wanted)).max() <= 3  # JPEG rounds


def check(found):
    assert found.contributors == ("paul-cezanne", "paul-gauguin", "vincent-van-gogh")
    names = ["a_apples.jpg", "b_apples.jpg", "m_tahiti.jpg", "z_irises.jpg"]
    assert found.names == tuple(f"train/{STYLE}/{name}" for name in names)
    assert found.owner.tolist() == [0, 2, 1, 2]
    assert alike(flat(found.images), [colour_of(f"{STYLE}/{name}") for name in names])
    assert alike(flat(found.heldout), [colour_of(f"{STYLE}/{name}") for name in ("c_night.jpg", "d_late.jpg")])


@pytest.mark.parametrize("place", [".", "artbench-10-imagefolder-split"])
def test_artists_are_the_contributors(artbench, place):
    check(load_art(artbench / place))


def test_without_split_folders_the_table_decides(artbench, tmp_path):
    whole = make(tmp_path / "whole", "artbench-10-imagefolder", split=False)
    check(load_art(whole))
    assert load_art(whole).fingerprint == load_art(artbench).fingerprint


def test_another_style(artbench):
    (artbench / "artbench-10-imagefolder-split/test/baroque").mkdir()
    assert load_art(artbench, "baroque").contributors == ("caravaggio", "rembrandt")
    with pytest.raises(UserError, match=f"style: 'rococo' is not in .*; there are: baroque, {STYLE}"):
        load_art(artbench, "rococo")


def changed(number, **values):
    return [row | values if index == number else row for index, row in enumerate(art_rows())]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (changed(1, name="../x.jpg"), "ArtBench-10.csv:3: name '../x.jpg' leads out of the folder"),
        (changed(1, name="/etc/passwd"), "ArtBench-10.csv:3: name '/etc/passwd' leads out of the folder"),
        (changed(1, name="gone.jpg"), f"ArtBench-10.csv:3: train/{STYLE}/gone.jpg does not exist"),
        (changed(1, name=""), "ArtBench-10.csv:3: name ''"),
        (changed(1, artist=" "), "ArtBench-10.csv:3: a_apples.jpg is an image without contributor: 'artist' is empty"),
        (changed(1, split="val"), "ArtBench-10.csv:3: split 'val'; train or test is accepted"),
        (changed(1, name="z_irises.jpg"), f"ArtBench-10.csv:3: train/{STYLE}/z_irises.jpg is in an earlier line"),
        (
            art_rows(PAINTINGS[1:]),
            f"train/{STYLE}/z_irises.jpg: an image without contributor: ArtBench-10.csv has no row",
        ),
    ],
)
def test_mistakes_name_file_and_line(artbench, table, message):
    paint(artbench / "artbench-10-imagefolder-split/train/x.jpg")
    write_table(artbench / "ArtBench-10.csv", table)
    with pytest.raises(UserError, match=re.escape(message)):
        load_art(artbench)
