"""Compare two studies, or two recipes of one study: how their settings differ, and how their credits.

from diffcredit.validation.compare import compare_studies

compare_studies("a/study.yaml", "b/study.yaml")           # each by its own recipe
compare_studies("study.yaml", "study.yaml:from_scratch")  # two recipes of one study
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from diffcredit.credit import Credits
from diffcredit.credit.correlations import correlation
from diffcredit.credit.credits import half_width
from diffcredit.errors import UserError, located
from diffcredit.ledger import differences
from diffcredit.study.crediting import estimate_all
from diffcredit.study.manifest import check_terms
from diffcredit.study.study import Study
from diffcredit.util.arrays import FloatArray
from diffcredit.util.sanitize import csv_text
from diffcredit.validation.statistics.agreement import true_rank_correlation, unshrunk
from diffcredit.validation.statistics.records import Estimate

COLUMNS = (
    *("property", "contributor", "credit_a", "low_a", "high_a", "rank_a", "credit_b", "low_b", "high_b", "rank_b"),
    *("difference", "difference_low", "difference_high", "differs", "apart"),
)


@dataclass(frozen=True)
class Side:
    """One recipe's credits by property, for ``contributors`` in the order of the coalitions, and for each property
    whether ``higher`` is better. ``place`` is its ledger and name, ``settings`` everything that fixes its credits."""

    place: tuple[str, str]
    contributors: tuple[str, ...]
    higher: Mapping[str, bool]
    credits: Mapping[str, Credits]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class ContributorRow:
    """A contributor's two credits, their difference b − a, and their ranks among the shared contributors (1: the most
    helpful). ``differs``: the difference's interval excludes 0; ``apart``: the intervals do not overlap."""

    contributor: str
    a: Estimate
    b: Estimate
    difference: Estimate
    rank_a: int
    rank_b: int

    @property
    def differs(self) -> bool:
        return self.difference.low > 0 or self.difference.high < 0

    @property
    def apart(self) -> bool:
        return self.a.high < self.b.low or self.b.high < self.a.low


@dataclass(frozen=True)
class PropertyComparison:
    """One property's credits side by side. ``correlation`` is Spearman's between the estimates, ``true_correlation`` an
    estimate of that between the credits without their errors. ``top`` is a fifth of the contributors' number,
    ``shared_top`` how many are in the top fifth of both. ``evaluations`` are the numbers behind a and behind b."""

    property: str
    higher_is_better: bool
    rows: tuple[ContributorRow, ...]
    correlation: float
    true_correlation: Estimate
    top: int
    shared_top: int
    evaluations: tuple[int, int]


@dataclass(frozen=True)
class StudyComparison:
    """Two sides ``a`` and ``b``, by their texts. ``only_a`` and ``only_b`` are contributors of one side only,
    ``differing`` the settings that differ."""

    a: str
    b: str
    method: str
    confidence: float
    differing: tuple[str, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    properties: tuple[PropertyComparison, ...]


def compare_studies(a: str, b: str, method: str | None = None, confidence: float = 0.95) -> StudyComparison:
    """Compare two of STUDY or STUDY:RECIPE (default: its own) by ``method`` (None: that of both designs). Raises
    UserError where they are the same, or share no contributor, no property or no method."""
    first, second = _side(a, method, confidence), _side(b, method, confidence)
    if first.place == second.place:
        raise UserError(f"{a} and {b}: one and the same recipe {first.place[1]!r}; two are needed")
    methods = list(dict.fromkeys(each.method for side in (first, second) for each in side.credits.values()))
    if len(methods) > 1:
        raise UserError(
            f"{a} and {b}: credits by {' and by '.join(methods)}, as their designs have them, answer different "
            "questions; --method names one for both"
        )
    shared = [name for name in first.contributors if name in second.contributors]
    both = [name for name in first.credits if name in second.credits]
    properties = [name for name in both if first.higher[name] == second.higher[name]]
    for found, what, one, other in (
        (shared, "no contributor is in both", first.contributors, second.contributors),
        (properties, "no property has credits in both", first.credits, second.credits),
    ):
        if not found:
            raise UserError(f"{a} and {b}: {what}; they have {_listed(one)}, and {_listed(other)}")
    return StudyComparison(
        a=a,
        b=b,
        method=methods[0],
        confidence=confidence,
        differing=tuple(differences(dict(first.settings), dict(second.settings))),
        only_a=tuple(name for name in first.contributors if name not in shared),
        only_b=tuple(name for name in second.contributors if name not in shared),
        properties=tuple(_compared(name, first, second, shared) for name in properties),
    )


def _side(text: str, method: str | None, confidence: float) -> Side:
    """Read the credits of STUDY or STUDY:RECIPE from its ledger; an existing file whose name has a colon is a study."""
    path, colon, recipe = text.rpartition(":")
    if not colon or Path(text).exists() or not Path(path).exists():
        path, recipe = text, ""
    study = Study.load(path)
    name = recipe or study.recipe.name
    with located(text), study.ledger(create=False) as ledger:
        evaluations = ledger.evaluations(study.name, name)
        contributors = tuple(ledger.settings(study.name)["contributors"])
        records = {record.name: record for record in study.measured(ledger)}
        found = next(each for each in ledger.recipes(study.name) if each.name == name)
    if name == study.recipe.name:
        credits = study.credits(method, confidence)
    else:
        check_terms(study)
        credits, reasons = estimate_all(evaluations, records, study.config, method, confidence)
        if not credits:
            raise UserError(f"{text}: no credits: {'; '.join(dict.fromkeys(reasons.values()))}")
    settings = {
        **_with_seeds(found.settings, study.config.data_seed),
        "design": study.config.design.model_dump(mode="json"),
        "reference": dict(study.reference.stated) or study.reference.kind,
        "properties": {each.name: each.settings for each in records.values()},
        "weights": found.weights,
    }
    place = str(study.config.ledger or study.folder.resolve()), f"{study.name}:{name}"
    higher = {each.name: each.higher_is_better for each in records.values()}
    return Side(place, contributors, higher, credits, settings)


def _with_seeds(recipe: Mapping[str, Any], data: int) -> dict[str, Any]:
    """Return a recipe's settings with all seeds together; that of the ``data`` stands in the study file alone."""
    model = dict(recipe.get("model", {}))
    seeds = {"data": data, "model": model.pop("seed", recipe.get("seed")), "evaluations": recipe.get("seed")}
    return {key: value for key, value in recipe.items() if key != "seed"} | {"model": model, "seeds": seeds}


def comparison_csv(comparison: StudyComparison) -> str:
    """Write a row for each property and contributor as RFC 4180; unknown numbers are empty."""

    def cells(estimate: Estimate) -> tuple[float, float, float]:
        return estimate.value, estimate.low, estimate.high

    rows = (
        (
            *(each.property, row.contributor, *cells(row.a), row.rank_a, *cells(row.b), row.rank_b),
            *(*cells(row.difference), "yes" if row.differs else "no", "yes" if row.apart else "no"),
        )
        for each in comparison.properties
        for row in each.rows
    )
    return csv_text([COLUMNS, *rows])


def _compared(name: str, first: Side, second: Side, shared: list[str]) -> PropertyComparison:
    a, b = first.credits[name], second.credits[name]
    rows_a, rows_b = (np.array([side.contributors.index(each) for each in shared]) for side in (first, second))
    sign = 1.0 if first.higher[name] else -1.0
    x, y = a.rounded[rows_a], b.rounded[rows_b]
    # 1 is the most helpful; ties share the better rank
    from scipy.stats import rankdata  # takes long to import

    ranks = [rankdata(-sign * part, method="min").astype(int).tolist() for part in (x, y)]
    difference, half = y - x, difference_half_width(a, b, rows_a, rows_b)
    (x_true, x_noise), (y_true, y_noise) = unshrunk(a), unshrunk(b)
    observed = correlation(x, y, "spearman")
    top = math.ceil(len(shared) / 5)
    best = [{each for each, rank in zip(shared, part, strict=True) if rank <= top} for part in ranks]
    rows = (
        ContributorRow(
            each,
            Estimate(float(x[i]), float(a.low[rows_a[i]]), float(a.high[rows_a[i]])),
            Estimate(float(y[i]), float(b.low[rows_b[i]]), float(b.high[rows_b[i]])),
            Estimate(float(difference[i]), float(difference[i] - half[i]), float(difference[i] + half[i])),
            ranks[0][i],
            ranks[1][i],
        )
        for i, each in enumerate(shared)
    )
    return PropertyComparison(
        property=name,
        higher_is_better=first.higher[name],
        rows=tuple(sorted(rows, key=lambda row: row.rank_a)),
        correlation=observed,
        # credits that are equal up to rounding have no order
        true_correlation=Estimate(math.nan)
        if math.isnan(observed)
        else true_rank_correlation((x_true[rows_a], x_noise[rows_a]), (y_true[rows_b], y_noise[rows_b]), a.confidence),
        top=top,
        shared_top=min(top, len(best[0] & best[1])),  # ties for the last place all count
        evaluations=(a.evaluations, b.evaluations),
    )


def difference_half_width(a: Credits, b: Credits, rows_a: np.ndarray, rows_b: np.ndarray) -> FloatArray:
    """Return half the interval of b − a, (k,). The errors' variances add. The correlation of the shrinkage biases is
    unknown: the worst case is taken, and the smaller number of degrees of freedom."""
    variance = (a.influence[rows_a] ** 2).sum(axis=1) + (b.influence[rows_b] ** 2).sum(axis=1)
    return half_width(variance, a.bias[rows_a] + b.bias[rows_b], min(a.degrees, b.degrees), a.confidence)


def _listed(names: Iterable[str], most: int = 5) -> str:
    listed = list(names)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")
