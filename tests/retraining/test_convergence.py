"""The bounds on fine-tuning, on ridge regression, where retraining has a closed form."""

import itertools

import numpy as np
import pytest

from diffcredit.credit import estimate
from diffcredit.retraining.fine_tune import FineTune

from . import ridge

N, PENALTY = 3, 0.5
ALL = np.array(list(itertools.product([False, True], repeat=N)))
SOME = ALL[1:]  # all but nobody
CONTRIBUTIONS = ridge.drawn([3] * N)
BATCH = 18  # a multiple of 3, 6 and 9 rows
START = np.array([3.0, -2.0, 4.0, -3.0])
SUPPORT = (True, True, False, True)
ROWS = [ridge.rows(CONTRIBUTIONS, coalition) for coalition in SOME]
OPTIMA = [ridge.optimum(x, y, PENALTY) for x, y in ROWS]
RATE = 1 / max(ridge.smoothness(x, PENALTY) for x, _ in ROWS)
PROBE = ridge.rows(ridge.drawn([20], seed=8))


def fine_tuning(steps: int, folder, support=(True,) * ridge.FEATURES) -> FineTune:
    retraining = FineTune(steps=steps, learning_rate=RATE, schedule="constant", average_tail=None)
    base = ridge.Ridge(START, PENALTY)
    retraining.start_from(
        ridge.Ridge(START, PENALTY, support), ridge.context(base, CONTRIBUTIONS, folder, batch_size=BATCH)
    )
    return retraining


def thetas(retraining: FineTune, coalitions) -> list[np.ndarray]:
    return [model.theta for model in retraining.models_for(coalitions, range(len(coalitions)))]


@pytest.mark.parametrize("steps", [1, 10, 40])
def test_the_loss_falls_at_least_as_fast_as_gradient_descent_must(steps, tmp_path):
    """ℓ(θ_k) − ℓ* ≤ ‖θ₀ − θ*‖² / (2kα) at α ≤ 1/L, for every coalition."""
    for theta, best, (x, y) in zip(thetas(fine_tuning(steps, tmp_path), SOME), OPTIMA, ROWS, strict=True):
        above = ridge.mean_loss(theta, x, y, PENALTY) - ridge.mean_loss(best, x, y, PENALTY)
        assert -1e-12 <= above <= ((START - best) ** 2).sum() / (2 * steps * RATE)
        assert ridge.mean_loss(theta, x, y, PENALTY) < ridge.mean_loss(START, x, y, PENALTY)


def test_fine_tuning_is_gradient_descent_on_the_coalition(tmp_path):
    for theta, (x, y) in zip(thetas(fine_tuning(3, tmp_path), SOME), ROWS, strict=True):
        expected = START
        for _ in range(3):
            expected = expected - RATE * ridge.gradient(expected, x, y, PENALTY)
        np.testing.assert_allclose(theta, expected, rtol=1e-12)


def game(found: list[np.ndarray]) -> np.ndarray:
    """A global property of each: the loss on rows of nobody."""
    x, y = PROBE
    return np.array([((x @ theta - y) ** 2).mean() for theta in found])


def credits_of(values: np.ndarray) -> np.ndarray:
    """Of the values of ``ALL``."""
    return estimate(ALL[1:-1], values[1:-1], empty=values[0], full=values[-1], method="exact").values


def test_values_and_credits_come_as_near_to_retraining_as_the_support_allows(tmp_path):
    """As k → ∞, |F(FT_k) − F(retrained)| → the gap between the optima on the support and at large; and
    ‖β_FT − β‖₂ ≤ 2√n·C at every k, C the largest gap."""
    nobody = thetas(fine_tuning(1, tmp_path), ALL[:1])
    retrained = game(nobody + OPTIMA)
    limit = game(nobody + [ridge.optimum(x, y, PENALTY, SUPPORT) for x, y in ROWS])
    lottery_ticket = np.abs(limit - retrained)
    assert lottery_ticket.max() > 0.1
    gaps = []
    for steps in (3, 30, 200):
        values = game(nobody + thetas(fine_tuning(steps, tmp_path, SUPPORT), SOME))
        gaps.append(np.abs(values - limit).max())
        gap = np.abs(values - retrained)
        assert np.linalg.norm(credits_of(values) - credits_of(retrained)) <= 2 * np.sqrt(N) * gap.max()
    assert gaps[0] > 10 * gaps[1] > 100 * gaps[2]
    assert gaps[2] < 1e-6
    assert (gap <= lottery_ticket + 1e-6).all()
    assert (gap >= lottery_ticket - 1e-6).all()
