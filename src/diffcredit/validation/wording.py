"""Numbers in sentences."""

from math import isfinite

from diffcredit.validation.records import Estimate


def worded(value: float, form: str = ".2f") -> str:
    """``value`` in the ``form`` of Python's format, with a true minus sign; what rounds to zero has none."""
    text = format(value, form)
    return text.replace("-", "") if float(text) == 0 else text.replace("-", "−")


def in_words(estimate: Estimate, form: str = ".2f", interval: str = "") -> str:
    """Such as ``0.61 (0.52 to 0.68)``, or without an interval where there is none; ``interval`` are words before it."""
    value = worded(estimate.value, form)
    if not (isfinite(estimate.low) and isfinite(estimate.high)):
        return value
    return f"{value} ({interval}{worded(estimate.low, form)} to {worded(estimate.high, form)})"
