"""How good is the default estimator, and do its intervals hold? Tables and figures beside this file.

Seven parts, each over every game and ``SEEDS`` seeds: ``compare`` and ``shapiq`` (at equal evaluations), ``curve``
(ours and the paper's over the number of evaluations), ``cover`` (intervals), ``stop`` (the stopping rule's promise),
``surrogates``, ``speed``. Resumable: what is done lies in results/benchmarks/estimators and is only read.
Writes ``results.json``, ``results.md`` and the figures.
"""

import json
import os
import platform
import resource
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.estimators.contenders import APART, OURS, PAPER, SHAPLEY, credits, evaluated
from benchmarks.estimators.digits import DigitsGame
from benchmarks.estimators.worlds import DIGITS_WORLDS, WORLDS, World
from diffcredit.coalitions import make_design
from diffcredit.credit import Credits, estimate
from diffcredit.execution.versions import package_versions
from diffcredit.testing.games import BoolArray, FloatArray

FOLDER = Path("results") / "benchmarks" / "estimators"
SEEDS = 24
CURVE_SEEDS = 48  # of all games but the largest: a ratio of evaluations is read off curves that must be smooth
SURROGATE_SEEDS = 8
ALPHAS = (0.25, 0.5, 0.75)
SETS, COALITIONS = 3, 100  # of each alpha, for the LDS
FRACTIONS = (1 / 8, 1 / 6, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 1, 1.5, 2, 3)  # of a game's usual number of evaluations
TARGETS = (0.8, 0.9, 0.95)


def compare(name: str, seed: int) -> dict[str, Any]:
    """Our methods' scores at the game's usual number of evaluations."""
    world = WORLDS[name](seed)
    tests = lds_tests(world, seed)
    result = {"true Shapley values": scores(world, world.truth, tests)}
    for contender, run in {**SHAPLEY, **APART}.items():
        result[contender] = scores(world, run(world, world.evaluations, seed), tests)
    return result


def shapiq(name: str, seed: int) -> dict[str, Any]:
    """The same for shapiq's estimators."""
    from benchmarks.estimators.against_shapiq import ESTIMATORS, LARGEST_N

    world = WORLDS[name](seed)
    tests, result = lds_tests(world, seed), {}
    for estimator, run in ESTIMATORS.items():
        if world.n <= LARGEST_N.get(estimator, world.n):
            generator = np.random.default_rng([seed, world.evaluations, 11])
            game = partial(_noisy, world, generator)
            # two more: shapiq's budgets count the endpoints
            values = run(game, world.n, world.evaluations + 2, seed)
            result[f"shapiq {estimator}"] = scores(world, values, tests)
    return result


def _noisy(world: World, generator: np.random.Generator, coalitions: BoolArray) -> FloatArray:
    return world.evaluate(coalitions, generator)


def curve(name: str, seed: int) -> dict[str, Any]:
    """Scores of ours and of the paper's over the number of evaluations."""
    world = WORLDS[name](seed)
    tests, result = lds_tests(world, seed), {}
    for fraction in FRACTIONS:
        evaluations = round(fraction * world.evaluations)
        for contender in (OURS, PAPER):
            if contender == OURS or evaluations > 1.3 * world.n:  # the paper's has no answer for fewer
                values = SHAPLEY[contender](world, evaluations, seed)
                result.setdefault(contender, {})[str(evaluations)] = scores(world, values, tests)
    return result


def cover(name: str, seed: int) -> dict[str, Any]:
    """Which part of the intervals covers: of all contributors, of the top fifth; of ranks and shares."""
    world = WORLDS[name](seed)
    result = {}
    for fraction in (0.5, 1, 2):
        for method, design in (("shapley", "uniform"), ("unshrunk", "uniform"), ("kernelshap", "kernel")):
            evaluations = round(fraction * world.evaluations)
            if method == "shapley" or evaluations > 1.3 * world.n:
                found = credits(world, method, design, evaluations, seed)
                result[f"{method} {fraction:g}"] = coverage(world, found)
    return result


def coverage(world: World, found: Credits) -> dict[str, float]:
    inside = (found.low <= world.truth) & (world.truth <= found.high)
    ranks = (-world.truth).argsort().argsort() + 1
    low, high = found.rank_intervals()
    return {
        "all": float(inside.mean()),
        "top fifth": float(inside[top(world.truth)].mean()),
        "half width": float((found.high - found.low).mean() / 2 / world.truth.std()),
        "ranks": float(((low <= ranks) & (ranks <= high)).mean()),
        "predicted": found.diagnostics.get("predicted_correlation", float("nan")),
        "correlation": float(np.corrcoef(found.values, world.truth)[0, 1]),
    }


def stop(name: str, seed: int) -> dict[str, Any]:
    """Where a study would stop for each target correlation, and the correlation it then has."""
    world = WORLDS[name](seed)
    step, most = max(40, -(-world.n // 2)), 4 * world.evaluations
    data = evaluated(world, "uniform", most, seed)
    reached, result = dict.fromkeys(TARGETS, 0), {}
    for count in range(step, most + 1, step):
        part = data | {key: np.asarray(data[key])[:count] for key in ("coalitions", "values")}
        found = estimate(**part)  # ty: ignore
        assured = found.diagnostics["assured_correlation"]
        for target in TARGETS:
            reached[target] = reached[target] + 1 if assured >= target else 0
            if reached[target] == 2 and str(target) not in result:
                realised = float(np.corrcoef(found.values, world.truth)[0, 1])
                result[str(target)] = {"evaluations": count, "correlation": realised}
        if len(result) == len(TARGETS):
            break
    return result


def surrogates(name: str, seed: int) -> dict[str, Any]:
    """Correlation with the truth at a tenth to a half of the usual evaluations, with surrogates and priors."""
    world, result = WORLDS[name](seed), {}
    offered = offers(name, world, seed)
    for fraction in (0.1, 0.2, 0.5, 1):
        data = evaluated(world, "uniform", round(fraction * world.evaluations), seed)
        for label, given in offered.items():
            found = estimate(**data, **given)  # ty: ignore
            result.setdefault(label, {})[f"{fraction:g}"] = {
                "correlation": float(np.corrcoef(found.values, world.truth)[0, 1]),
                "covered": float(((found.low <= world.truth) & (world.truth <= found.high)).mean()),
            }
    return result


def offers(name: str, world: World, seed: int) -> dict[str, dict[str, Any]]:
    """What a study might have at hand: of digits real surrogates, of simulated games noisy copies of the truth."""
    generator = np.random.default_rng([seed, 5])
    junk = generator.normal(size=world.n)
    given: dict[str, dict[str, Any]] = {"nothing": {}, "junk prior": {"prior": junk}}
    if name.startswith("digits"):
        game = DigitsGame(world.n, seed % DIGITS_WORLDS)
        given["good surrogate"] = {"surrogate": game.surrogate}
        given["weak surrogate"] = {"surrogate": game.weak_surrogate}
        given["junk surrogate"] = {"surrogate": lambda x: np.sin(x @ junk * 7)}
    else:
        contrast = (world.truth - world.truth.mean()) / world.truth.std()
        for label, correlation in (("good prior (.8)", 0.8), ("weak prior (.4)", 0.4)):
            other = generator.normal(size=world.n)
            other -= contrast * (other @ contrast) / world.n
            other /= other.std()
            given[label] = {"prior": correlation * contrast + (1 - correlation**2) ** 0.5 * other}
    return given


PARTS: dict[str, Callable[[str, int], dict[str, Any]]] = {
    "compare": compare,
    "shapiq": shapiq,
    "curve": curve,
    "cover": cover,
    "stop": stop,
    "surrogates": surrogates,
}


def lds_tests(world: World, seed: int) -> dict[float, list[tuple[np.ndarray, FloatArray]]]:
    """For each alpha, sets of coalitions of that size with freshly evaluated values."""
    generator = np.random.default_rng([seed, 3])
    tests = {}
    for alpha in ALPHAS:
        sets = [
            make_design(f"subset({alpha})", 1000 + SETS * seed + k).draw(world.n, 0, COALITIONS) for k in range(SETS)
        ]
        tests[alpha] = [(x, world.evaluate(x, generator)) for x in sets]
    return tests


def scores(world: World, values: FloatArray, tests: dict[float, Any]) -> dict[str, float]:
    result = {
        f"lds{alpha:g}": float(np.mean([spearmanr(x @ values, y).statistic for x, y in sets]))
        for alpha, sets in tests.items()
    }
    result["correlation"] = float(np.corrcoef(values, world.truth)[0, 1])
    chosen = set(top(values).tolist())
    result["top fifth"] = len(chosen & set(top(world.truth).tolist())) / len(chosen)
    return result


def top(values: FloatArray) -> np.ndarray:
    return np.argsort(-values)[: max(1, round(len(values) / 5))]


def speed(n: int, evaluations: int) -> dict[str, float]:
    """Seconds and peak memory (GB) of one estimate with intervals, in a process of its own."""
    code = f"from benchmarks.estimators.measure import _timed; print(_timed({n}, {evaluations}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return json.loads(out)


def _timed(n: int, evaluations: int) -> str:
    coalitions = make_design("uniform").draw(n, 0, evaluations)
    generator = np.random.default_rng(0)
    values = coalitions @ generator.normal(size=n) / n**0.5 + generator.normal(size=evaluations)
    start = time.perf_counter()
    estimate(coalitions, values, empty=[0.0], full=[1.0])
    seconds = time.perf_counter() - start
    return json.dumps({"seconds": seconds, "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6})


def _job(job: tuple[str, str, int]) -> tuple[str, str, int, str | None]:
    """One part of one game with one seed, kept in a file; the error where it failed."""
    part, name, seed = job
    file = FOLDER / part / f"{name}-{seed}.json"
    try:
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(PARTS[part](name, seed))
            file.with_suffix(".part").write_text(text, encoding="utf-8")
            file.with_suffix(".part").rename(file)
    except Exception:
        return part, name, seed, traceback.format_exc()
    return part, name, seed, None


def jobs(parts: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    for part in parts:
        for name in WORLDS:
            for seed in range(seeds(part, name)):
                yield part, name, seed


def seeds(part: str, name: str) -> int:
    if part == "surrogates":
        return SURROGATE_SEEDS
    return CURVE_SEEDS if part == "curve" and name != "percentile" else SEEDS


def run(parts: Sequence[str]) -> None:
    """All that is missing of these parts, one process a core."""
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    todo, start, failures = list(jobs(parts)), time.monotonic(), []
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        for count, (part, name, seed, error) in enumerate(pool.imap_unordered(_job, todo), 1):
            if error:
                failures.append(error)
            left = (time.monotonic() - start) / count * (len(todo) - count)
            print(
                f"\r{count} of {len(todo)}, about {left / 60:.0f} min left: {part} {name} {seed}   ", end="", flush=True
            )
    print()
    if failures:
        sys.exit(f"{len(failures)} failed; the first:\n{failures[0]}")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        del os.environ[name]


def main() -> None:
    run(list(PARTS))
    found = {
        part: {
            name: [
                json.loads((FOLDER / part / f"{name}-{seed}.json").read_text("utf-8"))
                for seed in range(seeds(part, name))
            ]
            for name in WORLDS
        }
        for part in PARTS
    }
    from benchmarks.estimators.tables import write

    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    speeds = {f"n = {n}, {m} evaluations": speed(n, m) for n, m in ((258, 1000), (2000, 10_000))}
    about = {
        "machine": machine,
        "versions": package_versions(),
        "seeds": SEEDS,
        "curve_seeds": CURVE_SEEDS,
        "surrogate_seeds": SURROGATE_SEEDS,
        "speed": speeds,
    }
    write(found, about)
