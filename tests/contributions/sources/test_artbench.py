import csv
import re

import numpy as np
import pytest

from diffcredit.contributions import load_contributions
from diffcredit.contributions.sources.artbench import ArtBench
from diffcredit.errors import UserError

from ..pictures import colour_of, flat, paint

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


def rows(paintings=PAINTINGS):
    return [
        dict(zip(COLUMNS, (name, artist, "https://example.org", "True", 9, 9, label, split, number), strict=True))
        for number, (name, artist, label, split) in enumerate(paintings)
    ]


def write(file, table):
    with file.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS)
        writer.writeheader()
        writer.writerows(table)


def make(root, folder, split):
    for name, _, label, part in PAINTINGS:
        place = f"{part}/{label}/{name}" if split else f"{label}/{name}"
        paint(root / folder / place, colour_of(f"{label}/{name}"))
    write(root / "ArtBench-10.csv", rows())
    return root


@pytest.fixture
def root(tmp_path):
    return make(tmp_path, "artbench-10-imagefolder-split", split=True)


def load(path, style=STYLE, **options):
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
def test_artists_are_the_contributors(root, place):
    check(load(root / place))


def test_metadata_among_the_images(root):
    (root / "ArtBench-10.csv").rename(root / "artbench-10-imagefolder-split/ArtBench-10.csv")
    check(load(root))


def test_without_split_folders_the_table_decides(root, tmp_path):
    whole = make(tmp_path / "whole", "artbench-10-imagefolder", split=False)
    check(load(whole))
    assert load(whole).fingerprint == load(root).fingerprint


def test_another_style(root):
    (root / "artbench-10-imagefolder-split/test/baroque").mkdir()
    assert load(root, "baroque").contributors == ("caravaggio", "rembrandt")
    with pytest.raises(UserError, match=f"style: 'rococo' is not in .*; there are: baroque, {STYLE}"):
        load(root, "rococo")


def test_who_is_not_drawn_leaves_with_the_test_images(root):
    found = load(root, draw=2, seed=1)
    (gone,) = {"paul-cezanne", "paul-gauguin", "vincent-van-gogh"} - set(found.contributors)
    assert len(found.heldout) == (gone != "vincent-van-gogh")
    assert "henri-rousseau (0 images)" in found.left_out


def changed(number, **values):
    return [row | values if index == number else row for index, row in enumerate(rows())]


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
        (rows(PAINTINGS[1:]), f"train/{STYLE}/z_irises.jpg: an image without contributor: ArtBench-10.csv has no row"),
    ],
)
def test_mistakes_name_file_and_line(root, table, message):
    paint(root / "artbench-10-imagefolder-split/train/x.jpg")
    write(root / "ArtBench-10.csv", table)
    with pytest.raises(UserError, match=re.escape(message)):
        load(root)


def test_a_table_with_other_columns(root):
    (root / "ArtBench-10.csv").write_text("file,artist\nx.jpg,Ada\n")
    with pytest.raises(UserError, match=r"ArtBench-10\.csv:2: no column 'label'; there are: file, artist"):
        load(root)


def test_no_table(root):
    (root / "ArtBench-10.csv").unlink()
    with pytest.raises(UserError, match=r"ArtBench-10\.csv: does not exist, nor does .*; it lists the artists"):
        load(root)


def test_a_link_out_of_the_folder(root, tmp_path):
    file = root / f"artbench-10-imagefolder-split/train/{STYLE}/a_apples.jpg"
    file.unlink()
    file.symlink_to(paint(tmp_path / "secret.jpg"))
    with pytest.raises(UserError, match=r"a_apples\.jpg: a link that leads out"):
        load(root)
