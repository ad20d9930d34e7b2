"""Our designs pass, and each fault is caught."""

from dataclasses import dataclass
from itertools import count as counting

import numpy as np
import pytest

from diffcredit.coalitions import DESIGNS, make_design
from diffcredit.coalitions.designs import Uniform
from diffcredit.errors import UserError
from diffcredit.testing import ConformanceError, check_design


@pytest.mark.parametrize("name", [name.replace("alpha", "0.3") for name in DESIGNS])
def test_our_designs_conform(name):
    check_design(make_design(name, 0))
    check_design(make_design(name, 7), n=9, count=40)
    check_design(make_design(name, 7), n=3, count=20)


@dataclass(frozen=True)
class LeaveOneOut:
    """A finite design, n coalitions without one contributor each, perhaps with one fault."""

    fault: str = ""
    seed: int = 0

    @staticmethod
    def size_probabilities(n):
        return np.eye(n - 1)[n - 2]

    def draw(self, n, start, count, exclude=()):
        excluded = [] if self.fault == "ignores exclude" else [tuple(row) for row in exclude]
        rows = [row for row in ~np.eye(n, dtype=bool) if tuple(row) not in excluded]
        if self.fault == "counts from the cut" and start < len(rows):
            start = 0
        if self.fault == "nothing at all":
            rows = []
        if self.fault == "begins again":
            start %= n
        if start + count > len(rows) and self.fault != "ends in silence":
            raise (RuntimeError if self.fault == "breaks" else UserError)(f"has {len(rows)}")
        return np.array(rows[start : start + count], dtype=bool).reshape(-1, n)


@pytest.mark.parametrize("count", [3, 6, 7, 40])
def test_a_finite_design_conforms_as_far_as_it_goes(count):
    check_design(LeaveOneOut(), count=count)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("ends in silence", r"gives bool \(6, 6\); expected booleans \(40, 6\)"),
        ("breaks", r"draw\(6, 0, 40\) raises RuntimeError: has 6"),
        ("begins again", r"draw\(6, 6, 1\) gives rows though draw\(6, 0, 7\) raises a UserError"),
        ("counts from the cut", r"draw\(6, 3, 4\) gives rows though draw\(6, 0, 7\) raises a UserError"),
        ("ignores exclude", "comes though excluded"),
        ("nothing at all", r"draw\(6, 0, 1\) raises UserError: has 0"),
    ],
)
def test_faults_of_finite_designs_are_caught(fault, sentence):
    with pytest.raises(ConformanceError, match=sentence):
        check_design(LeaveOneOut(fault))


def drawing(change):
    """A uniform design that draws by ``change(draw, n, start, count, exclude)``, given the sound ``draw``."""
    return type("Broken", (Uniform,), {"draw": lambda self, *given: change(super(type(self), self).draw, *given)})()


def changing(change):
    """A uniform design whose rows are changed."""
    return drawing(lambda draw, *given: change(draw(*given)))


def promising(probabilities):
    return type("Broken", (Uniform,), {"size_probabilities": lambda self, n: np.array(probabilities)})()


def with_row(value):
    def change(draw, n, start, count, *exclude):
        rows = draw(n, start, count, *exclude)
        if start == 0 and count > 5:
            rows[5] = value
        return rows

    return drawing(change)


def raises(draw, *given):
    raise RuntimeError("no more")


CALLS = counting()


@pytest.mark.parametrize(
    ("design", "sentence"),
    [
        (
            drawing(lambda draw, n, start, count, *rest: draw(n, 0, count, *rest)),
            "rows 20 to 40 differ from those of draw",
        ),
        (
            drawing(lambda draw, n, start, count, *rest: draw(n, start - start % 2, count, *rest)),
            "rows 13 to 26 differ",
        ),
        (drawing(lambda draw, n, start, count, *rest: draw(n, start, count)), "comes though excluded"),
        (drawing(raises), r"draw\(6, 0, 40\) raises RuntimeError: no more"),
        (changing(lambda rows: rows.astype(int)), r"gives int64 \(40, 6\); expected booleans"),
        (changing(lambda rows: rows.tolist()), "gives list"),
        (changing(lambda rows: rows.T), r"gives bool \(6, 40\)"),
        (changing(lambda rows: np.roll(rows, next(CALLS), axis=1)), "rows 0 to 40 differ"),
        (with_row(False), "row 5 is the empty coalition"),
        (with_row(True), "row 5 is the full coalition"),
        (promising([1 / 6] * 6), r"has shape \(6,\)"),
        (promising([1.0] * 5), "sum to 1"),
        (promising([1.0, 0, 0, 0, 0]), r"size \d came \d+ times of 40; .* promises"),
        (promising([0.96, 0.01, 0.01, 0.01, 0.01]), r"size 1 came 8 times of 40; .* promises 38.4"),
    ],
)
def test_faults_are_caught(design, sentence):
    with pytest.raises(ConformanceError, match=sentence):
        check_design(design)


def test_a_design_without_seed_is_caught():
    class Seedless:
        draw, size_probabilities = Uniform().draw, Uniform.size_probabilities

    with pytest.raises(ConformanceError, match="no integer `seed`"):
        check_design(Seedless())
