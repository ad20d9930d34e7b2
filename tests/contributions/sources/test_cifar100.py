import pickle
import struct

import numpy as np
import pytest

from diffcredit.contributions import load_contributions
from diffcredit.contributions.sources.cifar100 import Cifar100
from diffcredit.errors import UserError

COARSE = ["fish", "flowers", "large_carnivores", "vehicles_1", "household_electrical_devices"]
FINE = ["bear", "bus", "clock", "orchid", "rose", "trout"]
# superclass and class of each record
TRAIN = [(1, 4), (2, 0), (0, 5), (3, 1), (1, 3), (4, 2), (1, 4)]
TEST = [(0, 5), (2, 0), (1, 4)]


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
def root(tmp_path):
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "train.bin").write_bytes(binary(TRAIN, pixels(len(TRAIN), 0)))
    (folder / "test.bin").write_bytes(binary(TEST, pixels(len(TEST), 1)))
    (folder / "coarse_label_names.txt").write_text("\n".join(COARSE) + "\n\n")
    (folder / "fine_label_names.txt").write_text("\n".join(FINE) + "\n")
    return tmp_path


@pytest.mark.parametrize("place", [".", "cifar-100-binary"])
def test_the_published_classes(root, place):
    found = load_contributions(root / place, source="cifar100")
    chosen = [0, 1, 3, 4, 5, 6]  # all but the trout
    assert found.contributors == ("bear", "bus", "clock", "orchid", "rose")
    assert found.names == tuple(f"train/{row:08d}" for row in chosen)
    assert [found.contributors[index] for index in found.owner] == [FINE[TRAIN[row][1]] for row in chosen]
    assert np.array_equal(found.images, pixels(len(TRAIN), 0)[chosen])
    assert np.array_equal(found.heldout, pixels(len(TEST), 1)[[1, 2]])
    assert found.captions is None


@pytest.mark.parametrize("names", [("large carnivores", "flowers"), ("flowers", "large_carnivores")])
def test_other_superclasses_in_both_spellings(root, names):
    found = load_contributions(root, source=Cifar100(names))
    assert found.contributors == ("bear", "orchid", "rose")
    assert len(found.heldout) == 2


def test_held_out_images_of_a_class_leave_with_it(root):
    found = load_contributions(root, source=Cifar100(("flowers", "large_carnivores", "fish")), draw=2, seed=3)
    kept = {FINE.index(name) for name in found.contributors}
    expected = [row for row, (_, fine) in enumerate(TEST) if fine in kept]
    assert np.array_equal(found.heldout, pixels(len(TEST), 1)[expected])


def test_a_superclass_that_is_not_there(root):
    with pytest.raises(UserError, match=r"superclasses: 'birds' is not in .*; there are: fish, flowers, large_"):
        load_contributions(root, source=Cifar100(("flowers", "birds")))
    with pytest.raises(UserError, match="superclasses: an empty list"):
        load_contributions(root, source=Cifar100(()))


@pytest.mark.parametrize("cut", [1, 3073, 3074 * len(TRAIN)])
def test_a_truncated_file(root, cut):
    file = root / "cifar-100-binary/train.bin"
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(UserError, match=rf"train\.bin: {3074 * len(TRAIN) - cut} bytes, .* truncated"):
        load_contributions(root, source="cifar100")


@pytest.mark.parametrize("labels", [(5, 0), (2, 6)])
def test_labels_without_a_name(root, labels):
    (root / "cifar-100-binary/test.bin").write_bytes(binary([labels], pixels(1, 2)))
    with pytest.raises(
        UserError, match=rf"test\.bin: labels up to {labels[0]} and {labels[1]}, but names for 5 .* and 6"
    ):
        load_contributions(root, source="cifar100")


@pytest.mark.parametrize("name", ["test.bin", "fine_label_names.txt", "coarse_label_names.txt"])
def test_a_missing_file(root, name):
    (root / "cifar-100-binary" / name).unlink()
    with pytest.raises(UserError, match=name):
        load_contributions(root, source="cifar100")


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


def test_nothing_there(tmp_path):
    with pytest.raises(UserError, match=rf"{tmp_path}: no train\.bin there, nor in cifar-100-binary"):
        load_contributions(tmp_path, source="cifar100")
    with pytest.raises(UserError, match="path: missing"):
        load_contributions(source="cifar100")
