"""Datamodels (Ilyas et al. 2022): a penalised linear regression of F on membership; the weights are the credits.

F(S) ≈ a + Σ_{i∈S} β_i, without importance weights, size effects or constraint. β is the best linear prediction over
coalitions as they were drawn and changes with the design. Over coalitions of one size only differences of β exist, and
the weights sum to 0. Endpoints are not used.
"""

import numpy as np
from scipy.optimize import minimize_scalar

from diffcredit.credit.credits import Credits, unit_sums
from diffcredit.credit.mixed_model import restricted_likelihood
from diffcredit.credit.regression import Regression, regress
from diffcredit.credit.table import GameTable, IntArray
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray

LEAST_COALITIONS = 5
FOLDS = 5
DRAWS = 100  # of the bootstrap: a standard error is then known to about 7 %


def datamodel(table: GameTable, confidence: float) -> Credits:
    """Fit a ridge regression with λ by generalised cross-validation.

    Interval: β̂ ± cva(m₂)·√V, V the HC3 variance, m₂ the second moment of the shrinkage bias over V, where β has the
    second moment τ² of the restricted likelihood. It covers β of this design, on average over the contributors.
    """
    y, regression = table.about_mean.values, _regression(table, "datamodel")
    components = restricted_likelihood(regression.spectrum, y)
    ridge, error = _best_ridge(regression, y)
    fit = regression.fit(ridge)
    slopes = fit.linear_map
    deleted = fit.adjusted_residuals(y, table.units, components.noise, power=1.0)
    shrinkage = slopes @ table.coalitions - np.eye(table.n)
    if np.ptp(table.sizes) == 0:
        shrinkage += 1 / table.n
    credits = slopes @ y
    about_mean = y - np.average(y, weights=table.replicates)
    return Credits.of(
        table,
        "datamodel",
        credits,
        np.hstack([unit_sums(slopes * deleted, table.units), np.zeros((table.n, 2))]),
        confidence=confidence,
        residuals=True,
        bias=np.sqrt(components.spread * (shrinkage**2).sum(axis=1)),
        diagnostics={
            "lambda": ridge,
            "sigma": components.noise**0.5,
            "tau": components.spread**0.5,
            "sum": float(credits.sum()),
            "predicted_share": 1 - error / max(float(table.replicates @ about_mean**2), 1e-300),
        },
    )


def datamodel_lasso(table: GameTable, confidence: float) -> Credits:
    """Fit a lasso with its penalty α by 5-fold cross-validation; a coalition and its complement share a fold.

    With fewer than 5 such units each is a fold. Standard errors are those of the desparsified weights
    b_i = β̂_i + Σ_j x̃_ji e_j / Σ_j x̃_ji² (van de Geer et al. 2014), e the residuals and x̃ = x − s/n, over 100 bootstrap
    draws of units at fixed α: b varies even where β̂ stays at 0. The interval adds the most that the threshold removes,
    α / mean x̃², as a bias. It takes α as given and x̃_i as uncorrelated with what the others add, so it is only a rough
    guide with fewer evaluations than contributors.
    """
    try:
        from sklearn.linear_model import Lasso, LassoCV
    except ImportError:
        raise UserError("method 'datamodel-lasso': needs the package scikit-learn; install it") from None
    _regression(table, "datamodel-lasso")
    x, y = table.coalitions.astype(np.float64), table.values
    weights, unit = table.replicates.astype(np.float64), _units_by_value(table)
    units = int(unit.max()) + 1
    generator = np.random.Generator(np.random.PCG64(0))
    fold = np.argsort(generator.random(units))[unit] % FOLDS
    folds = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(min(FOLDS, units))]
    search = LassoCV(cv=folds, max_iter=10_000).fit(x, y, weights)
    lasso = Lasso(alpha=search.alpha_, max_iter=10_000, warm_start=True)

    def desparsified(row_weights: FloatArray) -> FloatArray:
        lasso.fit(x, y, row_weights)
        residuals = row_weights * (y - lasso.predict(x))
        return lasso.coef_ + residuals @ table.centred / (row_weights @ table.centred**2)

    drawn = generator.integers(0, units, (DRAWS, units))
    counts = np.stack([np.bincount(row, minlength=units) for row in drawn])[:, unit]
    draws = np.stack([desparsified(count * weights) for count in counts])
    variance = weights @ table.centred**2 / weights.sum()
    residuals = weights @ (y - search.predict(x)) ** 2
    return Credits.of(
        table,
        "datamodel-lasso",
        search.coef_,
        np.hstack([(draws - draws.mean(axis=0)).T / (DRAWS - 1) ** 0.5, np.zeros((table.n, 2))]),
        confidence=confidence,
        bias=search.alpha_ / variance,
        diagnostics={
            "alpha": float(search.alpha_),
            "sigma": float(residuals / max(len(y) - (search.coef_ != 0).sum() - 1, 1)) ** 0.5,
            "selected": float((search.coef_ != 0).sum()),
            "sum": float(search.coef_.sum()),
        },
    )


def _units_by_value(table: GameTable) -> IntArray:
    """Return (m,): the units, numbered by how far their values are from the mean, so that draws by number depend
    neither on the order of the contributors nor on the property's unit or sign."""
    sums, rows = np.bincount(table.units, table.about_mean.values), np.bincount(table.units)
    return np.argsort(np.argsort(np.abs(sums / rows), kind="stable"), kind="stable")[table.units]


def _regression(table: GameTable, method: str) -> Regression:
    """Return the regression on 1 and x with replicates as weights. Raise UserError if it identifies nothing."""
    table.require(LEAST_COALITIONS, method)
    constant, weights = np.ones((len(table.values), 1)), table.replicates.astype(np.float64)
    regression = regress(table.coalitions.astype(np.float64), constant, weights)
    if not len(regression.information):
        raise UserError(f"{table.evaluations} evaluations of {table.n} contributors: none distinguishes two of them")
    return regression


def _best_ridge(regression: Regression, values: FloatArray) -> tuple[float, float]:
    """Return the λ with the smallest RSS(λ)·(m/(m − tr H))² (Golub, Heath and Wahba 1979), and that number."""
    information, squares = regression.information, regression.spectrum.scores(values) ** 2
    m, unexplained = len(values), regression.spectrum.unexplained(values)
    spare = m - regression.nuisance.shape[1] - len(information)

    def error(log_ridge: float) -> float:
        ridge = float(np.exp(log_ridge))
        left = ridge / (ridge + information)
        return (unexplained + float(squares @ left**2)) * (m / (spare + float(left.sum()))) ** 2

    # A grid first: there may be two minima.
    grid = np.log(information.mean()) + np.linspace(np.log(1e-8), np.log(1e4), 85)
    best = int(np.argmin([error(point) for point in grid]))
    around = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(error, bounds=around, method="bounded", options={"xatol": 1e-6})
    return float(np.exp(found.x)), float(found.fun)
