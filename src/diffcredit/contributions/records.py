"""The class :class:`Contributions`: images and who gave them.

*House images* are in every coalition and credited to nobody: the payer's own, licensed or public-domain ones."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions.near_copies.records import NearCopies
from diffcredit.errors import UserError
from diffcredit.util import artifacts

HOUSE = -1
"""The owner of house images. Mind that numpy takes this index for the last one."""
THE_HOUSE = "the house"


@dataclass(frozen=True)
class Duplicate:
    """One image that several contributors gave."""

    names: tuple[str, ...]
    """The identities of the byte-identical images, in the order of the contributions."""
    contributors: tuple[str, ...]
    """The two or more who gave them, sorted; the house may be one."""


@dataclass(frozen=True)
class Excluded:
    """A training image that its contributor gave and is not credited for."""

    name: str
    """The image's identity."""
    contributor: str
    """Who gave it, before lots."""
    reason: str
    """Why, in words without anybody else's name."""
    counterpart: str = ""
    """The image that stayed instead. Its name may tell whose it is: this is for the study's owner alone."""


@dataclass(frozen=True)
class Works:
    """A contributor's training images, as a statement lists them."""

    digest: str
    """SHA-256, in hex, of the images' own hashes: sorted, in hex, one a line without a newline at the end."""
    images: tuple[tuple[str, str], ...]
    """Each image's name and the SHA-256 of its pixels (uint8, rows of red, green, blue), in hex."""


@dataclass(frozen=True, eq=False)
class Contributions:
    """m training images of n contributors and of the house, and k held-out images of nobody; the same if the
    ``fingerprint`` is.

    The ``contributors`` are the players of the game. They are people, or each person's lots where ``lot`` says how many
    images one has; ``whose`` and ``givers`` then name the people.
    """

    images: NDArray[np.uint8]
    """(m, h, w, 3) RGB with h = w = the resolution, in an order determined by ``names`` alone."""
    owner: NDArray[np.int64]
    """(m,) each image's index into ``contributors``; :data:`HOUSE` of a house image."""
    contributors: tuple[str, ...]
    """n distinct names, sorted."""
    names: tuple[str, ...]
    """(m,) each image's identity: a relative path, a row number; unique."""
    heldout: NDArray[np.uint8]
    """(k, h, w, 3) images kept out of training; k may be 0."""
    skipped: tuple[str, ...] = ()
    """``file: reason`` for every image that could not be read."""
    cropped: tuple[str, ...] = ()
    """The identities of training images, house images included, of which more than a tenth of the area was cut off to
    make them square."""
    captions: tuple[str, ...] | None = None
    """(m,) texts, or None when the images have none."""
    heldout_captions: tuple[str, ...] | None = None
    """(k,) texts of the held-out images, "" where one has none; None when the training images have none."""
    left_out: tuple[str, ...] = ()
    """``name (k images)`` for every contributor left out for too few images, because nothing but near-copies was
    given, or not drawn."""
    given: tuple[int, ...] = ()
    """How many images each of ``givers`` gave, held-out, excluded and unreadable ones included; empty where not
    known."""
    withheld: tuple[int, ...] = ()
    """How many of those given are held out; empty where not known."""
    accounts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The accounts of each identity that several were merged into, or one was renamed to; empty where there is none."""
    lot: int | None = None
    """How many images a whole lot has; None where contributors' images are not cut into lots."""
    whose: Mapping[str, str] = field(default_factory=dict)
    """The contributor of each lot; empty without lots."""
    excluded: tuple[Excluded, ...] = ()
    """Readable training images that contributors gave and are not credited for."""
    heldout_names: tuple[str, ...] = ()
    """(k,) the held-out images' identities; empty where not known."""
    near_copies: NearCopies | None = None
    """The near-copies that a rule was applied to; None without a rule."""

    def __post_init__(self) -> None:
        m, side = len(self.names), self.images.shape[1:2]
        for name, array, count in (("images", self.images, m), ("heldout", self.heldout, len(self.heldout))):
            if array.dtype != np.uint8 or array.shape != (count, *side, *side, 3):
                raise ValueError(f"{name}: {array.dtype} {array.shape}; expected uint8 of (count, h, h, 3)")
        if self.owner.shape != (m,) or not np.issubdtype(self.owner.dtype, np.integer):
            raise ValueError(f"owner: {self.owner.dtype} {self.owner.shape}; expected integers of shape ({m},)")
        if m and not HOUSE <= self.owner.min() <= self.owner.max() < self.n:
            raise ValueError(f"owner: an index outside 0..{self.n - 1} that is not HOUSE, {HOUSE}")
        if len(set(self.contributors)) != self.n:
            raise ValueError("contributors: a name is there twice")
        if len(set(self.names)) != m:
            raise ValueError("names: an identity is there twice")
        if self.captions is not None and len(self.captions) != m:
            raise ValueError(f"captions: {len(self.captions)} for {m} images")
        if self.heldout_captions is not None and len(self.heldout_captions) != len(self.heldout):
            raise ValueError(f"heldout_captions: {len(self.heldout_captions)} for {len(self.heldout)} held-out images")
        if set(self.whose) != set(self.contributors if self.lot else ()):
            raise ValueError("whose: the lots are expected where there are lots, and nothing elsewhere")

    @property
    def n(self) -> int:
        """The number of contributors; of lots, where there are lots."""
        return len(self.contributors)

    @property
    def givers(self) -> tuple[str, ...]:
        """The people, sorted: the contributors, or those whose lots they are."""
        return tuple(sorted(set(self.whose.values()))) if self.lot else self.contributors

    @property
    def whole_lots(self) -> NDArray[np.bool_]:
        """(n,) which contributors are whole lots; none without lots."""
        return self.counts == (self.lot or -1)

    @property
    def counts(self) -> NDArray[np.int64]:
        """(n,) how many training images each contributor has."""
        return np.bincount(self.owner[~self.house], minlength=self.n).astype(np.int64)

    @property
    def house(self) -> NDArray[np.bool_]:
        """(m,) which training images are house images."""
        return self.owner == HOUSE

    @property
    def has_house(self) -> bool:
        """Whether there are house images."""
        return bool(self.house.any())

    @property
    def groups(self) -> tuple[NDArray[np.int64], ...]:
        """The sorted indices of each contributor's images; the house's come last, if there are any."""
        owners = [*range(self.n), *([HOUSE] if self.has_house else [])]
        return tuple(np.flatnonzero(self.owner == owner).astype(np.int64) for owner in owners)

    @property
    def group_counts(self) -> NDArray[np.int64]:
        """How many images each of ``groups`` has."""
        return np.append(self.counts, self.house.sum()) if self.has_house else self.counts

    def groups_of(self, coalition: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of ``groups`` a coalition's model learns from, (n,) or, with the house, (n + 1,)."""
        return np.append(self._checked(coalition), np.ones(int(self.has_house), dtype=np.bool_))

    def weights(self, coalition: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return each group's part of the images that the model of a coalition learns from; they sum to 1."""
        images = self.groups_of(coalition) * self.group_counts
        return images / images.sum()

    @property
    def summary(self) -> str:
        """The numbers of images and contributors, for people."""
        house = int(self.house.sum())
        more = f" and {house:,} house images" if house else ""
        return f"{len(self.names) - house:,} images of {len(self.givers)} contributors{self._lots_in_words}{more}"

    @property
    def _lots_in_words(self) -> str:
        if not self.lot:
            return ""
        whole = int(self.whole_lots.sum())
        rests = f" and {self.n - whole:,} smaller rest{'s' * (self.n - whole > 1)}" if self.n > whole else ""
        return f" in {whole:,} lot{'s' * (whole > 1)} of {self.lot}{rests}"

    @property
    def cropped_in_words(self) -> str:
        """A sentence about images that lost much when they were made square; empty where none did."""
        count = len({*self.cropped}.intersection(self.names))
        if not count:
            return ""
        were = "was" if count == 1 else "were"
        return (
            f"{count:,} of {len(self.names):,} images {were} cut by more than a tenth of the area: of an image that is "
            "not square the central square is learnt"
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the content: contributors, owner, names, images, heldout and captions."""
        # without such captions there is no key instead of an empty one, as in the fingerprints of existing ledgers
        heldout_captions = {"heldout_captions": list(self.heldout_captions)} if self.heldout_captions else {}
        arrays = {"images": self.images, "owner": self.owner.astype(np.int64), "heldout": self.heldout}
        return artifacts.fingerprint(
            {
                "contributors": list(self.contributors),
                "names": list(self.names),
                "captions": None if self.captions is None else list(self.captions),
                "arrays": artifacts.fingerprint_arrays(arrays),
                **heldout_captions,
            }
        )

    def of(self, coalition: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the sorted indices of what the model of a coalition, an (n,) boolean vector, learns from: the images
        that its members gave, and all house images."""
        # HOUSE is the index of what is appended
        return np.flatnonzero(np.append(self._checked(coalition), True)[self.owner]).astype(np.int64)

    def outside(self, coalition: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the sorted indices of all other images: those that contributors outside a coalition gave."""
        return np.flatnonzero(np.append(~self._checked(coalition), False)[self.owner]).astype(np.int64)

    def _checked(self, coalition: NDArray[np.bool_]) -> NDArray[np.bool_]:
        coalition = np.asarray(coalition)
        if coalition.shape != (self.n,) or coalition.dtype != np.bool_:
            raise ValueError(f"coalition: {coalition.dtype} {coalition.shape}; expected booleans of shape ({self.n},)")
        return coalition

    def giver(self, index: int) -> str:
        """Return who gave an image, in words: the person's name, also with lots, or the house."""
        if self.owner[index] == HOUSE:
            return THE_HOUSE
        player = self.contributors[self.owner[index]]
        return self.whose.get(player, player)

    def works(self, name: str) -> Works:
        """Return the training images that one of ``givers`` is credited for, all lots together, in the order of their
        names."""
        if name not in self.givers:
            raise UserError(f"{name!r} is no contributor; there are: {', '.join(self.givers)}")
        own = [i for i, player in enumerate(self.contributors) if self.whose.get(player, player) == name]
        rows = np.flatnonzero(np.isin(self.owner, own)).tolist()
        images = sorted((self.names[row], hashlib.sha256(self.images[row].tobytes()).hexdigest()) for row in rows)
        lines = "\n".join(sorted(digest for _, digest in images))
        return Works(hashlib.sha256(lines.encode()).hexdigest(), tuple(images))

    def duplicates(self) -> list[Duplicate]:
        """Return the images, byte-identical after decoding, that contributors, or one and the house, gave."""
        alike: dict[bytes, list[int]] = {}
        for index, image in enumerate(self.images):
            alike.setdefault(hashlib.sha256(image.tobytes()).digest(), []).append(index)
        found = []
        for indices in alike.values():
            givers = sorted({self.giver(index) for index in indices})
            if len(givers) > 1:
                found.append(Duplicate(tuple(self.names[index] for index in indices), tuple(givers)))
        return found
