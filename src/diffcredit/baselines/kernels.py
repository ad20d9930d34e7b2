"""The algebra of the TRAK family: gradients of generated images written as combinations of training gradients.

Φ (m, k) are the projected gradients of the training images and g (k,) is that of a generated image. TRAK's scores

    a = Φ (ΦᵀΦ + λI)⁻¹ g = (ΦΦᵀ + λI)⁻¹ Φ g

are the coefficients of the ridge regression g ≈ Φᵀa, whose k observations are the coordinates of the projection. Given
the images these are independent draws, so that λ can be chosen by generalised cross-validation over them (Golub, Heath
and Wahba 1979), without any retrained model:

    GCV(λ) = ‖(I − H) g‖² / tr(I − H)²,  H = ΦᵀΦ (ΦᵀΦ + λI)⁻¹.

It aims at the best prediction of g, which is not quite the best a, and knows nothing about retraining. With planted a,
the error of the scores is within 3 % of that with the best λ, though λ itself may be far off where GCV is flat.

Φ may be on disk: it is read in blocks of rows, and all sums are in double precision. With at most ``DENSE`` training
images or at most ``DENSE`` dimensions, the smaller of ΦᵀΦ and ΦΦᵀ is decomposed once. Beyond, neither is formed.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.util.cache import artifact_name, cached_arrays
from diffcredit.util.progress import Progress, silent
from diffcredit.util.seeds import derive_seed

Rows = NDArray[np.floating[Any]]  # (rows, k), in memory or a memory map

DENSE = 8192  # the largest side of a matrix that is decomposed: 0.5 GB, a few minutes
NUMBERS_AT_ONCE = 2**23  # of Φ in memory: 64 MB
QUERIES = 256  # generated images on which λ is chosen


def kernel(rows: Rows, folder: Path | None = None, progress: Progress = silent, dense: int = DENSE) -> "Kernel":
    """Return the kernel of Φ = ``rows`` (m, k); its decomposition is cached in ``folder`` (None: nowhere)."""
    if min(rows.shape) > dense:
        return IterativeKernel(rows, progress)
    name = artifact_name("spectrum", _fingerprint(rows))
    return DenseKernel(rows, **cached_arrays(folder, name, lambda: _spectrum(rows, progress)))


def chosen_lambda(ridge: "Kernel", queries: Rows) -> float:
    """Return the λ with the smallest GCV on at most ``QUERIES`` of the queries (q, k), evenly spaced."""
    grid, gcv = ridge.cross_validation(queries[_spread(len(queries), QUERIES)])
    return float(grid[np.argmin(gcv)])


def mean_row(rows: Rows) -> FloatArray:
    """Return (1, k)."""
    return sum(block.sum(axis=0, keepdims=True) for block in _blocks(rows)) / len(rows)


def row_norms(rows: Rows) -> FloatArray:
    """Return (m,): ‖φ_j‖."""
    return np.concatenate([np.linalg.norm(block, axis=1) for block in _blocks(rows)])


def products(rows: Rows, columns: FloatArray) -> FloatArray:
    """Return (m, q): Φ ``columns`` (k, q)."""
    return np.concatenate([block @ columns for block in _blocks(rows)])


@dataclass(frozen=True, eq=False)
class DenseKernel:
    """(ΦᵀΦ + λI)⁻¹ between training and query gradients, from eigenvalues ``values`` (s,), s = min(m, k), and
    eigenvectors ``vectors`` (s, s), in columns, of ΦᵀΦ (k ≤ m) or of ΦΦᵀ (m < k). With λ = 0 inverses are
    pseudo-inverses, the limit of λ → 0."""

    rows: Rows
    values: FloatArray
    vectors: FloatArray

    @property
    def _tall(self) -> bool:
        return self.rows.shape[1] <= self.rows.shape[0]

    @property
    def _nonzero(self) -> NDArray[np.bool_]:
        return self.values > self.values[-1] * max(self.rows.shape) * np.finfo(np.float64).eps

    def _inverses(self, lam: float) -> FloatArray:
        """Return (s,): 1/(s_i + λ)."""
        if lam > 0:
            return 1.0 / (self.values + lam)
        return np.divide(1.0, self.values, out=np.zeros_like(self.values), where=self._nonzero)

    def scores(self, queries: Rows, lam: float) -> FloatArray:
        """Return (m, q): Φ (ΦᵀΦ + λI)⁻¹ g of each query g (q, k)."""
        g, inverses = np.asarray(queries, dtype=np.float64).T, self._inverses(lam)[:, None]
        if self._tall:
            return products(self.rows, self.vectors @ (inverses * (self.vectors.T @ g)))
        return self.vectors @ (inverses * (self.vectors.T @ products(self.rows, g)))

    def direction_norms(self, lam: float) -> FloatArray:
        """Return (m,): ‖(ΦᵀΦ + λI)⁻¹ φ_j‖, how far training image j moves the parameters."""
        inverses = self._inverses(lam)
        if self._tall:
            parts = [np.linalg.norm((block @ self.vectors) * inverses, axis=1) for block in _blocks(self.rows)]
            return np.concatenate(parts)
        # (ΦᵀΦ + λI)⁻¹ φ_j = Φᵀ (ΦΦᵀ + λI)⁻¹ e_j, whose norm needs only the eigenvectors of ΦΦᵀ
        return np.sqrt(np.square(self.vectors) @ (self.values * np.square(inverses)))

    def cross_validation(self, queries: Rows) -> tuple[FloatArray, FloatArray]:
        """Return a grid of λ, and GCV at each: the mean over the queries (q, k)."""
        g = np.asarray(queries, dtype=np.float64).T
        if self._tall:
            along = np.square(self.vectors.T @ g).mean(axis=1)
            outside = 0.0
        else:
            # the coordinates of g along the right singular vectors, and the part of g outside their span
            along = np.square(self.vectors.T @ products(self.rows, g)).mean(axis=1)
            along = np.divide(along, self.values, out=np.zeros_like(along), where=self._nonzero)
            outside = max(0.0, float(np.square(g).sum(axis=0).mean() - along.sum()))
        grid = _grid(float(self.values[-1]), 1e-8)
        shrunk = grid[:, None] / (self.values + grid[:, None])
        freedom = self.rows.shape[1] - len(self.values) + shrunk.sum(axis=1)
        return grid, (outside + np.square(shrunk) @ along) / np.square(freedom)


@dataclass(frozen=True, eq=False)
class IterativeKernel:
    """The same as :class:`DenseKernel`, with Φ used only through products, each one pass over its rows.

    Systems of equations are solved by conjugate gradients. GCV uses the quadrature of Lanczos' tridiagonal matrices
    (Golub and Meurant 1994), its trace random signs (Hutchinson 1990). λ > 0.
    """

    rows: Rows
    progress: Progress = silent

    SMALLEST = 1e-5  # of a chosen λ, relative to the largest eigenvalue
    TOLERANCE = 1e-8  # the largest residual of a solution, relative to the right-hand side
    STEPS = 64
    PROBES = 16
    FEW_QUERIES = 32
    SKETCH = 256  # random directions for measuring lengths, with a relative standard error of 1/√(2 · 256) = 4 %

    def scores(self, queries: Rows, lam: float) -> FloatArray:
        right = np.asarray(queries, dtype=np.float64).T
        return products(self.rows, self._solve(right, lam, "scores by conjugate gradients"))

    def direction_norms(self, lam: float) -> FloatArray:
        """Estimate ‖M φ_j‖² = E (zᵀ M φ_j)² over standard normal z as the mean of ``SKETCH`` draws."""
        z = _generator("directions").standard_normal((self.rows.shape[1], self.SKETCH))
        sketch = self._solve(z, lam, "lengths by conjugate gradients")
        lengths = [np.linalg.norm(block @ sketch, axis=1) for block in _blocks(self.rows)]
        return np.concatenate(lengths) / math.sqrt(self.SKETCH)

    def cross_validation(self, queries: Rows) -> tuple[FloatArray, FloatArray]:
        k = self.rows.shape[1]
        g = np.asarray(queries[_spread(len(queries), self.FEW_QUERIES)], dtype=np.float64).T
        signs = _generator("trace").choice((-1.0, 1.0), (k, self.PROBES))
        nodes, weights = self._quadrature(np.concatenate([g, signs], axis=1))
        grid = _grid(float(nodes.max()), self.SMALLEST)
        shrunk = grid[:, None, None] / (np.maximum(nodes, 0.0) + grid[:, None, None])
        lengths = np.square(g).sum(axis=0)
        residual = (np.square(shrunk) * weights).sum(axis=2)[:, : g.shape[1]] @ lengths / g.shape[1]
        freedom = k * (shrunk * weights).sum(axis=2)[:, g.shape[1] :].mean(axis=1)
        return grid, residual / np.square(freedom)

    def _gram(self, columns: FloatArray) -> FloatArray:
        """Return (k, q): ΦᵀΦ ``columns``."""
        result = np.zeros_like(columns)
        for block in _blocks(self.rows):
            result += block.T @ (block @ columns)
        return result

    def _quadrature(self, starts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return nodes and weights (q, steps): xᵀ f(ΦᵀΦ) x ≈ ‖x‖² Σ weights · f(nodes) for each start x (k, q)."""
        steps = min(self.STEPS, *self.rows.shape)
        diagonal, beside = np.zeros((2, starts.shape[1], steps))
        before, lengths = np.zeros_like(starts), np.linalg.norm(starts, axis=0)
        x = np.divide(starts, lengths, out=np.zeros_like(starts), where=lengths > 0)
        for step in range(steps):
            following = self._gram(x)
            diagonal[:, step] = np.einsum("ij,ij->j", x, following)
            following -= diagonal[:, step] * x
            if step:
                following -= beside[:, step - 1] * before
            beside[:, step] = np.linalg.norm(following, axis=0)
            if step == 0:
                _check(float(diagonal[:, 0].sum()))
            # a start within few eigenvectors is exhausted: the rest is rounding error, which must not be amplified
            left = beside[:, step] > 1e-10 * np.abs(diagonal[:, 0])
            beside[~left, step] = 0.0
            before, x = x, np.divide(following, beside[:, step], out=np.zeros_like(x), where=left)
            self.progress("the strength of λ", step + 1, steps)
        tridiagonal = np.zeros((starts.shape[1], steps, steps))
        places = np.arange(steps)
        tridiagonal[:, places, places] = diagonal
        tridiagonal[:, places[1:], places[:-1]] = beside[:, :-1]
        nodes, vectors = np.linalg.eigh(tridiagonal)  # reads the lower half
        return nodes, np.square(vectors[:, 0, :])

    def _solve(self, right: FloatArray, lam: float, what: str) -> FloatArray:
        """Return (k, q): (ΦᵀΦ + λI)⁻¹ ``right``, by conjugate gradients on all columns at once."""
        if lam <= 0:
            raise UserError(
                f"lam: {lam:g}; more than 0 is accepted with more than {DENSE} training images and dimensions"
            )
        size = np.linalg.norm(right, axis=0)
        solution, residual, direction = np.zeros_like(right), right.copy(), right.copy()
        squared = np.square(size)
        limit = self._steps_needed(lam)
        for step in range(limit):
            reached = np.sqrt(squared)
            if (reached <= self.TOLERANCE * size).all():
                self.progress(what, limit, limit)
                return solution
            self.progress(what, step, limit)
            moved = self._gram(direction) + lam * direction
            curvature = np.einsum("ij,ij->j", direction, moved)
            length = np.divide(squared, curvature, out=np.zeros_like(squared), where=curvature > 0)
            solution += length * direction
            residual -= length * moved
            following = np.einsum("ij,ij->j", residual, residual)
            ratio = np.divide(following, squared, out=np.zeros_like(squared), where=squared > 0)
            direction, squared = residual + ratio * direction, following
        raise DiffcreditError(f"conjugate gradients did not converge in {limit} steps; a larger lam than {lam:g} helps")

    def _steps_needed(self, lam: float) -> int:
        """Bound the steps by √κ/2 · ln(2 √κ / tolerance), doubled for rounding. No eigenvalue exceeds the trace."""
        trace = sum(float(np.square(block).sum()) for block in _blocks(self.rows))
        _check(trace)
        root = math.sqrt(1.0 + trace / lam)
        return min(math.ceil(root * math.log(2 * root / self.TOLERANCE)), 10_000)


Kernel = DenseKernel | IterativeKernel


def _spectrum(rows: Rows, progress: Progress) -> dict[str, FloatArray]:
    from scipy.linalg import eigh

    m, k = rows.shape
    gram, done = np.zeros((min(m, k),) * 2), 0
    # for few but long rows, blocks of columns, each of which adds to all of ΦΦᵀ
    for block in _blocks(rows if k <= m else rows.T):
        gram += block.T @ block
        done += len(block)
        progress("products of gradients", done, max(m, k))
    _check(float(np.trace(gram)))
    progress("eigenvalues of the gradients", 0, 1)
    values, vectors = eigh(gram, overwrite_a=True, check_finite=False)
    progress("eigenvalues of the gradients", 1, 1)
    return {"values": np.maximum(values, 0.0), "vectors": vectors}


def _blocks(rows: Rows) -> Iterator[FloatArray]:
    """Yield consecutive rows in double precision, at most ``NUMBERS_AT_ONCE`` numbers at a time."""
    size = max(1, NUMBERS_AT_ONCE // rows.shape[1])
    for start in range(0, len(rows), size):
        yield np.asarray(rows[start : start + size], dtype=np.float64)


def _spread(count: int, most: int) -> NDArray[np.int64]:
    """Return at most ``most`` of the places 0..count−1, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, most).round().astype(np.int64))


def _grid(largest: float, smallest: float) -> FloatArray:
    """Return λ from ``smallest`` to 10 times the ``largest`` eigenvalue, ten values for each power of ten.

    The grid hardly changes with rounding, so that λ does not depend on the order of the training images.
    """
    powers = round(10 * math.log10(10 / smallest))
    return largest * smallest * 10.0 ** (np.arange(powers + 1) / 10)


def _check(total: float) -> None:
    if not math.isfinite(total):
        raise UserError("gradients of the training images: some are not finite numbers")
    if total == 0:
        raise UserError("gradients of the training images: all are 0; nothing can be attributed")


def _generator(what: str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(derive_seed("baselines", "kernels", what)))


def _fingerprint(rows: Rows) -> str:
    digest = hashlib.sha256(f"{rows.dtype.str}\x1f{rows.shape}\x1f".encode())
    digest.update(np.ascontiguousarray(rows).data)
    return digest.hexdigest()
