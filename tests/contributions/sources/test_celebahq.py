import numpy as np
import pytest

from diffcredit.contributions import load_contributions
from diffcredit.errors import UserError

from ..pictures import colour_of, flat, paint

# CelebA-HQ's number, CelebA's file, identity
PEOPLE = [
    (0, "119613.jpg", 2880),
    (1, "099094.jpg", 17),
    (2, "200121.jpg", 2880),
    (10, "000001.jpg", 17),
    (11, "7.jpg", 5),
]
ROW = "11       7          7.jpg\n"
IMAGES, MAPPING, IDENTITIES = "CelebA-HQ-img", "CelebA-HQ-to-CelebA-mapping.txt", "identity_CelebA.txt"


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "CelebAMask-HQ"
    for number, _, _ in PEOPLE:
        paint(folder / IMAGES / f"{number}.jpg", colour_of(str(number)))
    lines = [f"{number:<8d} {int(file[:-4]):<10d} {file}\n" for number, file, _ in PEOPLE]
    (folder / MAPPING).write_text("idx      orig_idx   orig_file\n" + "".join(lines))
    others = "000002.jpg 2937\n"  # CelebA has many more images
    (folder / IDENTITIES).write_text(others + "".join(f"{file} {who}\n" for _, file, who in reversed(PEOPLE)))
    return folder


def load(path, **options):
    return load_contributions(path, source="celebahq", resolution=8, **options)


@pytest.mark.parametrize("place", [".", ".."])
def test_identities_are_the_contributors(root, place):
    found = load(root / place)
    assert found.contributors == ("17", "2880", "5")
    owners = {name: found.contributors[index] for name, index in zip(found.names, found.owner, strict=True)}
    assert owners == {f"{number}.jpg": str(who) for number, _, who in PEOPLE}
    for name, colour in zip(found.names, flat(found.images), strict=True):
        wanted = colour_of(name.removesuffix(".jpg"))
        assert np.abs(np.subtract(colour, wanted)).max() <= 3  # JPEG rounds
    assert len(found.heldout) == 0


def test_identities_one_level_up(root):
    (root / IDENTITIES).rename(root.parent / IDENTITIES)
    assert load(root).counts.tolist() == [2, 2, 1]
    (root.parent / IDENTITIES).unlink()
    with pytest.raises(UserError, match=rf"{root / IDENTITIES}: does not exist, nor does "):
        load(root)


def test_people_with_few_images_are_left_out(root):
    found = load(root, at_least=2)
    assert found.contributors == ("17", "2880")
    assert found.left_out == ("5 (1 image)",)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            MAPPING,
            ROW,
            "",
            rf"{IMAGES}/11\.jpg: an image without contributor: {MAPPING} has no row",
        ),
        (IDENTITIES, "7.jpg 5\n", "", rf"{IMAGES}/11\.jpg: an image without contributor: .* no row for 7\.jpg"),
        (MAPPING, ROW, "11 7 7.jpg\n12 8 8.jpg\n", rf"{IMAGES}/12\.jpg: does not exist"),
        (MAPPING, ROW, "11 7 7.jpg\n11 8 8.jpg\n", rf"{MAPPING}:7: 11 is in an earlier"),
        (MAPPING, ROW, "11 7\n", rf"{MAPPING}:6: '11 7'; 3 words a line"),
        (MAPPING, ROW, "../11 7 7.jpg\n", rf"{IMAGES}/11\.jpg: an image without contributor"),
        (IDENTITIES, "7.jpg 5\n", "7.jpg 5\n7.jpg 6\n", rf"{IDENTITIES}:3: 7\.jpg is in an earlier"),
        (IDENTITIES, "7.jpg 5\n", "7.jpg\n", rf"{IDENTITIES}:2: '7\.jpg'; 2 words a line"),
    ],
)
def test_tables_that_do_not_fit(root, file, old, new, message):
    text = (root / file).read_text()
    assert old in text
    (root / file).write_text(text.replace(old, new))
    with pytest.raises(UserError, match=message):
        load(root)


def test_a_link_out_of_the_folder(root):
    secret = paint(root.parent / "secret.jpg")
    (root / IMAGES / "0.jpg").unlink()
    (root / IMAGES / "0.jpg").symlink_to(secret)
    with pytest.raises(UserError, match=r"0\.jpg: a link that leads out"):
        load(root)


def test_nothing_there(tmp_path):
    with pytest.raises(UserError, match=f"{tmp_path}: no {IMAGES} there, nor in CelebAMask-HQ"):
        load(tmp_path)
