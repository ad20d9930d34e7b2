"""Baselines compared with a study's credits, as rows of a table and as a CSV file."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from diffcredit.baselines.controls import RandomRanking
from diffcredit.baselines.study import StudyBaseline, helpfulness
from diffcredit.credit.correlations import CHANCE, RANDOM_RANKINGS, correlation, correlations, random_rankings
from diffcredit.errors import UserError
from diffcredit.report.records import Agreement, BaselineRow
from diffcredit.util.arrays import FloatArray
from diffcredit.util.artifacts import write_text
from diffcredit.util.sanitize import csv_text

if TYPE_CHECKING:
    from diffcredit.study.study import Study


def study_helpfulness(study: "Study") -> dict[str, FloatArray]:
    """Return the study's credits (n,) by property, turned so that higher is more helpful; empty if it has none."""
    try:
        credits = study.credits()
    except UserError:
        return {}
    return {name: helpfulness(each.values, each.higher_is_better) for name, each in credits.items()}


def compared(found: Sequence[StudyBaseline], credits: Mapping[str, FloatArray]) -> list[BaselineRow]:
    """Return a row for each method and setting: its rank correlation with the study's credits."""
    merged: dict[str, BaselineRow] = {}
    for each in found:
        if each.found.method == RandomRanking.name:  # one alone says nothing of what chance reaches
            merged[each.found.name] = _at_random(credits, each.found.seconds)
            continue
        row = merged.get(each.found.name)
        correlations = dict(row.correlations) if row else dict.fromkeys(credits)
        for name in credits if each.property is None else [each.property]:
            if name in credits:
                rho = correlation(each.helpfulness, credits[name], "spearman")
                correlations[name] = None if math.isnan(rho) else rho
        seconds = each.found.seconds + (row.seconds if row else 0.0)
        merged[each.found.name] = BaselineRow(each.found.name, correlations, each.found.chosen, seconds)
    return list(merged.values())


def _at_random(credits: Mapping[str, FloatArray], seconds: float) -> BaselineRow:
    ranges = {}
    for name, own in credits.items():
        drawn = random_rankings(len(own))
        low, high = np.quantile(correlations(drawn, np.broadcast_to(own, drawn.shape), "spearman"), CHANCE[1:])
        if np.isfinite(low):
            ranges[name] = float(low), float(high)
    return BaselineRow(f"{RANDOM_RANKINGS} random rankings", dict.fromkeys(credits), {}, seconds, ranges)


def agreement(found: Sequence[StudyBaseline]) -> Agreement | None:
    """Return the rank correlation of each two methods or settings, random rankings left out; None where there are not
    two."""
    found = [each for each in found if each.found.method != RandomRanking.name]
    if len(found) < 2:
        return None
    names = tuple(each.found.name + (f", {each.property}" if each.property else "") for each in found)
    table = [[correlation(one.helpfulness, other.helpfulness, "spearman") for other in found] for one in found]
    return Agreement(names, tuple(tuple(None if math.isnan(rho) else rho for rho in row) for row in table))


def write_baselines_csv(found: Sequence[StudyBaseline], contributors: Sequence[str], file: Path) -> None:
    """Write one line for each method, setting and contributor; no name can run as a formula."""
    rows = (
        (each.found.method, each.found.how, each.found.setting, each.property, contributor, credit)
        for each in found
        for contributor, credit in zip(contributors, each.found.credits.tolist(), strict=True)
    )
    columns = ("method", "aggregation", "options", "property", "contributor", "credit")
    write_text(file, csv_text([columns, *rows], line_end="\n"))
