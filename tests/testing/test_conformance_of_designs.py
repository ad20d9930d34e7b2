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
@pytest.mark.parametrize("seed", [0, 7])
def test_our_designs_conform(name, seed):
    check_design(make_design(name, seed))
    check_design(make_design(name, seed), n=9, count=100)
    check_design(make_design(name, seed), n=3, count=20)


@dataclass(frozen=True)
class LeaveOneOut:
    """A finite design, n coalitions that each lack one contributor, perhaps with one fault."""

    fault: str = ""
    seed: int = 0

    @staticmethod
    def size_probabilities(n):
        return np.eye(n - 1)[n - 2]

    def draw(self, n, start, count, exclude=()):
        if self.fault != "ignores exclude":
            exclude = [tuple(row) for row in exclude]
            rows = [row for row in ~np.eye(n, dtype=bool) if tuple(row) not in exclude]
        else:
            rows = list(~np.eye(n, dtype=bool))
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


@dataclass(frozen=True)
class Broken(Uniform):
    """The uniform design with one fault."""

    fault: str = ""
    calls: counting = None

    def draw(self, n, start, count, exclude=()):
        if self.fault == "counts from the cut":
            return super().draw(n, 0, count, exclude)
        if self.fault == "cuts at even rows only":
            return super().draw(n, start - start % 2, count, exclude)
        if self.fault == "ignores exclude":
            return super().draw(n, start, count)
        if self.fault == "raises":
            raise RuntimeError("no more")
        rows = super().draw(n, start, count, exclude)
        if self.fault == "integers":
            return rows.astype(int)
        if self.fault == "a list":
            return rows.tolist()
        if self.fault == "transposed":
            return rows.T
        if self.fault == "fresh every time":
            return np.roll(rows, next(self.calls), axis=1)
        if self.fault == "empty" and start == 0 and count > 5:
            rows[5] = False
        if self.fault == "full" and start == 0 and count > 5:
            rows[5] = True
        return rows

    def size_probabilities(self, n):
        if self.fault == "probabilities of n sizes":
            return np.full(n, 1 / n)
        if self.fault == "probabilities over 1":
            return np.full(n - 1, 1.0)
        if self.fault == "improbable sizes":
            return np.array([1.0] + [0.0] * (n - 2))
        if self.fault == "other sizes":
            return np.array([0.96] + [0.04 / (n - 2)] * (n - 2))
        return np.full(n - 1, 1 / (n - 1))


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("counts from the cut", "rows 20 to 40 differ from those of draw"),
        ("cuts at even rows only", "rows 13 to 26 differ from those of draw"),
        ("ignores exclude", "comes though excluded"),
        ("raises", r"draw\(6, 0, 40\) raises RuntimeError: no more"),
        ("integers", r"gives int64 \(40, 6\); expected booleans"),
        ("a list", "gives list"),
        ("transposed", r"gives bool \(6, 40\)"),
        ("fresh every time", "rows 0 to 40 differ"),
        ("empty", "row 5 is the empty coalition"),
        ("full", "row 5 is the full coalition"),
        ("probabilities of n sizes", r"has shape \(6,\)"),
        ("probabilities over 1", "sum to 1"),
        ("improbable sizes", r"size \d came \d+ times of 40; .* promises"),
        ("other sizes", r"size 1 came 8 times of 40; .* promises 38.4"),
    ],
)
def test_faults_are_caught(fault, sentence):
    with pytest.raises(ConformanceError, match=sentence):
        check_design(Broken(fault=fault, calls=counting()))


def test_the_broken_design_conforms_without_its_fault():
    check_design(Broken())


def test_a_design_without_seed_is_caught():
    class Seedless:
        draw, size_probabilities = Uniform().draw, Uniform.size_probabilities

    with pytest.raises(ConformanceError, match="no integer `seed`"):
        check_design(Seedless())
