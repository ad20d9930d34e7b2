"""Who competes: each turns a number of evaluations of a world into credits."""

from collections.abc import Callable

import numpy as np

from benchmarks.estimators.worlds import World
from diffcredit.coalitions import make_design, size_probabilities
from diffcredit.credit import Credits, estimate
from diffcredit.testing.games import FloatArray

Contender = Callable[[World, int, int], FloatArray]

OURS = "diffcredit (default)"
PAPER = "KernelSHAP (the paper's)"


def evaluated(world: World, design: str, evaluations: int, seed: int) -> dict[str, object]:
    """What `estimate` takes: a design's first coalitions with their values, and the endpoints."""
    generator = np.random.default_rng([seed, evaluations, 7])
    coalitions = make_design(design, seed).draw(world.n, 0, evaluations)
    empty, full = world.endpoints(generator)
    values = world.evaluate(coalitions, generator)
    return {"coalitions": coalitions, "values": values, "empty": empty, "full": full, "size_distribution": design}


def credits(world: World, method: str, design: str, evaluations: int, seed: int) -> Credits:
    return estimate(**evaluated(world, design, evaluations, seed), method=method)  # ty: ignore


def _ours(method: str, design: str) -> Contender:
    def values(world: World, evaluations: int, seed: int) -> FloatArray:
        count = evaluations // (world.n - 1) * (world.n - 1) if design == "permutation" else evaluations
        return credits(world, method, design, count, seed).values

    return values


def _msr(world: World, evaluations: int, seed: int) -> FloatArray:
    """Maximum sample reuse of the Shapley value: each value counts for every contributor, for or against."""
    data = evaluated(world, "kernel", evaluations, seed)
    x, y, n = np.asarray(data["coalitions"]), np.asarray(data["values"]), world.n
    sizes = x.sum(axis=1)
    drawn = size_probabilities("kernel", n)[sizes - 1]
    weights = np.where(x, 1 / (sizes * drawn)[:, None], -1 / ((n - sizes) * drawn)[:, None])
    return (weights * y[:, None]).mean(axis=0)


SHAPLEY: dict[str, Contender] = {
    OURS: _ours("shapley", "uniform"),
    "unshrunk, uniform sizes": _ours("unshrunk", "uniform"),
    PAPER: _ours("kernelshap", "kernel"),
    "KernelSHAP, pairs": _ours("kernelshap", "kernel-paired"),
    "KernelSHAP, leverage scores, pairs": _ours("kernelshap", "leverage"),
    "permutation sampling": _ours("permutation", "permutation"),
    "MSR": _msr,
}

# Not in the race: other sizes for our estimator, and values that answer another question.
APART: dict[str, Contender] = {
    "diffcredit, kernel sizes": _ours("shapley", "kernel"),
    "diffcredit, mix of sizes": _ours("shapley", "mix"),
    "Banzhaf, half": _ours("banzhaf", "half"),
    "Banzhaf MSR, half": _ours("banzhaf-msr", "half"),
    "datamodel, half": _ours("datamodel", "half"),
}
