"""Pairs of near-copies that a person found, for instance among look-alikes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from diffcredit.contributions.near_copies.finding import Pairs
from diffcredit.contributions.sources.tables import path_within, rows
from diffcredit.errors import UserError, located
from diffcredit.util.sanitize import shortened

KEY = "near_copies.pairs"
NAME, COPY_OF = "file_name", "copy_of"  # the columns
UNKNOWN = -1  # in place of the bits that differ


def with_stated(pairs: Pairs, file: Path, names: Sequence[str]) -> tuple[Pairs, int]:
    """Return ``pairs`` of the images called ``names`` with those that ``file`` has beside, and how many it has."""
    if not file.is_file():
        raise UserError(f"{KEY}: {file}: no file there; a CSV or JSON lines file of pairs is accepted")
    known = set(zip(pairs.one.tolist(), pairs.two.tolist(), strict=True))
    stated = _stated(file, dict(zip(names, pairs.class_of, strict=False)))
    more = np.array(sorted(stated - known), dtype=np.int64).reshape(-1, 2)
    joined = replace(
        pairs,
        one=np.append(pairs.one, more[:, 0]),
        two=np.append(pairs.two, more[:, 1]),
        distance=np.append(pairs.distance, np.full(len(more), UNKNOWN)),
        mirrored=np.append(pairs.mirrored, np.zeros(len(more), dtype=np.bool_)),
    )
    return joined, len(stated)


def _stated(file: Path, class_of: dict[str, int]) -> set[tuple[int, int]]:
    """Return the pairs of classes in a table, the lower one first; not those of identical images."""
    found: set[tuple[int, int]] = set()
    with located(KEY):
        for line, row in rows(file):
            where = f"{file}:{line}"
            given = [path_within(row, column, where) for column in (NAME, COPY_OF)]
            for column, name in zip((NAME, COPY_OF), given, strict=True):
                if name not in class_of:
                    raise UserError(f"{where}: {column} {shortened(name)} is no training image of the study")
            one, two = sorted(class_of[name] for name in given)
            if given[0] == given[1]:
                raise UserError(f"{where}: {shortened(given[0])} beside itself; two images are accepted")
            if one != two:
                found.add((one, two))
    return found
