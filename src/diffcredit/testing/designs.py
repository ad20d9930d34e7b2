"""The conformance check of designs, and the errors of all conformance checks."""

from bisect import bisect_left
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from diffcredit.coalitions import Design, encode
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray

Result = TypeVar("Result")


class ConformanceError(AssertionError):
    """A plug-in violates its protocol; the message says how."""


def require(condition: bool, sentence: str) -> None:
    """Raise a ConformanceError unless ``condition`` holds."""
    if not condition:
        raise ConformanceError(sentence)


def attempt(what: str, action: Callable[[], Result]) -> Result:
    """Return the result of ``action``; turn an exception into a ConformanceError that starts with ``what``."""
    try:
        return action()
    except ConformanceError:
        raise
    except Exception as error:  # a plug-in may raise anything
        raise ConformanceError(f"{what} raises {type(error).__name__}: {error}") from error


def check_design(design: Design, *, n: int = 6, count: int = 40) -> None:
    """Raise a ConformanceError unless ``design`` follows `diffcredit.coalitions.Design`.

    Checks the first ``count`` coalitions of ``n`` ≥ 3 contributors, or those before ``draw`` raises a UserError.
    """
    require(isinstance(getattr(design, "seed", None), int), "the design has no integer `seed`")
    length = _length(design, n, count)
    for start in (length // 2, length) if length < count else ():  # one end however the sequence is cut into draws
        rest = length + 1 - start
        require(
            _ends(design, n, start, rest),
            f"draw({n}, {start}, {rest}) gives rows though draw({n}, 0, {length + 1}) raises a UserError; a finite "
            "design has one end",
        )
    whole = _draw(design, n, 0, length)
    _check_cuts(design, whole, ())
    sizes = whole.sum(axis=1)
    require(not (sizes == 0).any(), f"row {int(np.argmin(sizes))} is the empty coalition, which is an endpoint")
    require(not (sizes == n).any(), f"row {int(np.argmax(sizes))} is the full coalition, which is an endpoint")
    _check_sizes(design, sizes, n)
    _check_exclusion(design, whole)


def _length(design: Design, n: int, count: int) -> int:
    """Return how many rows one draw gives at most, between 1 and ``count``."""
    if not _ends(design, n, 0, count):
        return count
    return 1 + bisect_left(range(2, count), True, key=lambda rows: _ends(design, n, 0, rows))


def _ends(design: Design, n: int, start: int, count: int) -> bool:
    """Return whether the design has fewer rows than requested."""
    try:
        attempt(f"draw({n}, {start}, {count})", lambda: design.draw(n, start, count))
    except ConformanceError as error:
        if isinstance(error.__cause__, UserError):
            return True
        raise
    return False


def _draw(design: Design, n: int, start: int, count: int, exclude: tuple[BoolArray, ...] = ()) -> BoolArray:
    what = f"draw({n}, {start}, {count}{', exclude' if exclude else ''})"
    rows = attempt(what, lambda: design.draw(n, start, count, exclude))
    kind, shape = getattr(rows, "dtype", type(rows).__name__), getattr(rows, "shape", "")
    require(kind == np.bool_ and shape == (count, n), f"{what} gives {kind} {shape}; expected booleans ({count}, {n})")
    return rows


def _check_cuts(design: Design, whole: BoolArray, exclude: tuple[BoolArray, ...]) -> None:
    """Require the same rows however the sequence is cut into draws."""
    count, n = whole.shape
    for start, stop in ((0, count), (0, count // 2), (count // 2, count), (count // 3, 2 * count // 3), (count, count)):
        rows = _draw(design, n, start, stop - start, exclude)
        require(
            np.array_equal(rows, whole[start:stop]),
            f"rows {start} to {stop} differ from those of draw({n}, 0, {count}); row j must depend on the seed, n "
            "and exclude alone",
        )


def _check_sizes(design: Design, sizes: np.ndarray, n: int) -> None:
    """Require that the drawn sizes follow ``size_probabilities``, within six standard deviations and one."""
    p = np.asarray(attempt(f"size_probabilities({n})", lambda: design.size_probabilities(n)), dtype=np.float64)
    require(p.shape == (n - 1,), f"size_probabilities({n}) has shape {p.shape}; expected ({n - 1},)")
    require(
        bool((p >= 0).all()) and abs(float(p.sum()) - 1) < 1e-9,
        f"size_probabilities({n}) are {p}; expected probabilities that sum to 1",
    )
    m, seen = len(sizes), np.bincount(sizes, minlength=n)[1:n]
    odd = (np.abs(seen - m * p) > 6 * np.sqrt(m * p * (1 - p)) + 1) | ((seen > 0) & (p == 0))
    size = int(np.argmax(odd))
    require(
        not odd.any(),
        f"size {size + 1} came {seen[size]} times of {m}; size_probabilities({n}) promises {m * p[size]:.1f}",
    )


def _check_exclusion(design: Design, whole: BoolArray) -> None:
    count, n = whole.shape
    exclude = (whole[0], whole[count // 2])
    # a finite design has fewer rows without the excluded coalitions
    rest = _draw(design, n, 0, count - sum(any(np.array_equal(row, out) for out in exclude) for row in whole), exclude)
    for row in rest:
        require(
            not any(np.array_equal(row, out) for out in exclude), f"the coalition {encode(row)} comes though excluded"
        )
    _check_cuts(design, rest, exclude)
