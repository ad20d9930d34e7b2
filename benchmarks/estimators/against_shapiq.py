"""shapiq's estimators of Shapley values, called alike: ``ESTIMATORS[name](game, n, budget, seed)`` gives (n,) credits.

The budget counts evaluations: every row handed to the game, the one of nobody and the one of everybody included. None
spends more; permutation sampling spends 2 + k(n−1), Owen sampling an odd number, and the rest of the budget is lost.

shapiq remembers no value of a plain callable: a game that draws its noise anew on every call is noisy on every row.
The estimators differ in what they do with a coalition that they draw again: KernelSHAP, UnbiasedKernelSHAP, SVARM,
kADD-SHAP and ProxySPEX evaluate it once and count its one value as often as it was drawn; permutation, stratified and
Owen sampling evaluate it again, but nobody and everybody only once.

With the whole budget of 2ⁿ KernelSHAP, kADD-SHAP, UnbiasedKernelSHAP and SVARM are exact. Permutation and stratified
sampling tend to the Shapley values; Owen sampling does not quite (its ten anchors count the ends in full), nor does
ProxySPEX (it drops small terms).

Left out: KernelSHAP-IQ, whose values of order 1 are KernelSHAP's; Inconsistent KernelSHAP-IQ, whose are kADD-SHAP's;
kADD-SHAP with pairs, which is KernelSHAP with pairs; SHAP-IQ and SVARM-IQ, which for single contributors are
UnbiasedKernelSHAP and SVARM; faithful indices, which are no Shapley values; SPEX, which refuses small budgets and at
n = 258 returns next to nothing for 1,000 evaluations.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from shapiq import approximator as shapiq
from shapiq.approximator import Approximator

from diffcredit.testing.games import FloatArray, Game

Estimator = Callable[[Game, int, int, int], FloatArray]


def _adapted(build: Callable[[int, int], Approximator]) -> Estimator:
    """``build``: the approximator of n contributors with a seed."""

    def estimate(game: Game, n: int, budget: int, seed: int) -> FloatArray:
        def of_rows(coalitions: NDArray[np.bool_]) -> FloatArray:
            return game(np.atleast_2d(coalitions).astype(np.bool_))  # shapiq also asks for one coalition as (n,)

        found = build(n, seed).approximate(budget, of_rows)
        return np.array([found[(contributor,)] for contributor in range(n)])

    return estimate


ESTIMATORS: dict[str, Estimator] = {
    "KernelSHAP": _adapted(lambda n, seed: shapiq.KernelSHAP(n, random_state=seed)),
    "KernelSHAP, pairs": _adapted(lambda n, seed: shapiq.KernelSHAP(n, pairing_trick=True, random_state=seed)),
    "kADD-SHAP": _adapted(lambda n, seed: shapiq.kADDSHAP(n, max_order=2, random_state=seed)),
    "UnbiasedKernelSHAP": _adapted(lambda n, seed: shapiq.UnbiasedKernelSHAP(n, random_state=seed)),
    "UnbiasedKernelSHAP, pairs": _adapted(
        lambda n, seed: shapiq.UnbiasedKernelSHAP(n, pairing_trick=True, random_state=seed)
    ),
    "SVARM": _adapted(lambda n, seed: shapiq.SVARM(n, random_state=seed)),
    "SVARM, pairs": _adapted(lambda n, seed: shapiq.SVARM(n, pairing_trick=True, random_state=seed)),
    "permutation sampling": _adapted(lambda n, seed: shapiq.PermutationSamplingSV(n, random_state=seed)),
    "stratified sampling": _adapted(lambda n, seed: shapiq.StratifiedSamplingSV(n, random_state=seed)),
    "Owen sampling": _adapted(lambda n, seed: shapiq.OwenSamplingSV(n, random_state=seed)),
    # Needs the package lightgbm. Always draws half of the contributors on average, in pairs.
    "ProxySPEX": _adapted(lambda n, seed: shapiq.ProxySPEX(n=n, index="SV", max_order=1, random_state=seed)),
}

# Up to how many contributors they are usable: kADD-SHAP solves for all n(n+1)/2 interactions at once; SVARM leaves
# most of its n² strata empty, and takes a minute for n = 258.
LARGEST_N: dict[str, int] = {"kADD-SHAP": 100, "SVARM": 100, "SVARM, pairs": 100}
