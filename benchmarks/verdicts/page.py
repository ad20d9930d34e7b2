"""From the simulations' numbers to the page's tables."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.markdown import table
from diffcredit.credit.verdicts import LEVELS

Row = dict[str, Any]
CHECKS = {
    "tested": "test not passed",
    "distinguishable": "not distinguishable",
    "material": "not material",
    "signal": "little signal",
}


def write_page(results: dict[str, Any], file: Path) -> None:
    studies = results["studies"]
    every = [row for rows in results.values() if isinstance(rows, list) for row in rows]
    failed, said = (sum(row[key] for row in every) for key in ("failed", "failed_is_reason"))
    planted = [row for row in results["planted"] if row["contributors"] > 6 and row["per_contributor"] >= 10]
    enough = [row for row in planted if row["difference"] >= 1] + results["planted_noises"]
    equal = results["equal"]
    lines = [
        "# Verdicts",
        "",
        "`python -m benchmarks verdicts` makes this page by simulation, from games that are known.",
        "",
        f"- **Equal contributors**: *pay by it* in {sum(map(_payable, equal))} of {sum(map(_studies, equal)):,} "
        f"studies, and in {_most(equal):.0%} of any one kind at most.",
        f"- **Real differences and enough evaluations**: *pay by it* in at least {_least(enough):.0%}. Enough means: "
        "twelve contributors or more, whose credits have a standard deviation of at least the spread of everybody's "
        "model between training seeds; ten evaluations for each; forty coalitions retrained from scratch with two "
        "seeds.",
        f"- **A failed validation** is the reason of the verdict in {said:,} of {failed:,} studies where it failed.",
        f"- **Differences that do not matter**: *pay by it* in at most {_most(results['immaterial']):.1%}.",
        "",
        f"Each row is {studies} studies. F is a concave function of the coalition's size, plus the members' effects "
        "and noise. The noise of training everybody's model has a standard deviation of 1, the unit of all "
        "differences. Credits are the default estimator's, F(all) has three replicates, validation retrains coalitions "
        "of half of the contributors with two seeds each, and `compare_lds` judges it. The columns after the levels "
        "say in how many studies a check stood in the way of *pay by it*.",
        "",
        "## Equal contributors",
        "",
        *_table(results["equal"], ("contributors", "evaluations", "truths", "noise", "special")),
        "## Planted differences",
        "",
        "The column difference has the standard deviation of the true credits. With six contributors validation has "
        "ten coalitions at most, which is often too few to exclude chance. With differences of half a seed's "
        "spread, many studies have nobody who surely matters.",
        "",
        *_table(
            results["planted"] + results["planted_noises"],
            ("contributors", "evaluations", "truths", "difference", "noise"),
        ),
        "## Retraining that misleads",
        "",
        "The study's evaluations have differences of 1. Models retrained from scratch have none (0), or the opposite "
        "ones (−1).",
        "",
        *_table(results["failed"], ("contributors", "evaluations", "truthful")),
        "## Differences that are sure and do not matter",
        "",
        "Credits have a standard deviation of 0.25; nobody's differs by 1. The spread between seeds counts the noise "
        "of evaluations as one more seed. The last column has the studies in which somebody would matter by the seeds "
        "alone: a spread of two or three of them is often far too small.",
        "",
        *_table(results["immaterial"], ("evaluations", "noise", "replicates"), ("alone",)),
        "## Outliers",
        "",
        "A part of the evaluations is wrong by 10 standard deviations of the noise.",
        "",
        *_table(results["outliers"], ("contributors", "evaluations", "difference", "outliers")),
    ]
    file.write_text("\n".join(lines), encoding="utf-8")


SHOWN: dict[str, Callable[[Row], str]] = {
    "contributors": lambda row: str(row["contributors"]),
    "evaluations": lambda row: str(2 ** row["contributors"] - 2 if _all(row) else _evaluations(row)),
    "truths": lambda row: f"{row['truths']} × {row['seeds']}",
    "noise": lambda row: row["noise"],
    "special": lambda row: "all coalitions" if _all(row) else "pairs interact" if row["pairs"] else "",
    "difference": lambda row: f"{row['difference']:g}",
    "truthful": lambda row: f"{row['truthful']:g}",
    "outliers": lambda row: f"{row['outliers']:.0%}",
    "replicates": lambda row: str(row["replicates"]),
    "alone": lambda row: f"{row['material_by_seeds_alone'] / _studies(row):.0%}",
}
TITLES = {
    "alone": "material by seeds alone",
    "truths": "retrained × seeds",
    "truthful": "true differences",
    "replicates": "seeds of F(all)",
    "special": "",
}


def _all(row: Row) -> bool:
    return row["design"] == "exhaustive"


def _evaluations(row: Row) -> int:
    return row["per_contributor"] * row["contributors"]


def _table(rows: Iterable[Row], columns: Sequence[str], last: Sequence[str] = ()) -> list[str]:
    named = [[TITLES.get(column, column) for column in group] for group in (columns, last)]
    titles = [*named[0], *LEVELS, *CHECKS.values(), *named[1]]
    return table(
        titles,
        [
            [
                *(SHOWN[column](row) for column in columns),
                *(f"{row['levels'].get(level, 0) / _studies(row):.1%}" for level in LEVELS),
                *(f"{row['against'].get(check, 0) / _studies(row):.0%}" for check in CHECKS),
                *(SHOWN[column](row) for column in last),
            ]
            for row in rows
        ],
    )


def _studies(row: Row) -> int:
    return sum(row["levels"].values())


def _payable(row: Row) -> int:
    return row["levels"].get("pay by it", 0)


def _paid(row: Row) -> float:
    return _payable(row) / _studies(row)


def _most(rows: Iterable[Row]) -> float:
    return max(map(_paid, rows))


def _least(rows: Iterable[Row]) -> float:
    return min(map(_paid, rows))
