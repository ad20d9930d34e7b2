"""The designs, and `make_design`, which makes them by name."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import comb
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.coalitions.design import Design, as_integer, check_contributors, check_request
from diffcredit.coalitions.members import Allowed, Urn, balanced_sizes, draw_even, random_order, sizes_at, stack, stream
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray, FloatArray
from diffcredit.util.seeds import derive_seed

LARGEST = 16  # contributors of an exhaustive design
TRIES = 10_000
GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class _Seeded(ABC):
    """A design that checks a request before it draws its rows."""

    seed: int = 0
    name: ClassVar[str]
    """As in ``DESIGNS``. Random streams derive from it."""

    @abstractmethod
    def _rows(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike]) -> BoolArray: ...

    def draw(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike] = ()) -> BoolArray:
        check_request(n, start, count)
        return self._rows(n, start, count, exclude)

    def size_probabilities(self, n: int) -> FloatArray:
        """Return (n−1,): all sizes equally probable, unless a design says otherwise."""
        check_contributors(n)
        return np.full(n - 1, 1 / (n - 1))


class _Finite(_Seeded):
    """Finitely many coalitions, each once in random order."""

    @abstractmethod
    def _all(self, n: int) -> BoolArray:
        """Return the (m, n) coalitions."""

    def size_probabilities(self, n: int) -> FloatArray:
        check_contributors(n)
        coalitions = self._all(n)
        return np.bincount(coalitions.sum(axis=1), minlength=n)[1:n] / len(coalitions)

    def _rows(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike]) -> BoolArray:
        coalitions, allowed = self._all(n), Allowed(n, exclude)
        shuffled = coalitions[random_order(stream(self.name, self.seed, n), len(coalitions))]
        rows = shuffled[np.array([row in allowed for row in shuffled])]
        if start + count > len(rows):
            raise UserError(
                f"coalitions {start} to {start + count}: the {self.name} design of {n} contributors has {len(rows)}"
            )
        return rows[start : start + count]


class Exhaustive(_Finite):
    """All 2ⁿ − 2 coalitions except the empty and the full one, for n ≤ 16."""

    name = "exhaustive"

    def _all(self, n: int) -> BoolArray:
        if n > LARGEST:
            raise UserError(f"exhaustive design: {n} contributors; at most {LARGEST} (2^{LARGEST} coalitions)")
        return (np.arange(1, 2**n - 1)[:, None] >> np.arange(n) & 1).astype(np.bool_)


class LeaveOneOut(_Finite):
    """The n coalitions N∖{i}: all contributors but one."""

    name = "leave-one-out"

    def _all(self, n: int) -> BoolArray:
        return ~np.eye(n, dtype=np.bool_)


class AddOneIn(_Finite):
    """The n coalitions {i}: each contributor alone."""

    name = "add-one-in"

    def _all(self, n: int) -> BoolArray:
        return np.eye(n, dtype=np.bool_)


class _Spread(_Seeded):
    """Rows that overlap with earlier ones as evenly as possible (`draw_even`), sizes balanced at every length. None
    comes again while another of its size has come less often."""

    def _sizes(self, n: int, count: int) -> list[int]:
        return balanced_sizes(self.name, self.seed, n, self.size_probabilities(n), count)

    def _rows(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike]) -> BoolArray:
        return draw_even(self.name, self.seed, n, self._sizes(n, start + count), start, exclude)


class Uniform(_Spread):
    """The default: every block of n−1 rows has every size once, and every prefix of a block spreads over all sizes."""

    name = "uniform"

    def _sizes(self, n: int, count: int) -> list[int]:
        # Multiples of the golden ratio modulo 1 fill the unit interval evenly at every length. Their ranks are a
        # permutation of the sizes with the same property; a random rotation makes each row's size uniform.
        ranks = np.argsort(np.argsort(np.arange(n - 1) * GOLDEN % 1.0, kind="stable"), kind="stable")
        sizes: list[int] = []
        for block in range(-(-count // (n - 1))):
            rotation = derive_seed("coalitions", "uniform", self.seed, n, "sizes", block) % (n - 1)
            sizes.extend(1 + (int(rank) + rotation) % (n - 1) for rank in ranks)
        return sizes[:count]


class Half(_Spread):
    """Sizes Binomial(n, ½) on 1..n−1, so that all coalitions are equally probable; for Banzhaf values."""

    name = "half"

    def size_probabilities(self, n: int) -> FloatArray:
        check_contributors(n)
        # Python's integers, since C(n, s) and 2ⁿ exceed a float from n = 1030 on.
        return np.array([comb(n, size) / (2**n - 2) for size in range(1, n)])


class Mix(_Spread):
    """Sizes ½ Binomial(n, ½) + ½ arcsine, ∝ (s(n−s))^(−½): half of middle sizes, half spread out to the ends."""

    name = "mix"

    def size_probabilities(self, n: int) -> FloatArray:
        binomial, sizes = Half().size_probabilities(n), np.arange(1, n)
        arcsine = 1 / np.sqrt(sizes * (n - sizes))
        return (binomial + arcsine / arcsine.sum()) / 2


class Kernel(_Seeded):
    """The Shapley kernel, as in KernelSHAP: size k with probability ∝ (n−1)/(k(n−k)), then a uniformly random
    coalition of that size. Draws are independent, so that coalitions may come again."""

    name = "kernel"

    def size_probabilities(self, n: int) -> FloatArray:
        check_contributors(n)
        sizes = np.arange(1, n)
        kernel = (n - 1) / (sizes * (n - sizes))
        return kernel / kernel.sum()

    def _rows(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike]) -> BoolArray:
        allowed = Allowed(n, exclude)
        generators = [stream(self.name, self.seed, n, index) for index in range(start, start + count)]
        sizes = sizes_at([generator.random() for generator in generators], self.size_probabilities(n))
        return stack([allowed.draw(generator, size) for generator, size in zip(generators, sizes, strict=True)], n)


def with_complements(exclude: Iterable[ArrayLike]) -> Iterator[BoolArray]:
    """Yield each excluded coalition and its complement: what the first row of a pair must not be."""
    for vector in exclude:
        row = np.asarray(vector, dtype=np.bool_)
        yield row
        yield ~row


def paired(firsts: BoolArray) -> BoolArray:
    """Return (2m, n): each of the (m, n) rows, followed by its complement."""
    return np.stack([firsts, ~firsts], axis=1).reshape(-1, firsts.shape[1])


class KernelPaired(Kernel):
    """Draws from the Shapley kernel, each followed by its complement."""

    name = "kernel-paired"

    def _rows(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike]) -> BoolArray:
        first = start // 2
        firsts = super()._rows(n, first, -(-(start + count) // 2) - first, with_complements(exclude))
        return paired(firsts)[start % 2 :][:count]


class Leverage(_Seeded):
    """A coalition of size s with probability ∝ 1/C(n, s), its leverage score in the kernel's least squares.

    Leverage SHAP (Musco and Witter 2025). Each coalition is followed by its complement, sizes are balanced at every
    even length, and no pair comes again while another of its two sizes is left.
    """

    name = "leverage"

    def _rows(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike]) -> BoolArray:
        urn = Urn(n, with_complements(exclude))
        # the probabilities of 1, …, ⌊n/2⌋ as the smaller size of a pair; n/2 counts as one size
        smaller = np.full(n // 2, 2 / (n - 1))
        if n % 2 == 0:
            smaller[-1] /= 2
        firsts = []
        for index, size in enumerate(balanced_sizes("leverage", self.seed, n, smaller, -(-(start + count) // 2))):
            generator = stream("leverage", self.seed, n, index)
            larger_first = generator.random() < 0.5
            row = urn.draw(generator, size)
            # At size n/2 the complement is in the urn too.
            urn.take(~row)
            firsts.append(~row if larger_first else row)
        return paired(stack(firsts, n))[start : start + count]


class Permutation(_Seeded):
    """Rows k(n−1) … (k+1)(n−1)−1 are the proper prefixes of permutation k, smallest first.

    With F(∅) before and F(N) after them, the differences of consecutive values are the marginal contributions along
    the permutation. A permutation with an excluded prefix is drawn again.
    """

    name = "permutation"

    def _rows(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike]) -> BoolArray:
        allowed = Allowed(n, exclude)
        for size in range(1, n):
            allowed.count(size)
        permutations = range(start // (n - 1), -(-(start + count) // (n - 1)))
        rows = [row for index in permutations for row in self._prefixes(n, index, allowed)]
        return stack(rows, n)[start % (n - 1) :][:count]

    def _prefixes(self, n: int, index: int, allowed: Allowed) -> BoolArray:
        """Return (n−1, n): the prefixes of sizes 1, …, n−1 of permutation ``index``."""
        generator = stream("permutation", self.seed, n, index)
        for _ in range(TRIES):
            positions = random_order(generator, n)
            prefixes = positions < np.arange(1, n)[:, None]
            if all(row in allowed for row in prefixes):
                return prefixes
        raise UserError(
            f"exclude: in {TRIES} random permutations of {n} contributors none without an excluded prefix; "
            "exclude fewer coalitions"
        )


@dataclass(frozen=True)
class Subset(_Seeded):
    """All of size round(alpha·n), at least 1 and at most n−1, 0 < alpha < 1; for datamodels and LDS tests. No
    duplicates while another coalition is left."""

    alpha: float = 0.5
    name = "subset(alpha)"

    def _size(self, n: int) -> int:
        return min(max(round(self.alpha * n), 1), n - 1)

    def size_probabilities(self, n: int) -> FloatArray:
        check_contributors(n)
        return (np.arange(1, n) == self._size(n)).astype(np.float64)

    def _rows(self, n: int, start: int, count: int, exclude: Iterable[ArrayLike]) -> BoolArray:
        urn, streams = Urn(n, exclude), f"subset({self.alpha})"
        # Rows before start are drawn too, since they must not come again.
        indices = range(start + count)
        return stack([urn.draw(stream(streams, self.seed, n, i), self._size(n)) for i in indices][start:], n)


# Names as errors and docs list them. "family(alpha)" stands for a number between 0 and 1 in place of alpha; such a
# design is made from the seed and that number, all others from the seed alone.
_ALL = (AddOneIn, Exhaustive, Half, Kernel, KernelPaired, LeaveOneOut, Leverage, Mix, Permutation, Subset, Uniform)
DESIGNS: dict[str, Callable[..., Design]] = {design.name: design for design in _ALL}


def make_design(name: str, seed: int = 0) -> Design:
    """Return the design ``name``, such as "uniform" or "subset(0.5)". Raise UserError if there is none."""
    parametrised = re.fullmatch(r"(.*)\((.*)\)", str(name))
    listed = f"{parametrised[1]}(alpha)" if parametrised else str(name)
    if listed not in DESIGNS:
        raise UserError(f"design {name!r}: unknown; choose one of {', '.join(DESIGNS)} (alpha between 0 and 1)")
    arguments = [_alpha(name, parametrised[2])] if parametrised else []
    return DESIGNS[listed](as_integer("seed", seed), *arguments)


def size_probabilities(name: str, n: int) -> FloatArray:
    """Return (n−1,): the probabilities of the sizes 1, …, n−1 under the design ``name``."""
    return make_design(name).size_probabilities(n)


def _alpha(name: str, text: str) -> float:
    try:
        alpha = float(text)
    except ValueError:
        alpha = float("nan")
    if not 0 < alpha < 1:
        raise UserError(f"design {name!r}: alpha must be a number between 0 and 1, such as 0.5")
    return alpha
