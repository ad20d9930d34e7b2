"""Loading contributions: a source's records are selected, held out, decoded and put together."""

import os
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions.house import House, named_house, place_of, renamed
from diffcredit.contributions.identities import Identities, merged, read_identities, remaining
from diffcredit.contributions.images import UnreadableImage, cut_off, square_pixels, without_pillows_warnings
from diffcredit.contributions.lots import check_lots, in_lots
from diffcredit.contributions.near_copies.records import NearCopyRule
from diffcredit.contributions.near_copies.rules import without_near_copies
from diffcredit.contributions.records import HOUSE, Contributions
from diffcredit.contributions.sources import AUTO, Record, Source, detect, source_class
from diffcredit.contributions.sources.files import existing
from diffcredit.errors import UserError
from diffcredit.util.links import real_path
from diffcredit.util.progress import Progress, silent
from diffcredit.util.seeds import derive_seed

RESOLUTIONS = range(4, 1025)
AT_A_TIME = 8  # images that a thread is given at once: handing over small ones one by one is slower than decoding them
REMEDY = "repair or remove it, or say unreadable: skip"
MUCH = 0.1  # of an image's area, from which on it is reported that it was cut off
LARGE = 8_000_000  # pixels from which images are decoded one after the other: the largest need over 1 GB each


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
    house: str | Path | House | Sequence[str] | None = None,
    identities: Identities | str | Path | None = None,
    near_copies: NearCopyRule | None = None,
    lots: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Contributions:
    """Read, check and decode a set of images with their contributors.

    :param path: what the source reads; None for the bundled ``openmoji`` and for datasets of the hub.
    :param source: a source such as ``Npz(heldout="split")``, the name of one, or ``auto``: by what is at ``path``.
    :param contributor: the metadata column or array that names the contributors.
    :param resolution: side of the decoded images in pixels, 4 to 1024.
    :param at_least: leave out contributors with fewer images, counted before ``holdout`` and with unreadable ones.
    :param draw: how many of the remaining contributors to draw at random; by default all of them.
    :param holdout: the fraction of each contributor's images to keep out of training, or the path of images that are
        all kept out and need no contributor. By default what the source itself keeps out, if anything.
    :param unreadable: whether an image that cannot be read stops the import or is listed in ``skipped``.
    :param house: the place of house images, which are in every coalition and credited to nobody, or the names of
        contributors whose images are the house's. ``at_least`` and ``draw`` do not count these contributors.
    :param identities: the accounts of each person, ``{person: [account, …]}`` or a file of that; they become one
        contributor before anything else is decided.
    :param near_copies: who is credited for near-copies; None counts all of them. ``at_least`` counts them too.
    :param lots: cut everybody's images into players of so many, and a smaller rest; see :mod:`.lots`.
    :param seed: determines which contributors are drawn, which of each contributor's images are kept out, who is
        first where near-copies are split, and which image is in which lot.
    :param progress: told of the search for near-copies.
    """
    _check_options(resolution, unreadable)
    check_lots(lots)
    root = None if path is None else Path(path)
    reader = _source(source, root)
    where = reader if root is None else root
    people = {} if identities is None else read_identities(identities)
    records = merged(_records(reader, root, contributor), people)
    named = named_house(house, records)
    records, left_out = select(records, at_least, draw, seed, named)
    records = _hold_out(records, holdout, root, seed)
    if all(record.heldout for record in records):
        raise UserError(f"{where}: no images there")
    contributors = sorted({_contributor(record) for record in records if not record.heldout} - named)
    skipped: list[str] = []
    cropped: list[str] = []
    add_to = None if unreadable == "stop" else skipped
    training, images = decode([r for r in records if not r.heldout], resolution, where, REMEDY, add_to, cropped)
    kept_out, heldout = decode([r for r in records if r.heldout], resolution, where, REMEDY, add_to)
    owners = [_contributor(record) for record in training]
    _check_contributors(where, contributors, owners)
    index = {name: i for i, name in enumerate(contributors)} | dict.fromkeys(named, HOUSE)
    own, pixels = _house_images(place_of(house), [root, holdout], records, resolution, add_to, cropped)
    training = training + own
    captioned = any(record.caption is not None for record in training)
    given, withheld = (Counter(record.contributor for record in some) for some in (records, kept_out))
    loaded = Contributions(
        images=np.concatenate([images, pixels]) if own else images,
        owner=np.array([*(index[name] for name in owners), *[HOUSE] * len(own)], dtype=np.int64),
        contributors=tuple(contributors),
        names=tuple(record.name for record in training),
        heldout=heldout,
        skipped=tuple(skipped),
        cropped=tuple(cropped),
        captions=tuple(record.caption or "" for record in training) if captioned else None,
        heldout_captions=tuple(record.caption or "" for record in kept_out) if captioned else None,
        left_out=left_out,
        given=tuple(given[name] for name in contributors),
        withheld=tuple(withheld[name] for name in contributors),
        accounts=remaining(people, {*contributors, *named}),
        heldout_names=tuple(record.name for record in kept_out),
    )
    if near_copies is not None:
        givers = [record.contributor for record in kept_out]
        loaded = without_near_copies(
            loaded, near_copies, images=root, heldout_givers=givers, seed=seed, progress=progress
        )
    return loaded if lots is None else in_lots(loaded, lots, seed)


def original_images(
    names: Sequence[str], path: str | Path | None, source: str | Source, contributor: str, resolution: int
) -> dict[str, NDArray[np.uint8]]:
    """Return the images ``names`` of what was loaded with these settings, decoded once more as uint8 (resolution,
    resolution, 3); without those that are gone or cannot be read."""
    root = None if path is None else Path(path)
    reader, wanted = _source(source, root), set(names)
    found = [record for record in _records(reader, root, contributor) if record.name in wanted]
    kept, pixels = decode(found, resolution, root, skipped=[])
    return {record.name: image for record, image in zip(kept, pixels, strict=True)}


def _check_options(resolution: int, unreadable: str) -> None:
    if resolution not in RESOLUTIONS:
        raise UserError(f"resolution: {resolution!r}; {RESOLUTIONS[0]} to {RESOLUTIONS[-1]} pixels are accepted")
    if unreadable not in ("stop", "skip"):
        raise UserError(f"unreadable: {unreadable!r}; stop or skip is accepted")


def _check_contributors(where: object, contributors: Sequence[str], owners: Collection[str]) -> None:
    """Refuse fewer than two contributors, and one who is not among the ``owners`` of the images that can be read."""
    if len(contributors) < 2:
        found = f"one contributor, {contributors[0]!r}" if contributors else "no contributor beside the house"
        raise UserError(f"{where}: {found}; at least 2 are accepted")
    for unread in sorted(set(contributors) - set(owners)):
        raise UserError(f"{where}: no training image of contributor {unread!r} can be read")


def _house_images(
    house: House | None,
    others: Sequence[object],
    records: Sequence[Record],
    resolution: int,
    skipped: list[str] | None,
    cropped: list[str],
) -> tuple[list[Record], NDArray[np.uint8]]:
    """Return the house's records and pixels. ``others`` has the other places of images, ``records`` what is there."""
    if house is None:
        return [], np.empty((0, resolution, resolution, 3), dtype=np.uint8)
    place = None if house.path is None else existing(Path(house.path))
    for other in others:
        _check_apart("house", place, Path(other) if isinstance(other, str | Path) else None)
    reader = _source(house.source, place)
    where = f"house: {reader if place is None else place}"
    found = renamed(_records(reader, place, None), {record.name for record in records})
    own, pixels = decode(found, resolution, where, REMEDY, skipped, cropped)
    if not own:
        raise UserError(f"{where}: no images there")
    return own, pixels


def _source(source: str | Source, path: Path | None) -> Source:
    if isinstance(source, str):
        return source_class(detect(existing(path)) if source == AUTO else source)()
    if not callable(source):
        raise UserError(f"source: {source!r} cannot be called; a Source, called with a path and a column, is accepted")
    return source


def _records(source: Source, path: Path | None, contributor: str | None) -> list[Record]:
    return sorted(source(path, contributor), key=lambda record: record.name)


def select(
    records: list[Record], at_least: int, draw: int | None, seed: int, house: Collection[str] = ()
) -> tuple[list[Record], tuple[str, ...]]:
    """Keep contributors with ``at_least`` training images or, with ``draw``, that many of them drawn at random; and
    those who stand for the ``house``, who are not counted.

    Return their records, and ``name (k images)`` for everybody else, whose held-out images are left out too. The draw
    ranks contributors by a hash of seed and name: it does not depend on what they gave.
    """
    if at_least < 1:
        raise UserError(f"at_least: {at_least!r}; a number of images from 1 is accepted")
    if draw is not None and draw < 2:
        raise UserError(f"draw: {draw!r}; a number of contributors from 2, or null for all, is accepted")
    if at_least == 1 and draw is None:
        return records, ()
    drawn = [record for record in records if record.contributor and record.contributor not in house]
    counts = Counter(record.contributor for record in drawn if not record.heldout)
    named = {record.contributor for record in drawn if record.contributor}
    enough = [name for name in named if counts[name] >= at_least]
    if draw is not None and draw > len(enough):
        found = f"there are {len(enough)} contributors with at least {at_least} images"
        raise UserError(f"draw: {draw}, but {found}; at most as many are accepted")
    if len(enough) < 2:
        most = max(counts.values(), default=0)
        left = f"{len(enough)} of {len(counts)} contributors, who gave up to {most} images"
        raise UserError(f"at_least: {at_least} leaves {left}; a number that leaves 2 or more is accepted")
    kept = set(sorted(enough, key=lambda name: derive_seed(seed, "draw", name))[:draw])
    left_out = tuple(f"{name} ({counts[name]} image{'s' * (counts[name] != 1)})" for name in sorted(named - kept))
    stay = kept.union(house, [None, ""])
    return [record for record in records if record.contributor in stay], left_out


def _hold_out(records: list[Record], holdout: float | str | Path | None, root: Path | None, seed: int) -> list[Record]:
    if holdout is None:
        return records
    training = [record for record in records if not record.heldout]
    if isinstance(holdout, str | Path):
        place = existing(Path(holdout))
        _check_apart("holdout", place, root)
        kept_out = [replace(record, heldout=True) for record in _records(_source(AUTO, place), place, None)]
        if not kept_out:
            raise UserError(f"holdout: no images at {place}")
        return training + kept_out
    if not 0 <= holdout < 1:
        raise UserError(f"holdout: {holdout!r}; a fraction from 0 to below 1, or a path, is accepted")
    return _stratified(training, holdout, seed)


def _check_apart(key: str, place: Path | None, other: Path | None) -> None:
    """Refuse a ``place`` of images within another one, or around it."""
    if place is None or other is None:
        return
    one, two = real_path(place), real_path(other)
    if one.is_relative_to(two) or two.is_relative_to(one):
        raise UserError(f"{key}: {place} and the images at {other} overlap; separate places are accepted")


def _stratified(training: list[Record], fraction: float, seed: int) -> list[Record]:
    """Mark ``fraction`` of each contributor's images, rounded half up, as held out, by the hash of seed and names."""
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


def decode(
    records: Sequence[Record],
    resolution: int,
    where: object,
    remedy: str = "repair or remove it",
    skipped: list[str] | None = None,
    cropped: list[str] | None = None,
) -> tuple[list[Record], NDArray[np.uint8]]:
    """Return the records that can be read and their (count, resolution, resolution, 3) pixels, in the same order.

    The others are added to ``skipped``; where that is None, the first of them is a UserError that ends with ``remedy``.
    The names of those that lose much at their sides are added to ``cropped``.
    """
    try:
        pixels = np.empty((len(records), resolution, resolution, 3), dtype=np.uint8)
    except MemoryError:
        size = f"{len(records):,} images of {resolution} x {resolution} pixels"
        raise UserError(f"resolution: {size} do not fit into the memory") from None

    large, lost = Lock(), np.zeros(len(records))

    def fill(row: int) -> str | None:
        try:
            with records[row].open() as image, large if image.width * image.height > LARGE else nullcontext():
                pixels[row] = square_pixels(image, resolution)
                lost[row] = cut_off(image)
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
            elif skipped is None:
                pool.shutdown(wait=False, cancel_futures=True)
                raise UserError(f"{where}: {records[row].name}: {why}; {remedy}")
            else:
                skipped.append(f"{records[row].name}: {why}")
    if cropped is not None:
        cropped += [records[row].name for row in kept if lost[row] > MUCH]
    return [records[row] for row in kept], pixels if len(kept) == len(records) else pixels[kept]
