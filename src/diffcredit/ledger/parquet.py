"""Numbered rows of one kind as a Parquet file, and back. The file may be a stranger's.

A Parquet file of a megabyte can state a terabyte: one text for a million rows, each text the beginning of the one
before, pages that unpack to thousands of times their size. Before anything is decoded, its rows, columns and pages are
held to what :func:`parquet_file` writes; texts stay in the file's dictionaries until their whole length is known.
"""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from diffcredit.errors import UserError
from diffcredit.ledger.parquet_pages import check_pages
from diffcredit.util.artifacts import canonical_json

JSON_COLUMNS = ("numerics", "seconds", "versions")
COLUMNS = {
    "evaluation": "number recipe coalition replicate purpose status error numerics seconds versions worker started "
    "finished",
    "value": "number evaluation property value standard_error images error",
}
"""The columns of each kind of row."""
WHOLE, REAL = {"number", "replicate", "evaluation", "images"}, {"value", "standard_error"}  # others are texts

MOST_ROWS = {"evaluation": 500_000, "value": 2_000_000}
MOST_BYTES = 1_000_000_000  # of all texts of a file; and of its pages, unpacked
MOST_ITEMS = 10_000_000  # values within the JSON of a file


def parquet_file(kind: str, rows: Sequence[tuple[int, Mapping[str, Any]]]) -> bytes:
    """Return a Parquet file of numbered rows of one ``kind``."""
    pyarrow = _pyarrow()
    if len(rows) > MOST_ROWS[kind]:
        raise UserError(f"{len(rows):,} rows of the kind {kind}; an archive has at most {MOST_ROWS[kind]:,}")
    columns = {
        name: [
            place if name == "number" else canonical_json(row[name]) if name in JSON_COLUMNS else row[name]
            for place, row in rows
        ]
        for name in COLUMNS[kind].split()
    }
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pydict(columns, schema=_schema(pyarrow, kind)), sink)
    return sink.getvalue()


def rows_of(kind: str, content: bytes) -> list[dict[str, Any]]:
    """Return the rows of a file that :func:`parquet_file` wrote, each with its number; raise ValueError for another."""
    pyarrow = _pyarrow()
    try:
        table = _read(pyarrow, kind, content)
        columns = [_values(pyarrow, name, table[name]) for name in table.column_names]
    except (pyarrow.ArrowException, OSError) as error:  # pyarrow has both
        raise ValueError(str(error)) from error
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def check_items(text: str, name: str) -> int:
    """Return how many values a JSON text may have, at most; refuse too many before they are read into memory."""
    items = sum(map(text.count, ",[{"))
    if items > MOST_ITEMS:
        raise ValueError(f"{name} has {items:,} values; at most {MOST_ITEMS:,} are accepted")
    return items


def _schema(pyarrow: Any, kind: str) -> Any:
    types = {**dict.fromkeys(WHOLE, pyarrow.int64()), **dict.fromkeys(REAL, pyarrow.float64())}
    return pyarrow.schema([(name, types.get(name, pyarrow.string())) for name in COLUMNS[kind].split()])


def _read(pyarrow: Any, kind: str, content: bytes) -> Any:
    """Return the table in a file, its texts as indices into dictionaries."""
    check_pages(content, MOST_BYTES)  # first: pyarrow does not survive every footer
    expected = _schema(pyarrow, kind)
    texts = [name for name in expected.names if expected.field(name).type == pyarrow.string()]
    if not pyarrow.parquet.read_schema(io.BytesIO(content)).equals(expected):
        raise ValueError(f"its columns are not those of the kind {kind}")
    file = pyarrow.parquet.ParquetFile(io.BytesIO(content), read_dictionary=texts)
    if file.metadata.num_rows > MOST_ROWS[kind]:
        raise ValueError(f"{file.metadata.num_rows:,} rows; at most {MOST_ROWS[kind]:,} are accepted")
    table = file.read()
    length = sum(_length(pyarrow, chunk) for name in texts for chunk in table[name].chunks)
    if length > MOST_BYTES:
        raise ValueError(f"{length:,} bytes of text; at most {MOST_BYTES:,} are accepted")
    return table


def _length(pyarrow: Any, chunk: Any) -> int:
    """Return the bytes of all texts of a column, each counted as often as it is there."""
    lengths = pyarrow.compute.binary_length(chunk.dictionary).cast(pyarrow.int64())
    return pyarrow.compute.sum(lengths.take(chunk.indices)).as_py() or 0


def _values(pyarrow: Any, name: str, column: Any) -> list[Any]:
    """Return a column's values; rows share equal texts and what JSON texts say."""
    if not pyarrow.types.is_dictionary(column.type):
        return column.to_pylist()
    found, items = [], 0
    for chunk in column.chunks:
        words = chunk.dictionary.to_pylist()
        if name in JSON_COLUMNS:
            items += sum(check_items(word, name) for word in words)
            if items > MOST_ITEMS or chunk.null_count:
                raise ValueError(f"{name} has {items:,} values, or a row has none; at most {MOST_ITEMS:,} are accepted")
            words = [json.loads(word) for word in words]
        found += [None if index is None else words[index] for index in chunk.indices.to_pylist()]
    return found


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise UserError("an archive needs the package pyarrow; pip install 'diffcredit[export]'") from error
    return pyarrow
