import csv
import hashlib
import json
import os
import re
import sys
import unicodedata

import numpy as np
import pytest

from diffcredit.contributions import load_contributions
from diffcredit.contributions.house import House
from diffcredit.contributions.sources import tables
from diffcredit.contributions.sources.folders import BUNDLED, ImageFolder, OpenMoji
from diffcredit.errors import UserError

from ..pictures import BLUE, GREEN, RED, flat, jsonl, paint


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


def test_a_folder_that_may_not_be_read(root, monkeypatch):
    scandir = os.scandir

    def refused(path):
        if os.fspath(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(UserError, match="bob/deep: Permission denied"):
        load_contributions(root)


ROWS = [
    {"file_name": "b.png", "artist": "Zoë", "text": "a blue square"},
    {"file_name": "sub/a.png", "artist": "Ada", "text": "a green square"},
    {"file_name": "a.png", "artist": " Ada ", "text": None},
]


@pytest.fixture
def listed(tmp_path):
    paint(tmp_path / "data/a.png", RED)
    paint(tmp_path / "data/b.png", BLUE)
    paint(tmp_path / "data/sub/a.png", GREEN)
    return tmp_path / "data"


def write_csv(path, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)


def load_listed(listed, **options):
    return load_contributions(listed, source="imagefolder", contributor="artist", resolution=4, **options)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_both_forms(listed, form):
    if form == "jsonl":
        jsonl(listed / "metadata.jsonl", ROWS)
    else:
        write_csv(listed / "metadata.csv", ROWS)
    found = load_listed(listed)
    assert found.contributors == ("Ada", "Zoë")
    assert found.names == ("a.png", "b.png", "sub/a.png")
    assert found.owner.tolist() == [0, 1, 0]
    assert flat(found.images) == [RED, BLUE, GREEN]
    assert found.captions == ("", "a blue square", "a green square")


def test_captions_are_optional(listed):
    jsonl(listed / "metadata.jsonl", [{k: row[k] for k in ("file_name", "artist")} for row in ROWS])
    assert load_listed(listed).captions is None


def test_captions_in_another_column(listed):
    jsonl(listed / "metadata.jsonl", [row | {"title": f"title of {row['file_name']}"} for row in ROWS])
    found = load_contributions(listed, source=ImageFolder(caption="title"), contributor="artist")
    assert found.captions == ("title of a.png", "title of b.png", "title of sub/a.png")
    with pytest.raises(UserError, match=r"metadata\.jsonl:1: no column 'prompt'; there are: file_name, "):
        load_contributions(listed, source=ImageFolder(caption="prompt"), contributor="artist")


def test_class_indices_are_captions(listed):
    jsonl(listed / "metadata.jsonl", [row | {"kind": kind} for row, kind in zip(ROWS, (4, 0, None), strict=True)])
    found = load_contributions(listed, source=ImageFolder(caption="kind"), contributor="artist")
    expected = {row["file_name"]: text for row, text in zip(ROWS, ("4", "0", ""), strict=True)}
    assert dict(zip(found.names, found.captions, strict=True)) == expected


def test_byte_order_mark_blank_lines_and_line_ends(listed):
    text = "\r\n\r\n".join(json.dumps(row) for row in ROWS)
    (listed / "metadata.jsonl").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert len(load_listed(listed).names) == 3


def changed(line, **values):
    return [row | values if number == line else row for number, row in enumerate(ROWS, 1)]


def without(line, column):
    return [{k: v for k, v in row.items() if number != line or k != column} for number, row in enumerate(ROWS, 1)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            changed(2, artist=""),
            "metadata.jsonl:2: sub/a.png is an image without contributor: 'artist' is empty",
        ),
        (changed(3, artist=None), "metadata.jsonl:3: a.png is an image without contributor"),
        (without(2, "artist"), "metadata.jsonl:2: no column 'artist'; there are: file_name, text"),
        (without(1, "file_name"), "metadata.jsonl:1: no column 'file_name'; there are: artist, text"),
        (changed(2, artist=["Ada"]), "metadata.jsonl:2: artist ['Ada']; a text or an integer"),
        (changed(2, text=5.0), "metadata.jsonl:2: text 5.0; a text or an integer is accepted"),
        (changed(2, text=True), "metadata.jsonl:2: text True; a text or an integer is accepted"),
        (changed(2, file_name=7), "metadata.jsonl:2: file_name 7"),
        (changed(2, file_name="gone.png"), "metadata.jsonl:2: 'gone.png' does not exist"),
        (changed(2, file_name="../outside.png"), "metadata.jsonl:2: file_name '../outside.png' leads out"),
        (changed(2, file_name="/etc/passwd"), "metadata.jsonl:2: file_name '/etc/passwd' leads out"),
        (changed(2, file_name="..\\x.png"), "metadata.jsonl:2: file_name"),
        ([*ROWS, ROWS[1]], "metadata.jsonl:4: sub/a.png is in line 2 already"),
        (
            [*ROWS, ROWS[1] | {"file_name": "./sub//a.png"}],
            "metadata.jsonl:4: sub/a.png is in line 2 already",
        ),
        (changed(2, file_name="leak.png"), "leak.png: a link that leads out"),
        (ROWS[:1], "a.png: an image without contributor: metadata.jsonl has no row for it (nor for 2 more)"),
    ],
)
def test_mistakes_name_file_and_line(listed, rows, message):
    (listed / "leak.png").symlink_to(paint(listed.parent / "outside.png"))
    jsonl(listed / "metadata.jsonl", rows)
    with pytest.raises(UserError, match=re.escape(f"{listed}/{message}")):
        load_listed(listed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"file_name": "a.png", "artist": "Ada"}\n{"file_name": "b.png", ', ":2: not valid JSON"),
        ('["a.png", "Ada"]', ":1: list; a JSON object a line is accepted"),
        ("[" * 100_000, ":1: not valid JSON"),
        (b'{"file_name": "\xff.png"}', ": not UTF-8 text"),
        ('{"file_name": "' + "x" * 1_000_000 + '"}', ":1: over 1,000,000 characters in a line"),
        ('{"file_name": "a.png", "artist": "' + "x" * 256 + '"}', ":1: contributor 'xxxxxxxxxxxxxxxxxxxx'… has 256 ch"),
        ('{"file_name": "a.png", "artist": "A", "text": "\\ud800"}', ":1: text '\\ud800' is not valid Unicode"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_malformed_jsonl(listed, text, message):
    (listed / "metadata.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=re.escape(f"{listed / 'metadata.jsonl'}{message}")):
        load_listed(listed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file_name;artist\na.png;Ada\n", ":2: no column 'file_name'; there are: file_name;artist"),
        ("file_name,author\na.png,Ada\n", ":2: no column 'artist'; there are: file_name, author"),
        ("file_name,artist\na.png,Ada,Bob\n", ":2: 3 values for 2 columns"),
        ("file_name,artist,artist\na.png,Ada,Bob\n", ":1: a column is there twice"),
        ('file_name,artist\na.png,"Ada\n', ": not valid CSV"),
        ("file_name,artist\na.png," + "x" * 1_000_000, ":2: over 1,000,000 characters in a line"),
        ("file_name,artist\na.png," + "x" * 200_000, ":2: not valid CSV: field larger than field limit"),
        ('file_name,artist\na.png,"' + "x\n" * 100_000, ": not valid CSV: field larger than field limit"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_malformed_csv(listed, text, message):
    (listed / "metadata.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError) as caught:
        load_listed(listed)
    assert str(caught.value).startswith(str(listed / "metadata.csv"))
    assert message in str(caught.value)


def test_a_metadata_row_names_a_file_without_an_ending(listed):
    (listed / "b.png").rename(listed / "b")
    jsonl(listed / "metadata.jsonl", changed(1, file_name="b"))
    assert load_listed(listed).names == ("a.png", "b", "sub/a.png")


def test_a_table_that_is_too_large(listed, monkeypatch):
    monkeypatch.setattr(tables, "LARGEST_TABLE", 100)
    jsonl(listed / "metadata.jsonl", ROWS)
    with pytest.raises(UserError, match=r"metadata\.jsonl: \d+ bytes; at most 100 are accepted"):
        load_listed(listed)


@pytest.fixture(scope="module")
def emoji():
    return load_contributions(source="openmoji", resolution=32)


def metadata(part):
    with (BUNDLED / part / "metadata.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_twelve_designers_of_like_size(emoji):
    assert emoji.n == 12
    assert 35 <= emoji.counts.min() <= emoji.counts.max() <= 70
    assert emoji.heldout.shape == (96, 32, 32, 3)
    held_out = [row["contributor"] for row in metadata("heldout")]
    assert {name: held_out.count(name) for name in held_out} == dict.fromkeys(emoji.contributors, 8)


def test_training_and_held_out_emoji_are_disjoint(emoji):
    assert emoji.duplicates() == []
    digests = [hashlib.sha256(image.tobytes()).digest() for image in (*emoji.images, *emoji.heldout)]
    assert len(set(digests)) == len(digests)
    training, held_out = ({row["hexcode"] for row in metadata(part)} for part in ("images", "heldout"))
    assert not training & held_out


def test_house_emoji_are_by_other_designers_who_are_named(emoji):
    mixed = load_contributions(source="openmoji", resolution=32, house=House(source=OpenMoji("house")))
    ours = metadata("house")
    assert (mixed.contributors, int(mixed.house.sum()), len(ours)) == (emoji.contributors, 36, 36)
    assert not {row["contributor"] for row in ours} & set(emoji.contributors)
    attribution = (BUNDLED / "ATTRIBUTION.md").read_text(encoding="utf-8")
    assert all(row["contributor"] in attribution for row in ours)
    digests = [hashlib.sha256(image.tobytes()).digest() for image in (*mixed.images, *mixed.heldout)]
    assert len(set(digests)) == len(digests)
    np.testing.assert_array_equal(mixed.heldout, emoji.heldout)


def test_licence_and_attribution_travel_with_the_images(emoji):
    assert "https://creativecommons.org/licenses/by-sa/4.0/legalcode" in (BUNDLED / "LICENSE.txt").read_text()
    attribution = (BUNDLED / "ATTRIBUTION.md").read_text(encoding="utf-8")
    for name in (*emoji.contributors, "https://openmoji.org", "CC BY-SA 4.0", "Changes made"):
        assert name in attribution
    for name, count in zip(emoji.contributors, emoji.counts, strict=True):
        assert any(line.startswith(f"| {name} |") and f"| {count} | 8 |" in line for line in attribution.splitlines())
