"""A real learning game with known Shapley values: handwritten digits spread over unequal contributors.

F(S) is the test accuracy of a softmax regression trained from scratch, by mini-batch SGD, on the images of the
contributors in S; F(∅) is that of the untrained classifier. The noise is what a training seed decides: the
initialisation and the batches. Accuracy, not log-likelihood: the log-likelihood of a classifier that never saw some
of the classes has no lower bound, so that the coalitions of one or two contributors would decide nearly everything.

``python -m benchmarks.estimators.digits`` recomputes the Shapley values of the mean game E F in ``truth/``.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Pixels = NDArray[np.float32]

CLASSES, PIXELS, TEST_IMAGES = 10, 64, 497
STEPS, BATCH, RATE, INITIAL = 60, 16, 0.5, 0.1  # of SGD; INITIAL: deviation of the initial weights
MODELS = 256  # trained side by side; more do not fit into the cache
SHRINKAGE = 0.1  # of the surrogate's covariance towards a multiple of the identity
SINGLE_IMAGE = 1e-6  # variance added to the surrogate's pixels: a single image has none

TRUTH = Path(__file__).with_name("truth")
WORLDS = [(n, world_seed) for n in (20, 50) for world_seed in range(4)]
TRUTH_EVALUATIONS = {20: 100_000, 50: 300_000}


@dataclass(frozen=True)
class World:
    """Who holds which images. Pixels are in 0..1 but for added noise, and end with a constant 1 for the bias."""

    roles: tuple[str, ...]  # (n,)
    images: Pixels  # (N, 65)
    labels: IntArray  # (N,)
    owners: IntArray  # (N,): 0 … n−1
    test_images: Pixels  # (T, 65)
    test_labels: IntArray  # (T,)

    def fingerprint(self) -> str:
        """Of owners and labels: tells another split or another random stream, whatever the floating point."""
        return hashlib.sha256(np.stack([self.owners, self.labels]).astype("<i8").tobytes()).hexdigest()[:16]


def roles(n: int) -> tuple[str, ...]:
    """Junk, a pair of near-copies, and the rest: clean, wrong labels, noisy and blurred images by turns."""
    turns = ("clean", "mislabelled", "clean", "noisy", "clean", "mislabelled", "blurred")
    special = ("junk",) * max(1, n // 25) + ("copied", "copier")
    return special + tuple(turns[i % len(turns)] for i in range(n - len(special)))


@lru_cache(maxsize=8)
def make_world(n: int, world_seed: int) -> World:
    """Amounts are log-normal, class mixes Dirichlet, faults of various severity; the test set is always the same."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(labels))
    test, pool = order[:TEST_IMAGES], order[TEST_IMAGES:]

    rng = np.random.default_rng([world_seed, n])
    amounts = np.exp(0.8 * rng.standard_normal(n))
    wants = amounts[:, None] * rng.dirichlet(np.full(CLASSES, 0.5), size=n)
    wants /= wants.sum(axis=0)
    drawn = np.array([rng.choice(n, p=wants[:, label]) for label in labels[pool]])

    held: list[tuple[Pixels, IntArray]] = []
    for contributor, role in enumerate(roles(n)):
        mine = pool[drawn == contributor]
        x, y = images[mine], labels[mine]
        if role == "copier":
            x, y = held[-1]
            x = x + 0.05 * rng.standard_normal(x.shape, dtype=np.float32)
        held.append(_spoilt(x, y, role, rng))
    return World(
        roles=roles(n),
        images=_with_constant(np.concatenate([x for x, _ in held])),
        labels=np.concatenate([y for _, y in held]),
        owners=np.repeat(np.arange(n), [len(y) for _, y in held]),
        test_images=_with_constant(images[test]),
        test_labels=labels[test],
    )


def _spoilt(x: Pixels, y: IntArray, role: str, rng: np.random.Generator) -> tuple[Pixels, IntArray]:
    """A contributor's images and labels with the faults of its role."""
    severity = rng.random()
    if role == "junk":
        return rng.random(x.shape, dtype=np.float32), rng.integers(0, CLASSES, len(y))
    if role == "mislabelled":
        wrong = rng.random(len(y)) < 0.2 + 0.6 * severity
        return x, np.where(wrong, rng.integers(0, CLASSES, len(y)), y)
    if role == "noisy":
        return x + np.float32(0.3 + 0.5 * severity) * rng.standard_normal(x.shape, dtype=np.float32), y
    if role == "blurred":
        blur = 0.8 + 0.7 * severity
        return gaussian_filter(x.reshape(-1, 8, 8), (0, blur, blur)).reshape(x.shape), y
    return x, y


def _with_constant(x: Pixels) -> Pixels:
    return np.concatenate([x, np.ones((len(x), 1), dtype=np.float32)], axis=1)


@dataclass(frozen=True)
class DigitsGame:
    """The game of ``n`` contributors (n ≥ 4) in the world of ``world_seed``."""

    n: int
    world_seed: int

    @property
    def world(self) -> World:
        return make_world(self.n, self.world_seed)

    def evaluate(self, coalitions: BoolArray, seeds: IntArray) -> FloatArray:
        """(m,): the test accuracy of a classifier trained on each coalition (m, n) with its seed (m,).

        A value follows from its coalition and seed alone. Equal seeds share the initialisation: give every
        evaluation its own for independent noise.
        """
        coalitions, seeds = np.asarray(coalitions, dtype=np.bool_), np.asarray(seeds)
        values = np.empty(len(coalitions))
        for start in range(0, len(coalitions), MODELS):
            rows = slice(start, start + MODELS)
            weights = _trained(self.world, coalitions[rows], seeds[rows])
            # One product a model, not one for all: rounding must not depend on the other models.
            guesses = np.argmax(self.world.test_images @ weights, axis=-1)
            values[rows] = (guesses == self.world.test_labels).mean(axis=-1)
        return values

    def surrogate(self, coalitions: BoolArray) -> FloatArray:
        """(m,): the test accuracy of a linear discriminant analysis of each coalition's images; no noise.

        Closed form from sums over each contributor's images: class counts, class means, covariance around the
        class means, shrunk to a multiple of the identity.
        """
        counts, sums, squares = _sufficient_statistics(self.n, self.world_seed)
        members = np.asarray(coalitions, dtype=np.float64)
        test = self.world.test_images[:, :PIXELS].astype(np.float64)
        values = np.empty(len(members))
        for start in range(0, len(members), MODELS):
            rows = members[start : start + MODELS]
            count = rows @ counts  # (k, 10)
            total = (rows @ sums.reshape(self.n, -1)).reshape(-1, CLASSES, PIXELS)
            moment = (rows @ squares.reshape(self.n, -1)).reshape(-1, PIXELS, PIXELS)
            means = total / np.maximum(count, 1)[:, :, None]
            size = np.maximum(count.sum(axis=1), 1)[:, None, None]
            covariance = (moment - np.swapaxes(means, 1, 2) @ total) / size
            variance = np.trace(covariance, axis1=1, axis2=2)[:, None, None] / PIXELS
            covariance = (1 - SHRINKAGE) * covariance + (SHRINKAGE * variance + SINGLE_IMAGE) * np.eye(PIXELS)
            directions = np.linalg.solve(covariance, np.swapaxes(means, 1, 2))  # (k, 64, 10)
            offsets = np.log(np.maximum(count, 1)) - 0.5 * np.einsum("kcp,kpc->kc", means, directions)
            offsets[count == 0] = -np.inf  # a class without images is never guessed
            guesses = np.argmax(test @ directions + offsets[:, None, :], axis=-1)
            values[start : start + MODELS] = (guesses == self.world.test_labels).mean(axis=-1)
        return values

    def weak_surrogate(self, coalitions: BoolArray) -> FloatArray:
        """(m,): the mean over classes of c / (c + 5), c the coalition's images that bear the class's label.

        Knows amounts and classes, nothing of quality.
        """
        count = np.asarray(coalitions, dtype=np.float64) @ _sufficient_statistics(self.n, self.world_seed)[0]
        return (count / (count + 5)).mean(axis=1)


def _trained(world: World, coalitions: BoolArray, seeds: IntArray) -> Pixels:
    """(k, 65, 10): the weights of k softmax regressions, each after STEPS steps of SGD on its coalition's images.

    A coalition without images keeps its initial weights.
    """
    k = len(coalitions)
    weights = np.empty((k, PIXELS + 1, CLASSES), dtype=np.float32)
    batches = np.zeros((STEPS, k, BATCH), dtype=np.int64)
    rates = np.zeros((k, 1, 1), dtype=np.float32)
    for model, (coalition, seed) in enumerate(zip(coalitions, seeds, strict=True)):
        rng = np.random.default_rng(int(seed))
        weights[model] = INITIAL * rng.standard_normal(weights.shape[1:], dtype=np.float32)
        images = np.flatnonzero(coalition[world.owners])
        if len(images):
            batches[:, model] = images[rng.integers(0, len(images), size=(STEPS, BATCH))]
            rates[model] = RATE / BATCH
    targets = np.eye(CLASSES, dtype=np.float32)[world.labels]
    for batch in batches:
        x = world.images[batch]  # (k, BATCH, 65)
        logits = x @ weights
        odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
        error = odds / odds.sum(axis=-1, keepdims=True) - targets[batch]
        weights -= np.swapaxes(x, 1, 2) @ (rates * error)
    return weights


@lru_cache(maxsize=8)
def _sufficient_statistics(n: int, world_seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of each contributor: images per class (n, 10), their sums (n, 10, 64), the sum of x xᵀ (n, 64, 64)."""
    held = make_world(n, world_seed)
    x = held.images[:, :PIXELS].astype(np.float64)
    own = np.eye(n)[held.owners]
    bears = np.eye(CLASSES)[held.labels]
    sums = np.einsum("in,ic,ip->ncp", own, bears, x, optimize=True)
    squares = np.stack([x[held.owners == i].T @ x[held.owners == i] for i in range(n)])
    return own.T @ bears, sums, squares


@dataclass(frozen=True)
class Truth:
    """Shapley values of E F. ``error``: the RMS error of contrasts, in deviations of the credits."""

    credits: FloatArray  # (n,)
    error: float


def truth(n: int, world_seed: int) -> Truth:
    """As stored; refuses values of another world."""
    stored = json.loads(_file(n, world_seed).read_text(encoding="utf-8"))
    if stored["fingerprint"] != make_world(n, world_seed).fingerprint() or stored["settings"] != _settings():
        raise ValueError(
            f"{_file(n, world_seed).name}: values of another game; run python -m benchmarks.estimators.digits"
        )
    return Truth(np.array(stored["credits"]), stored["error"])


def unshrunk_shapley(
    evaluate: Callable[[BoolArray, IntArray], FloatArray], n: int, evaluations: int, seed: int
) -> FloatArray:
    """(n,): an estimate of the Shapley values of E F from about ``evaluations`` values with fresh seeds.

    φ = (F(N) − F(∅))/n + the mean over s = 1 … n−1 of β_s, the least-squares slopes of F on x − s/n among the
    coalitions of size s. Every size has its own fit, so that neither the curvature in s nor slopes that change
    with s become noise; Var β_s ∝ 1/(s(n−s)) for equal counts, hence counts ∝ 1/√(s(n−s)).
    """
    rng = np.random.default_rng(seed)
    sizes = np.arange(1, n)
    density = 1 / np.sqrt(sizes * (n - sizes))
    counts = np.ceil(evaluations * density / density.sum()).astype(int)
    ends = np.repeat([np.zeros(n, dtype=np.bool_), np.ones(n, dtype=np.bool_)], counts.max(), axis=0)
    empty, full = evaluate(ends, rng.integers(2**62, size=len(ends))).reshape(2, -1).mean(axis=1)
    slopes = np.zeros(n)
    started = time.monotonic()
    for size, count in zip(sizes, counts, strict=True):
        x = np.argsort(rng.random((count, n)), axis=1) < size
        values = evaluate(x, rng.integers(2**62, size=count))
        # Centred on what was drawn, not on s/n: an intercept a size. Rows sum to 0, hence so do slopes of least norm.
        slopes += np.linalg.lstsq(x - x.mean(axis=0), values - values.mean(), rcond=1e-9)[0]
        done = counts[:size].sum()
        rate = done / (time.monotonic() - started)
        print(f"\r  {done:,} of {counts.sum():,} evaluations, {rate:,.0f}/s", end="", flush=True)
    print()
    return (full - empty) / n + slopes / (n - 1)


def main() -> None:
    TRUTH.mkdir(exist_ok=True)
    for n, world_seed in WORLDS:
        game = DigitsGame(n, world_seed)
        print(f"n = {n}, world {world_seed}")
        halves = np.stack([unshrunk_shapley(game.evaluate, n, TRUTH_EVALUATIONS[n] // 2, seed) for seed in (0, 1)])
        credits = halves.mean(axis=0)
        contrasts = halves - halves.mean(axis=1, keepdims=True)
        # The mean of two halves errs by half their difference; n − 1 contrasts are free.
        error = np.linalg.norm(contrasts[0] - contrasts[1]) / 2 / np.sqrt(n - 1) / credits.std(ddof=1)
        record = {
            "n": n,
            "world_seed": world_seed,
            "fingerprint": game.world.fingerprint(),
            "settings": _settings(),
            "evaluations": TRUTH_EVALUATIONS[n],
            "error": round(float(error), 4),
            "credits": credits.round(7).tolist(),
            "halves": halves.round(7).tolist(),
        }
        lines = ",\n".join(f'  "{key}": {json.dumps(value)}' for key, value in record.items())
        _file(n, world_seed).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
        print(f"  deviation of the credits {credits.std(ddof=1):.5f}, error of their contrasts {error:.1%} of it")


def _settings() -> dict[str, float]:
    return {"steps": STEPS, "batch": BATCH, "rate": RATE, "initial": INITIAL, "test_images": TEST_IMAGES}


def _file(n: int, world_seed: int) -> Path:
    return TRUTH / f"digits_{n}_{world_seed}.json"


if __name__ == "__main__":
    main()
