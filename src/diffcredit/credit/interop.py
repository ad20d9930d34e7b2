"""Credits for other tools: tables for pandas and spreadsheets, games and values for shapiq.

pandas and shapiq are imported on first use.
"""

import csv
import io
import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from diffcredit.coalitions import encode
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray
from diffcredit.util.sanitize import escape_formula

if TYPE_CHECKING:
    import pandas
    import shapiq

    from diffcredit.credit.credits import Credits


def frame(credits: "Credits", higher_is_better: bool) -> "pandas.DataFrame":
    return import_package("pandas").DataFrame(_columns(credits, higher_is_better))


def csv_text(credits: "Credits", higher_is_better: bool) -> str:
    """Return the table by RFC 4180, numbers with all their digits, cells empty where they are not finite."""
    columns = _columns(credits, higher_is_better)
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows(map(_cell, row) for row in zip(*columns.values(), strict=True))
    return file.getvalue()


def shapiq_game(credits: "Credits") -> "shapiq.Game":
    library = import_package("shapiq")

    class EvaluatedGame(library.Game):
        """The evaluated coalitions' values; any other coalition is refused."""

        def value_function(self, coalitions: BoolArray) -> np.ndarray:
            return np.array([self._value(coalition) for coalition in coalitions], dtype=np.float64)

        def _value(self, coalition: BoolArray) -> float:
            members = tuple(np.flatnonzero(coalition).tolist())
            if members not in self.game_values:
                raise UserError(
                    f"the coalition {encode(coalition)} was not evaluated; this game knows {len(self.game_values)} of "
                    f"the 2^{self.n_players} coalitions"
                )
            return self.game_values[members]

    table = credits.table
    game = EvaluatedGame(table.n, normalize=False)
    game.game_values = {
        tuple(np.flatnonzero(coalition).tolist()): value
        for coalition, value in zip(table.coalitions, table.values.tolist(), strict=True)
    }
    game.game_values |= {(): credits.empty, tuple(range(table.n)): credits.full}
    return game


def interaction_values(credits: "Credits") -> "shapiq.InteractionValues":
    if not credits.efficient:
        raise UserError(
            f"to_interaction_values: credits by {credits.method!r} do not sum to F(N) − F(∅); Shapley values do, and "
            "are expected"
        )
    return import_package("shapiq").InteractionValues(
        {(): credits.empty} | {(i,): value for i, value in enumerate(credits.values.tolist())},
        index="SV",
        max_order=1,
        min_order=0,
        n_players=len(credits.values),
        estimated=credits.method != "exact",
        estimation_budget=credits.evaluations,
        baseline_value=credits.empty,
    )


def _columns(credits: "Credits", higher_is_better: bool) -> dict[str, list[Any]]:
    rank_low, rank_high = credits.rank_intervals(higher_is_better)
    share_low, share_high = credits.share_intervals()
    return {
        "contributor": list(credits.names),
        "credit": credits.values.tolist(),
        "low": credits.low.tolist(),
        "high": credits.high.tolist(),
        "standard_error": credits.standard_error.tolist(),
        "rank": credits.rank(higher_is_better).tolist(),
        "rank_low": rank_low.tolist(),
        "rank_high": rank_high.tolist(),
        "share": credits.shares.tolist(),
        "share_low": share_low.tolist(),
        "share_high": share_high.tolist(),
    }


def _cell(value: object) -> str:
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else ""
    return escape_formula(str(value))


def import_package(module: str) -> Any:
    """Return an optional package's ``module``. Raise UserError, which names the package, if it is not installed."""
    package = module.split(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (package, module):  # the package is installed, but one of its own is missing
            raise
        raise UserError(f"{package} is needed for this and is not installed: pip install {package}") from error
