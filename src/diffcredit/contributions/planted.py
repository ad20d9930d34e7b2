"""Planted contributors whose right credit is known in advance: pure noise, and copies of another's images."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions.names import contributor_name
from diffcredit.contributions.records import Contributions
from diffcredit.errors import UserError
from diffcredit.util.seeds import derive_seed


def with_noise(
    contributions: Contributions, name: str = "noise", *, count: int | None = None, seed: int = 0
) -> Contributions:
    """Add a contributor of ``count`` images (default: the others' mean) of noise, who deserves no credit, or less."""
    if count is None:
        count = round(float(contributions.counts.mean()))
    if count < 1:
        raise UserError(f"count: {count}; at least 1 is accepted")
    shape = (count, *contributions.images.shape[1:])
    images = np.random.default_rng(derive_seed(seed, "noise", name)).integers(0, 256, shape, dtype=np.uint8)
    return _join(contributions, name, images, [f"{index:08d}" for index in range(count)], [""] * count)


def with_copies(contributions: Contributions, *, of: str, name: str) -> Contributions:
    """Add a contributor with copies of all training images of contributor ``of``, who deserves the same credit."""
    if of not in contributions.contributors:
        raise UserError(f"of: {of!r} is no contributor; there are: {', '.join(contributions.contributors)}")
    copied = np.flatnonzero(contributions.owner == contributions.contributors.index(of))
    captions = contributions.captions or ("",) * len(contributions.names)
    names = [contributions.names[index] for index in copied]
    return _join(contributions, name, contributions.images[copied], names, [captions[index] for index in copied])


def _join(
    contributions: Contributions, name: str, images: NDArray[np.uint8], names: list[str], captions: list[str]
) -> Contributions:
    """Append the new contributor's images, so that the others keep their places. Contributors stay sorted."""
    name = contributor_name(name, "name")
    if name in contributions.contributors:
        raise UserError(f"name: {name!r} is a contributor already; another name is accepted")
    contributors = tuple(sorted((*contributions.contributors, name)))
    place = contributors.index(name)
    owner = contributions.owner + (contributions.owner >= place)
    taken = set(contributions.names)
    folder = f"{name}/"
    while any(folder + own in taken for own in names):
        folder = f"{name}/{folder}"
    return replace(
        contributions,
        images=np.concatenate([contributions.images, images]),
        owner=np.concatenate([owner, np.full(len(images), place, dtype=np.int64)]),
        contributors=contributors,
        names=contributions.names + tuple(folder + own for own in names),
        captions=None if contributions.captions is None else contributions.captions + tuple(captions),
        given=(),
        withheld=(),
        whose={**contributions.whose, name: name} if contributions.lot else {},
    )
