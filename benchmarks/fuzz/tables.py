"""``metadata.jsonl`` and ``metadata.csv`` beside images, with rows that lead outside or are no rows at all."""

import csv
import io
import json
from typing import Any

from hypothesis import strategies as st

from benchmarks.fuzz.bytes import EDITS, damaged

FILES = ("a.png", "b.png", "sub/c.png")
LINK = "link"  # a link that leads outside, and whose name has no image's ending: nobody must name it
_PATHS = st.sampled_from(
    [
        LINK,
        f"sub/../{LINK}",
        "../outside/secret.png",
        "sub/../../outside/secret.png",
        "./a.png",
        "sub\\..\\..\\outside\\secret.png",
        "C:\\secret.png",
        "/etc/passwd",
        "file:///etc/passwd",
        "~/x.png",
        "a.png\x00.txt",
        ".",
        "..",
        "",
        "metadata.jsonl",
        "x" * 5000,
        "a.png\u202e",
    ]
)
_NAMES = st.one_of(
    st.sampled_from(["Ada", "Zoë", "bob ", "", "\x1b[2J", "=1+1", "../x", "\ud800", "a" * 300, "\u200b", "<b>", "1"]),
    st.text(max_size=6),
)
_ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from([[], {}, [[[]]], {"bytes": "x"}, 10**400]),
)


@st.composite
def _rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A row for each image, of which some say something else than they should; and perhaps one too many."""
    rows: list[dict[str, Any]] = [
        {"file_name": name, "artist": giver, "text": "x"} for name, giver in zip(FILES, "aba", strict=True)
    ]
    for _ in range(draw(st.integers(0, 2))):
        row = draw(st.sampled_from(rows))
        key = draw(st.sampled_from(["file_name", "artist", "text", "other", ""]))
        value = draw(_PATHS) if key == "file_name" else draw(_NAMES)
        row[key] = draw(_ODD) if draw(st.integers(0, 3)) == 0 else value
    if draw(st.integers(0, 4)) == 0:
        rows.append({"file_name": draw(_PATHS), "artist": draw(_NAMES)})
    return rows


def _json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _csv_lines(rows: list[dict[str, Any]]) -> bytes:
    file = io.StringIO(newline="")
    table = csv.writer(file)
    table.writerow(rows[0])
    table.writerows(row.values() for row in rows)
    return file.getvalue().encode("utf-8", "surrogatepass")


@st.composite
def _tables(draw: st.DrawFn, written: Any) -> bytes:
    content = written(draw(_rows()))
    return damaged(content, draw(EDITS)) if draw(st.integers(0, 2)) == 0 else content


json_lines = _tables(_json_lines)
csv_lines = _tables(_csv_lines)
