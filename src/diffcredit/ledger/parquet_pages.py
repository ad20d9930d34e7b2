"""The footer and the pages of a Parquet file, before anything is decoded: how large its pages will be, and that they
say what they mean.

A Parquet library decodes whatever a page's header states. pyarrow does not show these headers, and ends the process
where the footer names a codec that it does not know. Both are written in Thrift's compact protocol
(https://github.com/apache/parquet-format, ``parquet.thrift``).
"""

from collections.abc import Iterator
from typing import Any

MAGIC = b"PAR1"
LARGEST_FOOTER = 1_000_000  # bytes
WRITER = b"parquet-cpp-arrow"  # for others, pyarrow reads beyond what a file states, to work round their errors
CODECS = (0, 1)  # none, and Snappy, which unpacks to at most about twenty times its size
# where a text is at most as long as what is in its page: plain, or an index into a dictionary
ENCODINGS = {0: "PLAIN", 2: "PLAIN_DICTIONARY", 3: "RLE", 8: "RLE_DICTIONARY"}

# the numbers of fields: of the file, of a group of rows, of a column in it, of that column's description
ROW_GROUPS, CREATED_BY = 4, 6
COLUMNS = 1
ELSEWHERE, DESCRIPTION = 1, 3
CODEC, PACKED_SIZE, DATA, DICTIONARY = 4, 7, 9, 11
# of a page's header, and of its parts: the number of the field in which each has its encoding
UNPACKED, PACKED = 2, 3
ENCODING = {5: 2, 7: 2, 8: 4}

Struct = dict[int, Any]


def check_pages(content: bytes, most: int) -> None:
    """Raise ValueError unless a file's pages unpack to at most ``most`` bytes, by means that cannot unpack to more."""
    footer = _footer(content)
    if not footer[CREATED_BY].startswith(WRITER):
        raise ValueError(f"written by {footer[CREATED_BY][:40]!r}; {WRITER.decode()} is accepted")
    unpacked = 0
    for group in footer[ROW_GROUPS]:
        for column in group[COLUMNS]:
            if ELSEWHERE in column:
                raise ValueError("a column that is in another file")
            for page in _pages(content, column[DESCRIPTION]):
                unpacked += page[UNPACKED]
                if unpacked > most:
                    raise ValueError(f"its pages unpack to more than {most:,} bytes, the most that is accepted")


def _footer(content: bytes) -> Struct:
    size = int.from_bytes(content[-8:-4], "little")
    if content[:4] != MAGIC or content[-4:] != MAGIC or size > len(content) - 12:
        raise ValueError("no Parquet file")
    if size > LARGEST_FOOTER:
        raise ValueError(f"a footer of more than {LARGEST_FOOTER:,} bytes")
    return _struct(content, len(content) - 8 - size)[0]


def _pages(content: bytes, column: Struct) -> Iterator[Struct]:
    """Yield the headers of a column's pages, as pyarrow finds them."""
    if column[CODEC] not in CODECS:
        raise ValueError(f"a column packed by codec {column[CODEC]}; Snappy or none is accepted")
    place = column[DATA]
    if 0 < column.get(DICTIONARY, 0) < place:
        place = column[DICTIONARY]
    end = place + column[PACKED_SIZE]
    if not 0 < place <= end <= len(content):
        raise ValueError("a column lies outside the file")
    while place < end:
        page, place = _struct(content, place)
        if min(page[UNPACKED], page[PACKED]) < 0:
            raise ValueError("a page of a negative size")
        for part, number in ENCODING.items():
            encoding = page[part][number] if part in page else 0
            if encoding not in ENCODINGS:
                raise ValueError(f"a page of encoding {encoding}; {', '.join(ENCODINGS.values())} are accepted")
        yield page
        place += page[PACKED]


def _struct(content: bytes, place: int) -> tuple[Struct, int]:
    """Return the fields of a Thrift struct by their numbers, and the place behind it."""
    fields: Struct = {}
    number = 0
    while (head := content[place]) != 0:
        place += 1
        if head >> 4:
            number += head >> 4
        else:
            number, place = _integer(content, place)
        if number in fields:  # readers differ in what they make of it
            raise ValueError(f"a field {number} that is there twice")
        kind = head & 15
        if kind in (1, 2):  # true and false have nothing behind their kind, except in a list
            fields[number] = kind == 1
        else:
            fields[number], place = _value(content, place, kind)
    return fields, place + 1


def _value(content: bytes, place: int, kind: int) -> tuple[Any, int]:
    """Return a value of a Thrift type, and the place behind it."""
    if kind in (1, 2, 3):
        return content[place], place + 1
    if kind in (4, 5, 6):
        return _integer(content, place)
    if kind == 7:  # a real number, which nobody needs here
        return None, place + 8
    if kind == 8:
        size, place = _varint(content, place)
        return content[place : place + size], place + size
    if kind in (9, 10):
        size, kind, place = content[place] >> 4, content[place] & 15, place + 1
        if size == 15:
            size, place = _varint(content, place)
        values = []
        for _ in range(size):
            value, place = _value(content, place, kind)
            values.append(value)
        return values, place
    if kind == 12:
        return _struct(content, place)
    raise ValueError(f"a value of type {kind}, which a Parquet file does not have")


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
