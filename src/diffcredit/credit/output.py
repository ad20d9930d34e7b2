"""Credits for people, for files and for other tools: text, figures, JSON, tables, and games and values for shapiq.

matplotlib, pandas and shapiq are imported on first use. In JSON files, which hold credits to the last bit, numbers that
JSON does not know are "inf", "-inf" and "nan", and coalitions are "0101…".
"""

import csv
import io
import json
import math
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from diffcredit.coalitions import decode, encode
from diffcredit.credit.table import GameTable, SizeDistribution
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray, FloatArray
from diffcredit.util.artifacts import write_text
from diffcredit.util.sanitize import escape_formula, single_line

if TYPE_CHECKING:
    import pandas
    import shapiq
    from matplotlib.axes import Axes

    from diffcredit.credit.credits import Credits

# Rows at each end; with more contributors than twice that, those between are left out.
PRINTED, DRAWN = 10, 20
LONGEST_NAME = 40  # characters
FORMAT = "diffcredit credits"
VERSION, READABLE = 2, (1, 2)  # version 1 did not say which way a property is better

Kind = TypeVar("Kind", bound="Credits")


def text(credits: "Credits") -> str:
    """Return a table from the most helpful contributor to the least; the middle of a long one is cut."""
    digits = _decimals(credits)

    def number(value: float) -> str:
        written = f"{value:.{digits}f}"
        return written.removeprefix("-") if float(written) == 0 else written

    top, bottom = _ends(credits, PRINTED)
    columns = (credits.help(), *credits.help_intervals(), credits.values)
    rows = [(_label(credits.names[i]), *(number(column[i]) for column in columns)) for i in (*top, *bottom)]
    rows.insert(0, ("contributor", "help", "low", "high", "credit"))
    name_width, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = ["  ".join([name.ljust(name_width), *map(str.rjust, cells, widths)]) for name, *cells in rows]
    if bottom:
        lines.insert(1 + len(top), f"… {len(credits.values) - len(top) - len(bottom)} more")
    about = f" for {single_line(credits.property_name)}" if credits.property_name else ""
    unit = f" in {single_line(credits.unit)}" if credits.unit else ""
    better = "higher" if credits.higher_is_better else "lower"
    summary = (
        f"Credits of {len(credits.values)} contributors{about}{unit} by {credits.method} from "
        f"{credits.evaluations:,} evaluations, {better} is better\n"
        f"Help is beside the average contributor, more is better, with {100 * credits.confidence:g} % intervals\n"
        f"F(all) = {number(credits.full)}, F(reference) = {number(credits.empty)}, the credits sum to "
        f"{number(float(credits.values.sum()))}"
    )
    return "\n".join([summary, *lines])


def plot(credits: "Credits", ax: "Axes | None" = None) -> "Axes":
    """Draw each contributor's help with its interval, most helpful first, at most the top and the bottom 20. Needs
    matplotlib."""
    top, bottom = _ends(credits, DRAWN)
    shown = np.array([*top, *bottom])
    if ax is None:
        pyplot = import_package("matplotlib.pyplot")
        ax = pyplot.figure(figsize=(6.4, 1.4 + 0.22 * len(shown)), layout="constrained").add_subplot()
    rows = np.arange(len(shown)) + (np.arange(len(shown)) >= len(top))  # an empty row where contributors are left out
    half = credits.contrast_half_width[shown]
    known = np.isfinite(half)
    ax.errorbar(
        credits.help()[shown], rows, xerr=np.where(known, half, 0.0), fmt="o", markersize=4, capsize=2, color="#0072b2"
    )
    ax.axvline(0, color="#999999", linewidth=1, linestyle="--", zorder=0)
    ax.annotate("average", (0, 1), xycoords=("data", "axes fraction"), xytext=(0, 2), ha="center",
                va="bottom", textcoords="offset points", fontsize="small", color="#666666")  # fmt: skip
    ticks, labels = rows.tolist(), [_label(credits.names[i]) for i in shown]
    if bottom:
        ticks.insert(len(top), len(top))
        labels.insert(len(top), f"… {len(credits.values) - len(shown)} more")
    ax.set_yticks(ticks, labels, parse_math=False)
    ax.set_ylim(float(rows[-1]) + 0.7, -0.7)  # the most helpful at the top
    confidence = f"{100 * credits.confidence:g} % interval" if known.any() else "interval not known"
    unit = f"{credits.unit}, " if credits.unit else ""
    ax.set_xlabel(f"help beside the average, more is better ({unit}{confidence})", parse_math=False)
    ax.set_title(credits.property_name, pad=16, parse_math=False)
    return ax


def _ends(credits: "Credits", count: int) -> tuple[list[int], list[int]]:
    """Return the contributors who help most and least; all are in the first if they are few."""
    order = np.argsort(-credits.help(), kind="stable").tolist()
    return (order, []) if len(order) <= 2 * count else (order[:count], order[-count:])


def _label(name: str) -> str:
    name = single_line(name)
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _decimals(credits: "Credits") -> int:
    """Return how many decimals show a typical interval with two digits, or the credits if it has no width."""
    half = credits.contrast_half_width
    half = half[np.isfinite(half) & (half > 0)]
    scale = float(np.median(half)) if len(half) else float(np.abs(credits.values).max())
    return min(max(1 - math.floor(math.log10(scale)), 0), 12) if scale > 0 else 1


def frame(credits: "Credits", higher_is_better: bool | None = None) -> "pandas.DataFrame":
    """Return credits, intervals, ranks, shares and help, one row per contributor in the order of ``names``.

    Needs pandas. ``higher_is_better``: None for the credits' own direction.
    """
    return import_package("pandas").DataFrame(_columns(credits, higher_is_better))


def csv_text(credits: "Credits", path: Path | str | None = None, higher_is_better: bool | None = None) -> str | None:
    """Write the table of `to_frame` to ``path`` as CSV (RFC 4180), or return it as text if ``path`` is None.

    Numbers that are not finite are empty cells. Names that a spreadsheet would run as formulae are escaped.
    """
    columns = _columns(credits, higher_is_better)
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows(map(_cell, row) for row in zip(*columns.values(), strict=True))
    if path is None:
        return file.getvalue()
    write_text(Path(path), file.getvalue())
    return None


def shapiq_game(credits: "Credits") -> "shapiq.Game":
    """Return the evaluated game, replicates averaged, which refuses other coalitions. Needs shapiq."""
    library = import_package("shapiq")

    class EvaluatedGame(library.Game):
        def value_function(self, coalitions: BoolArray) -> np.ndarray:
            for coalition in coalitions:
                if members(coalition) not in self.game_values:
                    raise UserError(
                        f"the coalition {encode(coalition)} was not evaluated; this game knows {len(self.game_values)} "
                        f"of the 2^{self.n_players} coalitions"
                    )
            return np.array([self.game_values[members(each)] for each in coalitions], dtype=np.float64)

    def members(coalition: BoolArray) -> tuple[int, ...]:
        return tuple(np.flatnonzero(coalition).tolist())

    table = credits.table
    game = EvaluatedGame(table.n, normalize=False)
    game.game_values = dict(zip(map(members, table.coalitions), table.values.tolist(), strict=True))
    game.game_values |= {(): credits.empty, tuple(range(table.n)): credits.full}
    return game


def interaction_values(credits: "Credits") -> "shapiq.InteractionValues":
    """Return shapiq's Shapley values above the baseline F(∅), if the credits are `efficient`. Needs shapiq."""
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


def _columns(credits: "Credits", higher_is_better: bool | None) -> dict[str, list[Any]]:
    if higher_is_better is not None:
        credits = replace(credits, higher_is_better=higher_is_better)
    rank_low, rank_high = credits.rank_intervals()
    help_low, help_high = credits.help_intervals()
    share_low, share_high = credits.share_intervals()
    columns = {
        "credit": credits.values,
        "low": credits.low,
        "high": credits.high,
        "standard_error": credits.standard_error,
        "rank": credits.rank(),
        "rank_low": rank_low,
        "rank_high": rank_high,
        "share": credits.shares,
        "share_low": share_low,
        "share_high": share_high,
        "help": credits.help(),
        "help_low": help_low,
        "help_high": help_high,
    }
    return {"contributor": list(credits.names)} | {name: column.tolist() for name, column in columns.items()}


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


def to_json(credits: "Credits") -> str:
    """Return the text of a file; its ``parameters`` repeat what a reader looks for first."""
    try:
        software = version("diffcredit")
    except PackageNotFoundError:
        software = "unknown"
    parameters = {"method": credits.method, "confidence": credits.confidence, "contributors": len(credits.names)}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "diffcredit": software,
        "saved": datetime.now(UTC).isoformat(timespec="seconds"),
        "parameters": parameters | {"size_distribution": credits.table.sizes_drawn.name.strip("'")},
        "credits": _plain(credits),
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def read_json(kind: type[Kind], path: Path) -> Kind:
    """Return the credits in a file that `to_json` wrote. Raise UserError for any other file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = document["format"], document["version"]
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        found = None, None
    if found[0] != FORMAT:
        raise UserError(f"{path}: no credits; expected a file that Credits.save wrote")
    if found[1] not in READABLE:
        raise UserError(
            f"{path}: version {found[1]} of the format; this diffcredit reads versions 1 and {VERSION}. Load it with "
            f"the diffcredit that saved it ({document.get('diffcredit')}), or estimate the credits again"
        )
    try:
        return _credits(kind, document["credits"])
    except (LookupError, TypeError, ValueError, AttributeError, UserError) as error:
        raise UserError(f"{path}: damaged ({error!r}); estimate the credits again") from error


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray) and value.dtype == np.bool_:
        return [encode(row) for row in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def _credits(kind: type[Kind], found: dict[str, Any]) -> Kind:
    table, n = found["table"], len(found["values"])
    restored_table = {name: _floats(table[name]) for name in ("values", "scatter", "empty", "full")} | {
        "coalitions": np.array([decode(row) for row in table["coalitions"]], dtype=np.bool_).reshape(-1, n),
        "replicates": np.array(table["replicates"], dtype=np.intp),
        "known": tuple(table["known"]),
        "sizes_drawn": SizeDistribution(table["sizes_drawn"]["name"], _floats(table["sizes_drawn"]["probabilities"])),
        "names": tuple(table["names"]),
    }
    restored: dict[str, Any] = {name: _floats(found[name]) for name in ("values", "standard_error", "bias")} | {
        "influence": _floats(found["influence"]).reshape(n, -1),
        "diagnostics": {name: float(number) for name, number in found["diagnostics"].items()},
        "degrees": float(found["degrees"]),
        "parts": tuple((float(weight), _credits(kind, part)) for weight, part in found["parts"]),
        "table": GameTable(**table | restored_table),
    }
    return kind(**found | restored)


def _floats(found: list[Any]) -> FloatArray:
    return np.array(found, dtype=np.float64)
