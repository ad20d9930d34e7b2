"""The pages of a Parquet file, before anything is decoded: how large they will be, and that they say what they mean.

A Parquet library decodes whatever a page's header states, and pyarrow does not show these headers. They are written in
Thrift's compact protocol (https://github.com/apache/parquet-format, ``PageHeader``).
"""

from collections.abc import Iterator
from typing import Any

# where a text is at most as long as what is in its page: plain, or an index into a dictionary
ENCODINGS = {0: "PLAIN", 2: "PLAIN_DICTIONARY", 3: "RLE", 8: "RLE_DICTIONARY"}
CODECS = ("SNAPPY", "UNCOMPRESSED")  # unpack to at most about twenty times their size
WRITER = "parquet-cpp-arrow"  # for others, pyarrow reads beyond what a file states, to work round their errors
UNPACKED, PACKED, HEADERS = 2, 3, (5, 7, 8)  # fields of a page's header
ENCODING = {5: 2, 7: 2, 8: 4}  # the field of its encoding, by kind of header


def check_pages(content: bytes, metadata: Any, most: int) -> None:
    """Raise ValueError unless the pages of all columns unpack to at most ``most`` bytes, by means that cannot unpack to
    more. ``metadata`` is pyarrow's of the file."""
    if not str(metadata.created_by).startswith(WRITER):
        raise ValueError(f"written by {str(metadata.created_by)[:40]!r}; {WRITER} is accepted")
    unpacked = 0
    for group in range(metadata.num_row_groups):
        for column in map(metadata.row_group(group).column, range(metadata.num_columns)):
            if column.compression not in CODECS:
                raise ValueError(f"a column packed by {column.compression}; {' or '.join(CODECS)} is accepted")
            for page in _pages(content, column):
                unpacked += page[UNPACKED]
                if unpacked > most:
                    raise ValueError(f"its pages unpack to more than {most:,} bytes, the most that is accepted")


def _pages(content: bytes, column: Any) -> Iterator[dict[int, Any]]:
    """Yield the headers of a column's pages, as pyarrow finds them."""
    place = column.data_page_offset
    first = column.dictionary_page_offset
    if column.has_dictionary_page and first is not None and 0 < first < place:
        place = first
    end = place + column.total_compressed_size
    if not 0 < place <= end <= len(content):
        raise ValueError("a column lies outside the file")
    while place < end:
        page, place = _struct(content, place)
        if min(page[UNPACKED], page[PACKED]) < 0:
            raise ValueError("a page of a negative size")
        for kind in HEADERS:
            encoding = page[kind][ENCODING[kind]] if kind in page else 0
            if encoding not in ENCODINGS:
                raise ValueError(f"a page of encoding {encoding}; {', '.join(ENCODINGS.values())} are accepted")
        yield page
        place += page[PACKED]


def _struct(content: bytes, place: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a Thrift struct by their numbers, and the place behind it."""
    fields, number = {}, 0
    while (head := content[place]) != 0:
        place += 1
        step, kind = head >> 4, head & 15
        if step:
            number += step
        else:
            number, place = _integer(content, place)
        if kind in (1, 2):  # true, false
            fields[number] = kind == 1
        elif kind == 3:
            fields[number], place = content[place], place + 1
        elif kind in (4, 5, 6):
            fields[number], place = _integer(content, place)
        elif kind == 8:
            size, place = _varint(content, place)
            place += size
        elif kind == 12:
            fields[number], place = _struct(content, place)
        else:
            raise ValueError(f"a page's header with a field of type {kind}, which none has")
    return fields, place + 1


def _integer(content: bytes, place: int) -> tuple[int, int]:
    value, place = _varint(content, place)
    return (value >> 1) ^ -(value & 1), place


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError("a number of more than 64 bits")
