"""What a design must do, to be run by whoever writes one."""

import numpy as np

from diffcredit.coalitions import BoolArray, Design, encode
from diffcredit.testing.conformance import attempt, require


def check_design(design: Design, *, n: int = 6, count: int = 40) -> None:
    """Raises a ConformanceError unless ``design`` follows :class:`diffcredit.coalitions.Design`.

    Looks at the first ``count`` coalitions of ``n`` contributors; a finite design must have as many.
    """
    require(isinstance(getattr(design, "seed", None), int), "the design has no integer `seed`")
    whole = _draw(design, n, 0, count)
    _check_cuts(design, whole, ())
    sizes = whole.sum(axis=1)
    require(not (sizes == 0).any(), f"row {int(np.argmin(sizes))} is the empty coalition, which is an endpoint")
    require(not (sizes == n).any(), f"row {int(np.argmax(sizes))} is the full coalition, which is an endpoint")
    _check_sizes(design, sizes, n)
    _check_exclusion(design, whole)


def _draw(design: Design, n: int, start: int, count: int, exclude: tuple[BoolArray, ...] = ()) -> BoolArray:
    what = f"draw({n}, {start}, {count}{', exclude' if exclude else ''})"
    rows = attempt(what, lambda: design.draw(n, start, count, exclude))
    kind, shape = getattr(rows, "dtype", type(rows).__name__), getattr(rows, "shape", "")
    require(kind == np.bool_ and shape == (count, n), f"{what} gives {kind} {shape}; booleans ({count}, {n}) expected")
    return rows


def _check_cuts(design: Design, whole: BoolArray, exclude: tuple[BoolArray, ...]) -> None:
    """However the sequence is cut into draws, its rows are the same."""
    count, n = whole.shape
    for start, stop in ((0, count), (0, count // 2), (count // 2, count), (count // 3, count // 3)):
        rows = _draw(design, n, start, stop - start, exclude)
        require(
            np.array_equal(rows, whole[start:stop]),
            f"rows {start} to {stop} differ from those of draw({n}, 0, {count}); row j must follow from the seed, n "
            "and exclude alone",
        )


def _check_sizes(design: Design, sizes: np.ndarray, n: int) -> None:
    """The drawn sizes fit ``size_probabilities``, within six standard deviations and one."""
    p = np.asarray(attempt(f"size_probabilities({n})", lambda: design.size_probabilities(n)), dtype=np.float64)
    require(p.shape == (n - 1,), f"size_probabilities({n}) has shape {p.shape}; sizes 1 to n − 1 make ({n - 1},)")
    require(
        bool((p >= 0).all()) and abs(float(p.sum()) - 1) < 1e-9,
        f"size_probabilities({n}) are {p}; probabilities that sum to 1 are expected",
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
    # of a finite design, the excluded coalitions' rows may be lacking
    rest = _draw(design, n, 0, count - sum(any(np.array_equal(row, out) for out in exclude) for row in whole), exclude)
    for row in rest:
        require(
            not any(np.array_equal(row, out) for out in exclude), f"the coalition {encode(row)} comes though excluded"
        )
    _check_cuts(design, rest, exclude)
