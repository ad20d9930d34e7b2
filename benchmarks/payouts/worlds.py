"""Games on images with known values, one of which is learnt, and their exact Shapley values.

A game is a function of which images are there, not of who brought them. So what a false name or a copy changes can be
computed, and not only estimated: the players are other sets of images, the game stays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

PEOPLE = ("Ada", "Ben", "Cy", "Dee", "Eli")
EACH = 12  # images of each person
HOUSE = 20  # the house's own digits, which every model is trained with
HELD_OUT = 300
TOPICS = 10
CHUNK = 2048  # coalitions whose models are fitted at once

Game = Callable[[BoolArray], FloatArray]


@dataclass(frozen=True, eq=False)
class World:
    """Five people with twelve images each, as the ``number`` of the world has it."""

    number: int

    @cached_property
    def owner(self) -> IntArray:
        return np.repeat(np.arange(len(PEOPLE)), EACH)

    @cached_property
    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(self.number)

    @cached_property
    def _worth(self) -> FloatArray:
        """(m,): of some people's images more than of others', of nobody's less than nothing."""
        people = self._generator.gamma(2.0, 0.5, len(PEOPLE))
        return people[self.owner] * self._generator.uniform(0.5, 1.5, len(self.owner))

    @cached_property
    def _topics(self) -> IntArray:
        """(m,): what each image shows; people have favourites."""
        tastes = self._generator.dirichlet(np.full(TOPICS, 0.3), len(PEOPLE))
        return np.array([self._generator.choice(TOPICS, p=tastes[person]) for person in self.owner])

    def adds_up(self, present: BoolArray) -> FloatArray:
        """Every image adds its worth."""
        return present @ self._worth

    def saturates(self, present: BoolArray) -> FloatArray:
        """Images add their worth, and the more there are, the less another one adds."""
        return present @ self._worth + 40 * np.log1p(present.sum(axis=1) / EACH)

    def covers_topics(self, present: BoolArray) -> FloatArray:
        """An image of a topic adds less the more images of it are there, whoever brought them."""
        counts = present @ (self._topics[:, None] == np.arange(TOPICS))
        return (1 - 0.6**counts).sum(axis=1)

    @cached_property
    def _digits(self) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
        """Features and one-hot labels of the house's and everybody's images; features and labels that are held out.

        People write their favourite digits, and the last one writes many wrong labels.
        """
        data = load_digits()
        features = data.images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(len(data.images), -1) / 16
        features = np.hstack([features, np.ones((len(features), 1))])
        order = self._generator.permutation(len(features))
        held, house, rest = order[:HELD_OUT], order[HELD_OUT : HELD_OUT + HOUSE], order[HELD_OUT + HOUSE :]
        chosen = np.empty(len(self.owner), dtype=np.intp)
        for image, topic in enumerate(self._topics):
            chosen[image] = rest[np.flatnonzero(data.target[rest] == topic)[0]]
            rest = rest[rest != chosen[image]]
        labels = data.target[np.concatenate([house, chosen])].copy()
        wrong = (self.owner == len(PEOPLE) - 1) & (self._generator.random(len(self.owner)) < 0.5)
        labels[HOUSE:][wrong] = self._generator.integers(0, TOPICS, int(wrong.sum()))
        own = features[np.concatenate([house, chosen])]
        return own, np.eye(TOPICS)[labels], features[held], data.target[held]

    def learnt(self, present: BoolArray) -> FloatArray:
        """The share of held-out digits that a classifier (ridge regression) gets right, which was trained on the
        house's digits and those that are there."""
        x, y, held, truth = self._digits
        squares = np.einsum("mi,mj->mij", x, x).reshape(len(x), -1)
        products = np.einsum("mi,mj->mij", x, y).reshape(len(x), -1)
        found = []
        for start in range(0, len(present), CHUNK):
            some = present[start : start + CHUNK]
            used = np.hstack([np.ones((len(some), HOUSE)), some])
            gram = (used @ squares).reshape(-1, x.shape[1], x.shape[1]) + 0.1 * np.eye(x.shape[1])
            weights = np.linalg.solve(gram, (used @ products).reshape(-1, x.shape[1], TOPICS))
            found.append(((held @ weights).argmax(axis=2) == truth).mean(axis=1))
        return np.concatenate(found)


GAMES: dict[str, Callable[[World], Game]] = {
    "adds up": lambda world: world.adds_up,
    "saturates": lambda world: world.saturates,
    "covers topics": lambda world: world.covers_topics,
    "learnt": lambda world: world.learnt,
}


@dataclass(frozen=True, eq=False)
class Accounts:
    """Who hands in which images: names, each with the person behind it and its images, cut into ``lot`` if not None."""

    names: tuple[str, ...]
    person: tuple[int, ...]
    images: tuple[IntArray, ...]
    lot: int | None

    @cached_property
    def players(self) -> list[tuple[int, IntArray]]:
        """The account and the images of each player of the game."""
        return [
            (account, images[first : first + size])
            for account, images in enumerate(self.images)
            for size in [self.lot or len(images)]
            for first in range(0, len(images), size)
        ]

    def present(self, coalitions: BoolArray, count: int) -> BoolArray:
        """Return (c, count): the images that coalitions (c, q) have."""
        holds = np.zeros((len(self.players), count))
        for player, (_, images) in enumerate(self.players):
            holds[player, images] = 1
        return coalitions @ holds > 0


def honest(world: World, lot: int | None) -> Accounts:
    """Everybody under one name. Which image is in which lot is decided by chance."""
    generator = np.random.default_rng([world.number, 1])
    images = [generator.permutation(np.flatnonzero(world.owner == person)) for person in range(len(PEOPLE))]
    return Accounts(PEOPLE, tuple(range(len(PEOPLE))), tuple(images), lot)


def split(accounts: Accounts, who: int, parts: int) -> Accounts:
    """One person under several names, who share the images by chance."""
    generator = np.random.default_rng([who, 2])
    shares = np.array_split(generator.permutation(accounts.images[who]), parts)
    kept = [account for account in range(len(accounts.names)) if account != who]
    return Accounts(
        (*(accounts.names[k] for k in kept), *(f"{accounts.names[who]} ({k + 1})" for k in range(parts))),
        (*kept, *[who] * parts),
        (*(accounts.images[k] for k in kept), *shares),
        accounts.lot,
    )


def copied(accounts: Accounts, who: int, whose: int) -> Accounts:
    """One person hands in copies of another's images as well."""
    images = list(accounts.images)
    images[who] = np.concatenate([images[who], images[whose]])
    return Accounts(accounts.names, accounts.person, tuple(images), accounts.lot)


def every_coalition(q: int) -> BoolArray:
    """(2^q, q), in the order of their numbers: bit i of a coalition's number is player i."""
    return ((np.arange(2**q)[:, None] >> np.arange(q)) & 1).astype(np.bool_)


def shapley(game: Game, accounts: Accounts, count: int) -> FloatArray:
    """Return (q,): the players' exact Shapley values, from all coalitions."""
    q = len(accounts.players)
    coalitions = every_coalition(q)
    values, sizes = game(accounts.present(coalitions, count)), coalitions.sum(axis=1)
    weight = np.array([1 / (q * comb(q - 1, size)) for size in range(q)])
    numbers = np.arange(2**q)
    found = []
    for player in range(q):
        without = numbers[~coalitions[:, player]]
        found.append(float(weight[sizes[without]] @ (values[without | 1 << player] - values[without])))
    return np.array(found)
