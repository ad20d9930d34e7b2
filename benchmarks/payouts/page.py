"""From the numbers to the page's tables."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.markdown import table

Row = dict[str, Any]
POLICIES = {
    ("equal", None): "equal",
    ("images", None): "images",
    ("equal", 4): "equal, lots of 4",
    ("lots", 4): "lots of 4",
    ("lots", 5): "lots of 5",
}


def write_page(results: dict[str, Any], file: Path) -> None:
    splits, copies, cases = results["split"], results["copy"], results["cases"]
    heads, images, lots = (_gains(_of(splits, *policy)) for policy in (("equal", None), ("images", None), ("lots", 4)))
    covered = [case["covered"] for case in cases]
    default = [case["covered"] for case in cases if case["method"] == "shapley"]
    lines = [
        "# Payouts",
        "",
        "`python -m benchmarks payouts` makes this page. The truth is known everywhere: Shapley values are exact, from "
        "all coalitions, before and after a manipulation.",
        "",
        f"- **Three names instead of one** gain {heads.mean():.0%} of the amount on average where the fixed part is "
        f"divided by heads, {images.mean():.0%} where it is by images, and {lots.mean():.1%} by lots (at most "
        f"{heads.max():.0%}, {images.max():.0%} and {lots.max():.0%}). Where lots do not divide the portfolio, "
        "splitting loses the fixed part.",
        f"- **Intervals** hold the true amount in {min(covered):.1%} to {max(covered):.1%} of all cases, those of the "
        f"default estimator in {min(default):.1%} to {max(default):.1%}; 95 % is stated.",
        f"- **Exact credits** pay a null player the fixed part and twins the same, to {_most_exact(results):.0e} of "
        "10,000.",
        "",
        "## Splits",
        "",
        f"Five people with twelve images each, {results['worlds']} worlds, r = 0.3. One after the other splits an "
        "account into three, with the images shared by chance. In the learnt game a classifier is trained on every "
        "coalition's digits and the house's, and its accuracy on held-out digits is the value; one person's labels "
        "are half wrong. Cells are the gain as a part of the former amount: the mean over people and worlds, then the "
        "largest.",
        "",
        *_table(splits, "gain"),
        "What `payout --what-if split=NAME:3` estimates for the same splits. It cannot know that a person's own images "
        "repeat each other, as in the last two games, and then says too little:",
        "",
        *_table(splits, "estimated"),
        "## Copies",
        "",
        f"{_copier(copies)} hands in copies of another's images as well, and the copies are not found. Copies that "
        "`contributions.near_copies` finds are not used, so that nothing changes.",
        "",
        *_table(copies, "gain"),
        "What `--what-if copy=A:B` estimates:",
        "",
        *_table(copies, "estimated"),
        "## A null player, twins, and intervals",
        "",
        f"{results['studies']} simulated studies a row of twelve contributors, one of whom adds nothing to any "
        "coalition, while two are interchangeable; pool 10,000, r = 0.3, fixed part equal. Noise is that of one "
        "evaluation, in standard deviations of the true credits. Moved is what the payout says would go to others if "
        "all evaluations were made again, and beside it what went to others when they were. Overtaken is the stated "
        "chance that the next in rank is better, and beside it how often that was so.",
        "",
        *table(
            (
                *("method", "merit", "evaluations", "noise", "covered", "with merit", "null covered", "null too much"),
                *("twins differ by", "twins told apart", "moved", "by another run", "overtaken", "is better"),
            ),
            [
                (
                    *(case["method"], case["merit"], str(case["evaluations"]), f"{case['noise']:g}"),
                    *(f"{case[key]:.1%}" for key in ("covered", "covered_with_merit", "null_covered")),
                    *(f"{case[key]:.2f}" for key in ("null_excess", "twins_differ")),
                    f"{case['twins_apart']:.1%}",
                    *(f"{case[key]:.0f}" for key in ("moved", "moved_by_another_run")),
                    *(f"{case[key]:.1%}" for key in ("overtaken", "better")),
                )
                for case in cases
            ],
        ),
        "A null player is paid a little too much on average: noise that raises a merit counts, noise that lowers it "
        "below zero does not. More evaluations and a smaller r make that less.",
        "",
    ]
    file.write_text("\n".join(lines), encoding="utf-8")


def _of(rows: Iterable[Row], fixed: str, lot: int | None) -> list[Row]:
    return [row for row in rows if (row["fixed"], row["lot"]) == (fixed, lot)]


def _gains(rows: Iterable[Row], key: str = "gain") -> "np.ndarray[Any, Any]":
    return np.array([row[key] for row in rows])


def _most_exact(results: dict[str, Any]) -> float:
    return max(results["exact"].values())


def _copier(rows: Sequence[Row]) -> str:
    return rows[0]["change"].removeprefix("copy=").partition(":")[0]


def _table(rows: Sequence[Row], key: str) -> list[str]:
    kinds = list(dict.fromkeys((row["game"], row["merit"]) for row in rows))
    policies = [policy for policy in POLICIES if _of(rows, *policy)]

    def cell(game: str, merit: str, policy: tuple[str, int | None]) -> str:
        gains = _gains([row for row in _of(rows, *policy) if (row["game"], row["merit"]) == (game, merit)], key)
        return f"{_percent(gains.mean())} ({_percent(gains.max())})"

    return table(
        ("game", "merit", *(f"fixed: {POLICIES[policy]}" for policy in policies)),
        [(game, merit, *(cell(game, merit, policy) for policy in policies)) for game, merit in kinds],
    )


def _percent(part: float) -> str:
    return f"{100 * part + 0.0:+.1f} %".replace("-0.0", "+0.0").replace("-", "−")
