"""The mixed model behind the default estimator: variance components by restricted maximum likelihood (REML).

y_j = size effects + Σ_i β_i m(s_j) x̃_ji + ε_j, β ~ (0, τ²I), ε_j ~ (0, σ²v_j), with m and v of a `SizeModel`.

A model fine-tuned on a coalition follows the average of its members' images, so one contributor among s changes it by
about 1/s; a model of few images also varies more from seed to seed. Hence slopes are β_i·s^−γ and the noise's variance
is σ²·s^−δ, each scaled to mean 1 over the sizes 1..n−1, so that β_i remains the mean slope: the Shapley contrast.

What the regression misses of F(S) is the same in all replicates of S: a share κ of the variance of one evaluation. The
mean of r replicates has variance σ²s^−δ·(κ + (1 − κ)/r), so more replicates of one coalition are worth less than more
coalitions. If all coalitions of a size are in the table, what the regression misses there is not a sampling error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from math import exp, log
from typing import Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import comb, fdtrc

from diffcredit.credit.regression import Regression, RidgeFit, Spectrum, regress
from diffcredit.credit.table import GameTable, IntArray
from diffcredit.util.arrays import FloatArray

SIZE_MODEL_ROWS = 1200  # rows that the size model is fitted to: more hardly change it and would take most of the time
SPECTRA = 12  # that are kept of such rows: as many as a search mostly looks at, at most 12 MB each
STEPS = (0.5, 0.25)  # shorter ones would change no credit by a tenth of its error
LIMITS = {"slope": (-1.0, 2.0), "noise": (-1.0, 3.0), "misfit": (0.0, 0.99)}
PRECISE = 4 * float(np.finfo(float).eps)  # the smallest tolerance of a root that scipy accepts


@dataclass(frozen=True)
class SizeModel:
    """The exponents of the slope, γ, and of the noise, δ, and the misfit κ."""

    slope: float = 0.0
    noise: float = 0.0
    misfit: float = 0.0

    def modulation(self, table: GameTable) -> FloatArray:
        """Return (m,): s^−γ over its mean; 1 if γ = 0."""
        return _power(table, -self.slope)

    def noise_within(self, table: GameTable) -> FloatArray:
        """Return (m,): the variance of one evaluation about its coalition's mean, in units of σ²."""
        return _power(table, -self.noise) * (1 - self.misfit)

    def variance(self, table: GameTable) -> FloatArray:
        """Return (m,): the variance of each coalition's mean value, in units of σ²."""
        return _power(table, -self.noise) * self._shared(table)

    def sampling_share(self, table: GameTable) -> FloatArray:
        """Return (m,): the share of `variance` that is sampling error, 1 − f·κ/(κ + (1 − κ)/r).

        f is the fraction of all coalitions of that size that the table has.
        """
        seen = np.bincount(table.sizes, minlength=table.n) / comb(table.n, np.arange(table.n))
        return 1 - seen[table.sizes] * self.misfit / self._shared(table)

    def _shared(self, table: GameTable) -> FloatArray:
        return self.misfit + (1 - self.misfit) / table.replicates


def _power(table: GameTable, exponent: float) -> FloatArray:
    return table.sizes ** float(exponent) / np.mean(np.arange(1, table.n) ** float(exponent))


@dataclass(frozen=True)
class VarianceComponents:
    """Estimates of the noise σ² = S(λ)/ν of one value about the fit and of the ridge λ = σ²/τ². ``deviance``: −2 log of
    their likelihood; ``freedom``: ν."""

    noise: float
    ridge: float
    deviance: float
    freedom: int

    @property
    def spread(self) -> float:
        """τ², the variance of the credits about their mean."""
        return self.noise / self.ridge


@dataclass(frozen=True, eq=False)
class MixedModel:
    """A fitted size model with its regressors x̃ m(s) (m, n), their regression and the variance components."""

    size_model: SizeModel
    modulated: FloatArray
    regression: Regression
    components: VarianceComponents

    @cached_property
    def fit(self) -> RidgeFit:
        """The regression solved with the estimated ridge."""
        return self.regression.fit(self.components.ridge)


def fit_mixed_model(
    table: GameTable, nuisance: FloatArray, proxies: FloatArray, apart: Sequence[int] = ()
) -> MixedModel:
    """Fit the size model by maximum likelihood, and all else with it.

    nuisance (m, p): unshrunk regressors that do not depend on the size model. proxies (n, k): directions in which
    credits are not shrunk; x̃ m(s)·proxy joins the nuisance. apart: rows that the nuisance has an indicator of; but for
    their replicates, they say as little of the size model as rows that are not there.
    """
    spread_out = np.linspace(0, len(table.values) - 1, SIZE_MODEL_ROWS).astype(np.intp)
    outlying = np.array(apart, dtype=np.intp)
    fitted, replicated = np.setdiff1d(spread_out, outlying), _rows(table, np.union1d(spread_out, outlying))
    some, some_nuisance = _rows(table, fitted), nuisance[fitted]
    sample = _Sample.of(some, some_nuisance[:, some_nuisance.any(axis=0)], proxies)

    def deviance(size_model: SizeModel) -> float:
        return _components(_sample_spectrum(sample, size_model), some, replicated, size_model).deviance

    with_misfit = bool((replicated.replicates > 1).any())
    size_model = _fit_size_model(deviance, SizeModel(misfit=0.5 if with_misfit else 0.0), with_misfit)
    if apart:
        return _fit(table, nuisance, proxies, size_model)
    modulated, regression = _whole_regression(_Sample.of(table, nuisance, proxies), size_model)
    return _fitted(table, size_model, modulated, regression)


@dataclass(frozen=True)
class _Sample:
    """Coalitions and unshrunk regressors without values. Two of the same ``content`` are equal: properties that were
    measured by the same evaluations share what follows from them."""

    content: bytes
    table: GameTable = field(compare=False)
    nuisance: FloatArray = field(compare=False)
    proxies: FloatArray = field(compare=False)

    @classmethod
    def of(cls, table: GameTable, nuisance: FloatArray, proxies: FloatArray) -> Self:
        arrays = np.packbits(table.coalitions, axis=1), table.replicates, nuisance, proxies
        content = repr(table.n).encode() + b"".join(repr(each.shape).encode() + each.tobytes() for each in arrays)
        return cls(sha256(content).digest(), table, nuisance, proxies)


@lru_cache(maxsize=SPECTRA)
def _sample_spectrum(sample: _Sample, size_model: SizeModel) -> Spectrum:
    return _regression(sample.table, sample.nuisance, sample.proxies, size_model)[1].spectrum


@lru_cache(maxsize=1)  # it may be large
def _whole_regression(sample: _Sample, size_model: SizeModel) -> tuple[FloatArray, Regression]:
    return _regression(sample.table, sample.nuisance, sample.proxies, size_model)


def forget_regressions() -> None:
    """Free the memory of what properties of the same evaluations share."""
    _sample_spectrum.cache_clear()
    _whole_regression.cache_clear()


def _rows(table: GameTable, rows: IntArray) -> GameTable:
    kept = {name: getattr(table, name)[rows] for name in ("coalitions", "values", "replicates", "scatter")}
    return replace(table, **kept)


def _fit_size_model(deviance: Callable[[SizeModel], float], start: SizeModel, with_misfit: bool) -> SizeModel:
    """Minimise a deviance, smooth with one minimum in practice, by coordinate steps, long ones first and then short."""
    known: dict[SizeModel, float] = {}

    def value(size_model: SizeModel) -> float:
        if size_model not in known:
            # −2 log of standard normal priors, which keep γ and δ at 0 if the values say nothing about them.
            penalty = size_model.slope**2 + size_model.noise**2
            known[size_model] = deviance(size_model) + penalty
        return known[size_model]

    coordinates = ("slope", "noise", "misfit") if with_misfit else ("slope", "noise")
    best = start
    for step in STEPS:
        while True:
            around = [
                replace(best, **{name: float(np.clip(getattr(best, name) + sign * step, *LIMITS[name]))})
                for name in coordinates
                for sign in (-1, 1)
            ]
            better = min(around, key=value)
            if value(better) >= value(best):
                break
            best = better
    return best


def misfit_p(table: GameTable, nuisance: FloatArray, proxies: FloatArray, size_model: SizeModel) -> dict[str, float]:
    """Return ``misfit_p``, the p-value of κ = 0; nothing without replicates.

    F test with m − p and the replicates' degrees of freedom, p the number of unshrunk regressors; exact if λ, γ and δ
    are given. Replicates of F(∅) and F(N) are not used, since noise may change with the size.
    """
    replicates = int((table.replicates - 1).sum())
    if replicates == 0:
        return {}
    size_model = replace(size_model, misfit=0.0)
    components, within = _fit(table, nuisance, proxies, size_model).components, _scatter(table, size_model)
    freedom = components.freedom - replicates
    between = components.noise * components.freedom - within
    if between <= 0:
        return {"misfit_p": 1.0}
    ratio = between / freedom / (within / replicates) if within > 0 else np.inf
    return {"misfit_p": float(fdtrc(freedom, replicates, ratio))}


def with_parameters_of(
    other: MixedModel, model: MixedModel, table: GameTable, nuisance: FloatArray, proxies: FloatArray
) -> MixedModel:
    """Fit all of the table, as ``model`` does, with γ, δ, κ and λ of ``other``; σ² = S(λ)/ν is its own."""
    size_model, ridge = other.size_model, other.components.ridge
    if size_model == model.size_model:
        modulated, regression = model.modulated, model.regression
    else:
        modulated, regression = _regression(table, nuisance, proxies, size_model)
    spectrum = regression.spectrum
    shrunk = spectrum.scores(table.values) ** 2 * ridge / (ridge + spectrum.information)
    squares = float(shrunk.sum()) + spectrum.unexplained(table.values) + _scatter(table, size_model)
    freedom = table.evaluations - regression.nuisance.shape[1]
    components = replace(other.components, noise=squares / freedom, freedom=freedom)
    return MixedModel(size_model, modulated, regression, components)


def _fit(table: GameTable, nuisance: FloatArray, proxies: FloatArray, size_model: SizeModel) -> MixedModel:
    return _fitted(table, size_model, *_regression(table, nuisance, proxies, size_model))


def _fitted(table: GameTable, size_model: SizeModel, modulated: FloatArray, regression: Regression) -> MixedModel:
    return MixedModel(size_model, modulated, regression, _components(regression.spectrum, table, table, size_model))


def _components(
    spectrum: Spectrum, table: GameTable, replicated: GameTable, size_model: SizeModel
) -> VarianceComponents:
    """Estimate the variances from a table's regression, and from the scatter of all rows that may be ``replicated``."""
    again = replicated.replicates - 1
    log_variances = (
        np.log(size_model.variance(table)).sum() + (again * np.log(size_model.noise_within(replicated))).sum()
    )
    scatter = _scatter(replicated, size_model)
    return restricted_likelihood(spectrum, table.values, scatter, int(again.sum()), float(log_variances))


def _regression(
    table: GameTable, nuisance: FloatArray, proxies: FloatArray, size_model: SizeModel
) -> tuple[FloatArray, Regression]:
    modulated = table.centred * size_model.modulation(table)[:, None] if size_model.slope else table.centred
    return modulated, regress(modulated, np.hstack([nuisance, modulated @ proxies]), 1 / size_model.variance(table))


def _scatter(table: GameTable, size_model: SizeModel) -> float:
    """Return the sum of squares of replicates about their means, in units of σ²."""
    return float((table.scatter / size_model.noise_within(table)).sum())


def restricted_likelihood(
    fit: Spectrum, values: FloatArray, scatter: float = 0.0, degrees: int = 0, log_variances: float = 0.0
) -> VarianceComponents:
    """Estimate σ² and λ = σ²/τ² by REML.

    −2ℓ(λ) = Σ_k log(1 + d_k²/λ) + ν log(S(λ)/ν) + log|BᵀWB| + Σ_j log v_j, S(λ) = Σ_k a_k²/(1 + d_k²/λ) + RSS,
    with a = Uᵀ√W y, B the nuisance regressors and ν = m − p; ``scatter`` with its ``degrees`` joins RSS and ν.
    λ ≤ ½Σd²: an estimate of τ² near 0 is mostly chance and would give intervals without width (the truncation of
    Armstrong, Kolesár and Plagborg-Møller 2022). With about as many evaluations as parameters the likelihood may have
    its maximum at σ = 0. Against that −log(λ/(λ + d̄²)), d̄² the mean d_k², is the weakest penalty (Chung et al. 2013).
    """
    squares = fit.scores(values) ** 2
    unexplained = fit.unexplained(values) + scatter
    freedom = len(values) - fit.nuisance.shape[1] + degrees
    information = fit.information
    constant = 2 * float(np.log(np.abs(np.diag(fit.triangle))).sum()) + log_variances
    typical = float(information.mean())

    # For one λ, or for several (g, 1).
    def explained(ridge: FloatArray | float) -> FloatArray:
        # If all values are equal, any positive number serves, and the likelihood is largest at the largest λ.
        return np.maximum((squares * ridge / (ridge + information)).sum(axis=-1) + unexplained, 1e-200)

    def deviance(ridge: FloatArray | float) -> FloatArray:
        likelihood = np.log1p(information / ridge).sum(axis=-1) + freedom * np.log(explained(ridge) / freedom)
        return likelihood + np.sum(np.log1p(typical / ridge), axis=-1) + constant

    def slope(ridge: float) -> float:
        """Return λ times the derivative of the deviance."""
        both, shrunk = ridge + information, squares * ridge
        sums = np.array([shrunk * information / both**2, shrunk / both, information / both]).sum(axis=1)
        change, left, share = sums.tolist()
        return freedom * change / max(left + unexplained, 1e-200) - share - typical / (ridge + typical)

    # A grid first, since there may be two minima; then the root of the slope, which is more precise than the minimum.
    grid = np.geomspace(1e-10 * information.mean(), information.sum() / 2, 101)
    best = int(np.argmin(deviance(grid[:, None])))
    low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 100)])
    if slope(low) <= 0 < slope(high):
        ridge = exp(brentq(lambda x: slope(exp(x)), log(low), log(high), xtol=1e-15, rtol=PRECISE))
    else:  # at an end of the range of λ
        ridge = low if slope(low) > 0 else high
    return VarianceComponents(float(explained(ridge)) / freedom, ridge, float(deviance(ridge)), freedom)
