import csv
import json
import re

import pytest

from diffcredit.contributions import load_contributions
from diffcredit.contributions.sources import tables
from diffcredit.contributions.sources.imagefolder import ImageFolder
from diffcredit.errors import UserError

from ..pictures import BLUE, GREEN, RED, flat, jsonl, paint

ROWS = [
    {"file_name": "b.png", "artist": "Zoë", "text": "a blue square"},
    {"file_name": "sub/a.png", "artist": "Ada", "text": "a green square"},
    {"file_name": "a.png", "artist": " Ada ", "text": None},
]


@pytest.fixture
def root(tmp_path):
    paint(tmp_path / "data/a.png", RED)
    paint(tmp_path / "data/b.png", BLUE)
    paint(tmp_path / "data/sub/a.png", GREEN)
    return tmp_path / "data"


def write_csv(path, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)


def load(root, **options):
    return load_contributions(root, source="imagefolder", contributor="artist", resolution=4, **options)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_both_forms(root, form):
    if form == "jsonl":
        jsonl(root / "metadata.jsonl", ROWS)
    else:
        write_csv(root / "metadata.csv", ROWS)
    found = load(root)
    assert found.contributors == ("Ada", "Zoë")
    assert found.names == ("a.png", "b.png", "sub/a.png")
    assert found.owner.tolist() == [0, 1, 0]
    assert flat(found.images) == [RED, BLUE, GREEN]
    assert found.captions == ("", "a blue square", "a green square")


def test_captions_are_optional(root):
    jsonl(root / "metadata.jsonl", [{k: row[k] for k in ("file_name", "artist")} for row in ROWS])
    assert load(root).captions is None


def test_captions_in_another_column(root):
    jsonl(root / "metadata.jsonl", [row | {"title": f"title of {row['file_name']}"} for row in ROWS])
    found = load_contributions(root, source=ImageFolder(caption="title"), contributor="artist")
    assert found.captions == ("title of a.png", "title of b.png", "title of sub/a.png")
    with pytest.raises(UserError, match=r"metadata\.jsonl:1: no column 'prompt'; there are: file_name, "):
        load_contributions(root, source=ImageFolder(caption="prompt"), contributor="artist")


def test_integers_name_contributors(root):
    jsonl(root / "metadata.jsonl", [row | {"artist": number} for number, row in enumerate(ROWS)])
    assert load(root).contributors == ("0", "1", "2")


def test_byte_order_mark_blank_lines_and_line_ends(root):
    text = "\r\n\r\n".join(json.dumps(row) for row in ROWS)
    (root / "metadata.jsonl").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert len(load(root).names) == 3


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
        (changed(2, artist="  "), "metadata.jsonl:2: sub/a.png is an image without contributor"),
        (changed(3, artist=None), "metadata.jsonl:3: a.png is an image without contributor"),
        (without(2, "artist"), "metadata.jsonl:2: no column 'artist'; there are: file_name, text"),
        (without(1, "file_name"), "metadata.jsonl:1: no column 'file_name'; there are: artist, text"),
        (changed(2, artist=["Ada"]), "metadata.jsonl:2: artist ['Ada']; a text or an integer"),
        (changed(2, artist=True), "metadata.jsonl:2: artist True; a text or an integer"),
        (changed(2, artist="a\x07b"), "metadata.jsonl:2: contributor"),
        (changed(2, text=5), "metadata.jsonl:2: text 5; a text is accepted"),
        (changed(2, file_name=7), "metadata.jsonl:2: file_name 7"),
        (changed(2, file_name=" "), "metadata.jsonl:2: file_name ' '"),
        (changed(2, file_name="gone.png"), "metadata.jsonl:2: 'gone.png' does not exist"),
        (changed(2, file_name="a\0.png"), "metadata.jsonl:2: 'a\\x00.png' does not exist"),
        (changed(2, file_name="x" * 5000), "metadata.jsonl:2: 'xxx"),
        (changed(2, file_name="sub"), "metadata.jsonl:2: 'sub' does not exist"),
        (changed(2, file_name="../outside.png"), "metadata.jsonl:2: file_name '../outside.png' leads out"),
        (changed(2, file_name="sub/../a.png"), "metadata.jsonl:2: file_name 'sub/../a.png' leads out"),
        (changed(2, file_name="/etc/passwd"), "metadata.jsonl:2: file_name '/etc/passwd' leads out"),
        (changed(2, file_name="C:\\x.png"), "metadata.jsonl:2: file_name"),
        (changed(2, file_name="..\\x.png"), "metadata.jsonl:2: file_name"),
        ([*ROWS, ROWS[1]], "metadata.jsonl:4: sub/a.png is in line 2 already"),
        (
            [*ROWS, ROWS[1] | {"file_name": "./sub//a.png"}],
            "metadata.jsonl:4: sub/a.png is in line 2 already",
        ),
        (ROWS[:2], "a.png: an image without contributor: metadata.jsonl has no row for it"),
        (ROWS[:1], "a.png: an image without contributor: metadata.jsonl has no row for it (nor for 1 more)"),
    ],
)
def test_mistakes_name_file_and_line(root, rows, message):
    paint(root.parent / "outside.png")
    jsonl(root / "metadata.jsonl", rows)
    with pytest.raises(UserError, match=re.escape(f"{root}/{message}")):
        load(root)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"file_name": "a.png", "artist": "Ada"}\n{"file_name": "b.png", ', ":2: not valid JSON"),
        ('{"file_name": "a.png", "artist": "Ada"}\n\nnonsense', ":3: not valid JSON"),
        ('["a.png", "Ada"]', ":1: list; a JSON object a line is accepted"),
        ("[" * 100_000, ":1: not valid JSON"),
        (b'{"file_name": "\xff.png"}', ": not UTF-8 text"),
        ('{"file_name": ' + "1" * 5000 + "}", ":1: not valid JSON"),
        ('{"file_name": "' + "x" * 1_000_000 + '"}', ":1: over 1,000,000 characters in a line"),
        ('{"file_name": "../' + "x" * 1000 + '"}', ":1: file_name '../xxx"),
        ('{"file_name": "a.png", "artist": "' + "x" * 256 + '"}', ":1: contributor 'xxxxxxxxxxxxxxxxxxxx'… has 256 ch"),
        ('{"file_name": "a.png", "artist": "A", "text": "\\ud800"}', ":1: text '\\ud800' is not valid Unicode"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_malformed_jsonl(root, text, message):
    (root / "metadata.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=re.escape(f"{root / 'metadata.jsonl'}{message}")):
        load(root)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file_name;artist\na.png;Ada\n", ":2: no column 'file_name'; there are: file_name;artist"),
        ("file_name,author\na.png,Ada\n", ":2: no column 'artist'; there are: file_name, author"),
        ("file_name,artist\na.png,Ada\nb.png\n", ":3: 1 values for 2 columns"),
        ("file_name,artist\na.png,Ada,Bob\n", ":2: 3 values for 2 columns"),
        ("file_name,artist,artist\na.png,Ada,Bob\n", ":1: a column is there twice"),
        ('file_name,artist\na.png,"Ada\n', ": not valid CSV"),
        ("file_name,artist\na.png,\n", ":2: a.png is an image without contributor"),
        (b"file_name,artist\na.png,\xff\n", ": not UTF-8 text"),
        ("file_name,artist\na.png," + "x" * 1_000_000, ":2: over 1,000,000 characters in a line"),
        ("file_name,artist\na.png," + "x" * 200_000, ":2: not valid CSV: field larger than field limit"),
        ('file_name,artist\na.png,"' + "x\n" * 100_000, ": not valid CSV: field larger than field limit"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_malformed_csv(root, text, message):
    (root / "metadata.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError) as caught:
        load(root)
    assert str(caught.value).startswith(str(root / "metadata.csv"))
    assert message in str(caught.value)


def test_one_metadata_file(root):
    with pytest.raises(UserError, match=f"{root}: no metadata.jsonl or metadata.csv there"):
        load(root)
    jsonl(root / "metadata.jsonl", ROWS)
    write_csv(root / "metadata.csv", ROWS)
    with pytest.raises(UserError, match=f"{root}: has both"):
        load(root)
    assert len(load(root / "metadata.csv").names) == 3


def test_no_rows(root):
    (root / "metadata.csv").write_text("")
    with pytest.raises(UserError, match=f"{root}/a.png: an image without contributor"):
        load(root)


def test_a_link_out_of_the_folder(root, tmp_path):
    (root / "leak.png").symlink_to(paint(tmp_path / "secret.png"))
    jsonl(root / "metadata.jsonl", [*ROWS, {"file_name": "leak.png", "artist": "Eve"}])
    with pytest.raises(UserError, match=r"leak\.png: a link that leads out"):
        load(root)


def test_a_metadata_row_names_a_file_without_an_ending(root):
    (root / "b.png").rename(root / "b")
    jsonl(root / "metadata.jsonl", changed(1, file_name="b"))
    assert load(root).names == ("a.png", "b", "sub/a.png")


def test_a_table_that_is_too_large(root, monkeypatch):
    monkeypatch.setattr(tables, "LARGEST_TABLE", 100)
    jsonl(root / "metadata.jsonl", ROWS)
    with pytest.raises(UserError, match=r"metadata\.jsonl: \d+ bytes; at most 100 are accepted"):
        load(root)


def test_no_message_is_longer_than_a_screen(root):
    jsonl(root / "metadata.jsonl", [{"x" * 900_000: 1}])
    with pytest.raises(UserError) as caught:
        load(root)
    assert len(str(caught.value)) < 500
