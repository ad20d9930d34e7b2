"""Numbers for readers, with as many digits as their error bars support."""

import math
from collections.abc import Sequence

from diffcredit.report.records import TOLERANCE, CreditTable

NARROW_SPACE = "\u202f"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MOST_DECIMALS = 7
NO_WIDTH = 1e-50  # the width of an interval from equal values, in place of 0


def decimals_for(uncertainty: float) -> int:
    """Return the decimals that show two significant digits of ``uncertainty``."""
    return max(0, 1 - math.floor(math.log10(uncertainty)))


def typical_half_width(lows: Sequence[float], highs: Sequence[float]) -> float | None:
    """Return the median half-width of the known intervals; None if none is known."""
    widths = sorted(
        (high - low) / 2 for low, high in zip(lows, highs, strict=True) if math.isfinite(low) and math.isfinite(high)
    )
    return widths[len(widths) // 2] if widths else None


def decimals(
    values: Sequence[float], lows: Sequence[float], highs: Sequence[float], beside: Sequence[float] = ()
) -> int:
    """Return the decimals for ``values`` and numbers ``beside`` them: two digits of the typical interval, or else of
    the spread of the values, then of their size."""
    largest = max(map(abs, (*values, *beside)))
    typical = typical_half_width(lows, highs) or 0.0
    for candidate in (typical, max(values) - min(values), largest / 10):
        if candidate > max(TOLERANCE * largest, NO_WIDTH):  # a spread within rounding errors does not count
            return decimals_for(candidate)
    return 0


def help_decimals(table: CreditTable) -> int:
    """Return the decimals for the help of every contributor."""
    return decimals(table.help, table.help_low, table.help_high, (table.empty, table.full))


def credit_decimals(table: CreditTable) -> int:
    """Return the decimals for every credit of one property, and for F."""
    return decimals(table.credit, table.low, table.high, (table.empty, table.full))


def share_decimals(table: CreditTable) -> int:
    """Return the decimals for every share of one property, in percent."""
    typical = typical_half_width(table.share_low, table.share_high)
    return min(3, decimals_for(100 * typical)) if typical else 1


def number(value: float, decimals: int) -> str:
    """Format ``value`` with a true minus sign, commas at thousands and, with many decimals, a power of ten."""
    if decimals <= MOST_DECIMALS:
        text = f"{value:,.{decimals}f}"
        # no minus before zero
        return text.lstrip("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")
    if abs(value) < 0.5 * 10.0**-decimals:
        return "0"
    digits = max(0, math.floor(math.log10(abs(value))) + decimals)
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    power = str(int(exponent)).translate(_SUPERSCRIPTS)
    return f"{mantissa.replace('-', '−')}{NARROW_SPACE}×{NARROW_SPACE}10{power}"


def signed(value: float, decimals: int) -> str:
    """Format like `number`, with a plus sign before what is above zero."""
    text = number(value, decimals)
    return f"+{text}" if value > 0 and text != number(0.0, decimals) else text


def percent(fraction: float, decimals: int) -> str:
    return f"{number(100 * fraction, decimals)}{NARROW_SPACE}%"


def span(low: float, high: float, decimals: int = 0) -> str:
    """Format a range as ``2–5``, or as ``−3 to 5`` where a dash would read as a second minus."""
    left, right = number(low, decimals), number(high, decimals)
    return f"{left} to {right}" if left.startswith("−") else f"{left}–{right}"


def share_span(low: float, high: float, decimals: int) -> str:
    """Format the interval of a share in percent, with one digit less than the share."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "not bounded"
    return span(100 * low, 100 * high, max(0, decimals - 1))


def plain(value: object) -> str:
    """Format a setting, a cost or a diagnostic: whole numbers in full, others to four significant digits."""
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return number(value, 0)
    if isinstance(value, float):
        if not math.isfinite(value):
            return "not known" if math.isnan(value) else str(value)
        decimals = 0 if value == 0 else max(0, 3 - math.floor(math.log10(abs(value))))
        text = number(value, decimals)
        return text.rstrip("0").rstrip(".") if 0 < decimals <= MOST_DECIMALS else text
    return str(value)
