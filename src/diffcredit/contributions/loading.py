"""Loading contributions: a source's records are selected, held out, decoded and put together."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions.images import UnreadableImage, square_pixels, without_pillows_warnings
from diffcredit.contributions.records import Contributions
from diffcredit.contributions.selecting import select
from diffcredit.contributions.sources import AUTO, Record, Source, detect, source_named
from diffcredit.contributions.sources.files import existing
from diffcredit.errors import UserError
from diffcredit.util.seeds import derive_seed

RESOLUTIONS = range(4, 1025)
AT_A_TIME = 8  # images that a thread is given at once: handing over small ones one by one is slower than decoding them
LARGE = 8_000_000
"""Pixels from which images are decoded one after the other: the largest need over 1 GB each."""


def load_contributions(
    path: str | Path | None = None,
    *,
    source: str | Source = AUTO,
    contributor: str = "contributor",
    resolution: int = 32,
    at_least: int = 1,
    draw: int | None = None,
    holdout: float | str | Path | None = None,
    unreadable: Literal["stop", "skip"] = "stop",
    seed: int = 0,
) -> Contributions:
    """Read, check and decode a set of images with their contributors.

    :param path: what the source reads; None for the bundled ``openmoji`` and for datasets of the hub.
    :param source: a source such as ``Npz(heldout="split")``; or the name of one in ``SOURCES``, with its default
        options; or ``auto``: ``folders``, ``imagefolder`` or ``npz``, by what is at ``path``.
    :param contributor: the metadata column or array that names the contributors.
    :param resolution: side of the decoded images in pixels, 4 to 1024.
    :param at_least: leave out contributors with fewer images, counted before ``holdout`` and with unreadable ones;
        ``left_out`` lists them.
    :param draw: how many of the remaining contributors to draw at random; by default all of them.
    :param holdout: the fraction of each contributor's images to keep out of training, or the path of images that are
        all kept out and need no contributor. By default what the source itself keeps out, if anything.
    :param unreadable: whether an image that cannot be read stops the import or is listed in ``skipped``.
    :param seed: determines which contributors are drawn and which images are kept out. What is kept out of one
        contributor's images does not depend on the others.
    """
    _check_options(resolution, unreadable)
    root = None if path is None else Path(path)
    reader = _source(source, root)
    where = reader if root is None else root
    records, left_out = select(_records(reader, root, contributor), at_least, draw, seed)
    if holdout is not None:
        records = _hold_out(records, holdout, root, seed)
    if all(record.heldout for record in records):
        raise UserError(f"{where}: no images there")
    contributors = sorted({_contributor(record) for record in records if not record.heldout})

    skipped: list[str] = []
    stop = unreadable == "stop"
    training, images = _decode([r for r in records if not r.heldout], resolution, where, stop, skipped)
    kept_out, heldout = _decode([r for r in records if r.heldout], resolution, where, stop, skipped)
    owners = [_contributor(record) for record in training]
    index = {name: i for i, name in enumerate(contributors)}
    _check_contributors(contributors, owners, where)
    captioned = any(record.caption is not None for record in training)
    return Contributions(
        images=images,
        owner=np.array([index[name] for name in owners], dtype=np.int64),
        contributors=tuple(contributors),
        names=tuple(record.name for record in training),
        heldout=heldout,
        skipped=tuple(skipped),
        captions=_captions(training) if captioned else None,
        heldout_captions=_captions(kept_out) if captioned else None,
        left_out=left_out,
    )


def _check_options(resolution: int, unreadable: str) -> None:
    if isinstance(resolution, bool) or not isinstance(resolution, int) or resolution not in RESOLUTIONS:
        raise UserError(
            f"resolution: {resolution!r}; {RESOLUTIONS.start} to {RESOLUTIONS.stop - 1} pixels are accepted"
        )
    if unreadable not in ("stop", "skip"):
        raise UserError(f"unreadable: {unreadable!r}; stop or skip is accepted")


def _captions(records: Sequence[Record]) -> tuple[str, ...]:
    return tuple(record.caption or "" for record in records)


def _source(source: str | Source, path: Path | None) -> Source:
    if source == AUTO:
        return source_named(detect(existing(path)))
    if isinstance(source, str):
        return source_named(source)
    if not callable(source):
        raise UserError(f"source: {source!r} cannot be called; a Source, called with a path and a column, is accepted")
    return source


def _records(source: Source, path: Path | None, contributor: str | None) -> list[Record]:
    """Return a source's records, sorted by name."""
    return sorted(source(path, contributor), key=lambda record: record.name)


def _hold_out(records: list[Record], holdout: float | str | Path, root: Path | None, seed: int) -> list[Record]:
    training = [record for record in records if not record.heldout]
    if isinstance(holdout, str | Path):
        place = existing(Path(holdout))
        if root is not None and _overlap(place.resolve(), root.resolve()):
            raise UserError(f"holdout: {place} and the contributions at {root} overlap; separate places are accepted")
        kept_out = [replace(record, heldout=True) for record in _records(_source(AUTO, place), place, None)]
        if not kept_out:
            raise UserError(f"holdout: no images at {place}")
        return training + kept_out
    if isinstance(holdout, bool) or not isinstance(holdout, int | float) or not 0 <= holdout < 1:
        raise UserError(f"holdout: {holdout!r}; a fraction from 0 to below 1, or a path, is accepted")
    return _stratified(training, holdout, seed)


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


def _stratified(training: list[Record], fraction: float, seed: int) -> list[Record]:
    """Mark ``fraction`` of each contributor's images, rounded half up, as held out.

    The draw ranks images by a hash of seed, contributor and name: it does not change when others join or leave.
    """
    by_contributor: dict[str, list[Record]] = {}
    for record in training:
        by_contributor.setdefault(_contributor(record), []).append(record)
    kept_out: set[str] = set()
    for name, own in by_contributor.items():
        count = int(fraction * len(own) + 0.5)
        if count == len(own):
            raise UserError(f"holdout: {fraction} leaves contributor {name!r}, who gave {len(own)}, no training image")
        ranked = sorted(own, key=lambda record: derive_seed(seed, "holdout", _contributor(record), record.name))
        kept_out.update(record.name for record in ranked[:count])
    return [replace(record, heldout=record.name in kept_out) for record in training]


def _contributor(record: Record) -> str:
    if record.contributor is None:
        raise UserError(f"{record.name}: an image without contributor")
    return record.contributor


def _decode(
    records: Sequence[Record], resolution: int, where: object, stop: bool, skipped: list[str]
) -> tuple[list[Record], NDArray[np.uint8]]:
    """Return the records that could be read and their (count, resolution, resolution, 3) pixels, in the same order."""
    try:
        pixels = np.empty((len(records), resolution, resolution, 3), dtype=np.uint8)
    except MemoryError:
        raise UserError(
            f"resolution: {len(records):,} images of {resolution} x {resolution} pixels do not fit into the memory"
        ) from None

    large = Lock()

    def fill(row: int) -> str | None:
        try:
            with records[row].open() as image, large if image.width * image.height > LARGE else nullcontext():
                pixels[row] = square_pixels(image, resolution)
        except UnreadableImage as error:
            return str(error)
        # on hostile files Pillow's decoders raise more than OSError: SyntaxError, struct.error, IndexError…
        except Exception as error:
            return f"cannot be decoded ({type(error).__name__}: {error})"
        return None

    def fill_some(first: int) -> list[str | None]:
        return [fill(row) for row in range(first, min(first + AT_A_TIME, len(records)))]

    kept = []
    with without_pillows_warnings(), ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        problems = chain.from_iterable(pool.map(fill_some, range(0, len(records), AT_A_TIME)))
        for row, why in enumerate(problems):
            if why is None:
                kept.append(row)
            elif stop:
                pool.shutdown(wait=False, cancel_futures=True)
                raise UserError(f"{where}: {records[row].name}: {why}; repair or remove it, or say unreadable: skip")
            else:
                skipped.append(f"{records[row].name}: {why}")
    if len(kept) < len(records):
        pixels = pixels[kept]
    return [records[row] for row in kept], pixels


def _check_contributors(contributors: Sequence[str], owners: Sequence[str], where: object) -> None:
    if len(contributors) < 2:
        raise UserError(f"{where}: one contributor, {contributors[0]!r}; at least 2 are accepted")
    left_out = sorted(set(contributors) - set(owners))
    if left_out:
        raise UserError(f"{where}: no training image of contributor {left_out[0]!r} can be read")
