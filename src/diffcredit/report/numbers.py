"""Numbers as people read them: as many digits as their error bars support."""

import math

from diffcredit.report.records import CreditTable

NARROW_SPACE = "\u202f"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MOST_DECIMALS = 7


def decimals_for(uncertainty: float) -> int:
    """Decimals that show two significant digits of ``uncertainty``."""
    return max(0, 1 - math.floor(math.log10(uncertainty)))


def typical_half_width(table: CreditTable) -> float | None:
    """The median half-width of the known intervals, in the property's unit; None if none is known."""
    widths = sorted(
        (high - low) / 2
        for low, high in zip(table.low, table.high, strict=True)
        if math.isfinite(low) and math.isfinite(high)
    )
    return widths[len(widths) // 2] if widths else None


def credit_decimals(table: CreditTable) -> int:
    """Decimals for every number of one property; without intervals, the spread of the credits decides."""
    largest = max(map(abs, (*table.credit, table.empty, table.full)))
    for candidate in (typical_half_width(table), max(table.credit) - min(table.credit), largest / 10):
        # a spread of rounding errors is no spread
        if candidate is not None and candidate > 1e-12 * largest:
            return decimals_for(candidate)
    return 0


def number(value: float, decimals: int) -> str:
    """``value`` with a true minus sign, commas at thousands and, where zeros pile up, a power of ten."""
    if decimals <= MOST_DECIMALS:
        text = f"{value:,.{decimals}f}"
        # a rounded-away negative is zero
        return text.lstrip("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")
    if abs(value) < 0.5 * 10.0**-decimals:
        return "0"
    digits = max(0, math.floor(math.log10(abs(value))) + decimals)
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    power = str(int(exponent)).translate(_SUPERSCRIPTS)
    return f"{mantissa.replace('-', '−')}{NARROW_SPACE}×{NARROW_SPACE}10{power}"


def percent(fraction: float, decimals: int) -> str:
    return f"{number(100 * fraction, decimals)}{NARROW_SPACE}%"


def plain(value: object) -> str:
    """A setting, a cost or a diagnostic: whole numbers in full, others to four significant digits."""
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


def duration(seconds: float) -> str:
    """Seconds in the two largest units that fit: ``4.2 s``, ``12 min 5 s``, ``3 h 20 min``, ``2 d 4 h``."""
    if seconds < 60:
        return f"{plain(float(seconds))} s"
    whole = round(seconds)
    for size, unit, small, small_unit in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // small
            return f"{number(whole // size, 0)} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{whole} s"
