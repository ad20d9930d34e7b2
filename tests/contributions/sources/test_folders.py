import os
import sys
import unicodedata

import pytest

from diffcredit.contributions import load_contributions
from diffcredit.errors import UserError

from ..pictures import BLUE, GREEN, RED, flat, paint


@pytest.fixture
def root(tmp_path):
    paint(tmp_path / "data/ada/1.png", RED)
    paint(tmp_path / "data/bob/deep/er/2.JPEG", GREEN)
    paint(tmp_path / "data/bob/1.bmp", BLUE)
    return tmp_path / "data"


def test_a_folder_per_contributor(root):
    found = load_contributions(root, source="folders", resolution=4)
    assert found.contributors == ("ada", "bob")
    assert found.names == ("ada/1.png", "bob/1.bmp", "bob/deep/er/2.JPEG")
    assert found.owner.tolist() == [0, 1, 1]
    assert flat(found.images)[:2] == [RED, BLUE]
    assert found.captions is None


def test_what_is_no_image_is_passed_over(root):
    for name in (
        "ada/Thumbs.db",
        "ada/notes.txt",
        "metadata.json",
        "README.md",
        "ada/.hidden.png",
        ".trash/x.png",
    ):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("no image")
    paint(root / ".cache/ada/9.png")
    assert len(load_contributions(root, source="folders").names) == 3


def test_an_image_in_the_root_has_no_contributor(root):
    stray = paint(root / "stray.png")
    with pytest.raises(UserError, match=f"{stray}: an image without contributor"):
        load_contributions(root)


def test_nobody_is_left_out_in_silence(root):
    (root / "eve").mkdir()
    (root / "eve/picture.xcf").touch()
    with pytest.raises(UserError, match="eve: a contributor's folder without images"):
        load_contributions(root)


def test_unicode_names_have_one_form(root):
    paint(root / unicodedata.normalize("NFD", "José") / "é.png")
    found = load_contributions(root)
    assert found.contributors == ("José", "ada", "bob")
    assert found.names[0] == unicodedata.normalize("NFC", "José/é.png")


def test_two_forms_of_one_name(root):
    paint(root / "ada" / unicodedata.normalize("NFD", "é.png"))
    paint(root / "ada" / unicodedata.normalize("NFC", "é.png"))
    with pytest.raises(UserError, match=r"\.png: another file has the same name"):
        load_contributions(root)


def test_control_characters_in_a_folder_name(root):
    paint(root / "e\x1bve/1.png")
    with pytest.raises(UserError, match=r"1\.png: contributor .*U\+001B"):
        load_contributions(root)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names themselves")
def test_a_file_name_that_is_not_utf8(root):
    path = os.fsencode(root / "ada") + b"/\xff.png"
    with open(path, "wb") as file:  # noqa: PTH123 (the name is bytes)
        file.write((root / "ada/1.png").read_bytes())
    with pytest.raises(UserError, match="not valid UTF-8"):
        load_contributions(root)


def test_links(root, tmp_path):
    outside = paint(tmp_path / "outside/secret.png")
    (root / "ada/again.png").symlink_to(root / "ada/1.png")
    assert len(load_contributions(root).names) == 4
    (root / "ada/leak.png").symlink_to(outside)
    with pytest.raises(UserError, match=f"{root / 'ada/leak.png'}: a link that leads out"):
        load_contributions(root)
    (root / "ada/leak.png").unlink()
    (root / "bob/all").symlink_to(outside.parent)
    with pytest.raises(UserError, match=f"{root / 'bob/all'}: a link to a folder"):
        load_contributions(root)


def test_a_broken_link_names_itself(root):
    (root / "ada/gone.png").symlink_to(root / "ada/nothing.png")
    with pytest.raises(UserError, match=r"ada/gone\.png: not a regular file"):
        load_contributions(root)


def test_a_folder_that_may_not_be_read(root, monkeypatch):
    scandir = os.scandir

    def refused(path):
        if os.fspath(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(UserError, match="bob/deep: Permission denied"):
        load_contributions(root)


def test_a_file_is_no_folder(root):
    with pytest.raises(UserError, match=r"1\.png: not a folder"):
        load_contributions(root / "ada/1.png", source="folders")
