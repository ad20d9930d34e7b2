"""Numbers in sentences."""

from math import isfinite

from diffcredit.validation.records import Estimate


def in_words(estimate: Estimate) -> str:
    """Such as ``0.61 (0.52 to 0.68)``, or without an interval where there is none."""
    if not (isfinite(estimate.low) and isfinite(estimate.high)):
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"
