"""The benchmark's results as a page of tables."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.estimators.contenders import APART, OURS

TRUE = "true Shapley values"
SCORES = {
    "lds0.5": "LDS at α = 0.5",
    "lds0.25": "LDS at α = 0.25",
    "lds0.75": "LDS at α = 0.75",
    "correlation": "Correlation with the true Shapley values",
    "top fifth": "Overlap with the true top fifth",
}


def page(results: Mapping[str, Any]) -> list[str]:
    names = list(results["scores"])
    lines = [
        "# Results of `benchmarks/estimators`",
        "",
        f"Written by `python -m benchmarks estimators` ({results['machine']}). "
        f"Mean ± standard error over {results['seeds']} seeds a game ({results['curve_seeds']} for evaluations needed, "
        f"but for percentile; {results['surrogate_seeds']} for priors and surrogates).",
    ]
    methods = [m for m in results["scores"][names[0]] if m not in APART]
    for score, title in SCORES.items():
        lines += _table(
            f"{title}", names, [*methods, *APART], lambda method, name, s=score: _cell(results, name, method, s)
        )
    lines += _table(
        "Ahead in LDS at α = 0.5: the default less the other, same coalitions and values",
        names,
        [m for m in methods if m not in (OURS, TRUE)],
        lambda method, name: _plus_minus(results["ahead"][name].get(method), sign=True),
    )
    lines += ["", "## Evaluations the default needs to match the paper's estimator", ""]
    lines += [
        "| game | evaluations | paper's | default's | needs | saved | saved (LDS 0.5) |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in names:
        row, lds = results["budget"][name]["correlation"], results["budget"][name]["lds0.5"]
        lines.append(
            f"| {name} | {row['usual']} | {row['paper']:.3f} | {row['ours']:.3f} | {row['needed']:.0f} | "
            f"{_times(row)} | {_times(lds)} |"
        )
    lines += ["", "## Coverage of 95 % intervals", ""]
    lines += [
        "| game | method, part of the usual evaluations | all | top fifth | ranks | half width (sd of credits) | "
        "predicted ρ | realised ρ |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in names:
        for key, row in results["coverage"][name].items():
            cells = [_plus_minus(row[score]) for score in ("all", "top fifth", "ranks")]
            cells += [f"{row[score]['mean']:.2f}" for score in ("half width", "predicted", "correlation")]
            lines.append(f"| {name} | {key} | {' | '.join(cells)} |".replace("nan", ""))
    lines += ["", "## The stopping rule's promise", ""]
    lines += ["| game | target | stopped | at (median) | target met | mean realised ρ |", "|---|--:|--:|--:|--:|--:|"]
    for name in names:
        for target, row in results["stop"][name].items():
            lines.append(
                f"| {name} | {target} | {row['stopped']} of {row['runs']} | {row['evaluations']:.0f} | "
                f"{row['met']:.0%} | {row['correlation']:.3f} |"
            )
    lines += ["", "## Priors and surrogates: correlation with the truth (coverage)", ""]
    for name in names:
        offered = results["surrogates"][name]
        parts = list(next(iter(offered.values())))
        lines += [f"| {name} | " + " | ".join(f"{float(p):.0%} of the evaluations" for p in parts) + " |"]
        lines += ["|---|" + "--:|" * len(parts)]
        for label, row in offered.items():
            cells = [f"{_plus_minus(row[p]['correlation'])} ({row[p]['covered']['mean']:.2f})" for p in parts]
            lines.append(f"| {label} | {' | '.join(cells)} |")
        lines.append("")
    lines += ["## Cost of one estimate with intervals", "", "| | seconds | GB |", "|---|--:|--:|"]
    lines += [
        f"| {what} | {cost['seconds']:.1f} | {cost['gigabytes']:.2f} |" for what, cost in results["speed"].items()
    ]
    return lines


def _table(title: str, names: Sequence[str], methods: Sequence[str], cell: Callable[[str, str], str]) -> list[str]:
    lines = ["", f"## {title}", "", "| | " + " | ".join(names) + " |", "|---|" + "--:|" * len(names)]
    for method in methods:
        if method == next(iter(APART)):
            lines.append("| *apart: other sizes, other values* |" + " |" * len(names))
        lines.append(f"| {method} | " + " | ".join(cell(method, name) for name in names) + " |")
    return lines


def _cell(results: Mapping[str, Any], name: str, method: str, score: str) -> str:
    return _plus_minus(results["scores"][name].get(method, {}).get(score))


def _times(row: Mapping[str, Any]) -> str:
    return f"{'≥ ' if row['at_least'] else ''}{row['saved']:.1f}×"


def _plus_minus(value: Mapping[str, float] | None, sign: bool = False) -> str:
    if value is None:
        return ""
    return f"{value['mean']:{'+' if sign else ''}.3f} ± {value['se']:.3f}"
