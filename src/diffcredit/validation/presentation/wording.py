"""Numbers in sentences."""

from math import isfinite

from diffcredit.validation.statistics.records import Estimate


def worded(value: float, form: str = ".2f") -> str:
    """Format ``value`` by Python's ``form``, with a true minus sign; a number that rounds to zero has none."""
    text = format(value, form)
    return text.replace("-", "") if float(text) == 0 else text.replace("-", "−")


def in_words(estimate: Estimate, form: str = ".2f", interval: str = "") -> str:
    """Format as ``0.61 (0.52 to 0.68)``, or without an unknown interval; the words ``interval`` stand before it."""
    value = worded(estimate.value, form)
    if not (isfinite(estimate.low) and isfinite(estimate.high)):
        return value
    return f"{value} ({interval}{worded(estimate.low, form)} to {worded(estimate.high, form)})"
