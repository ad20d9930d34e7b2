"""How good credits are: tests against models retrained from scratch.

    from diffcredit.validation import lds

    lds(credits, coalitions, values)  # anybody's numbers; needs numpy and scipy alone

- `diffcredit.validation.statistics`: the scores and their intervals, on plain arrays.
- `diffcredit.validation.validate`: all parts of the evidence for one study.
- `diffcredit.validation.compare`: two studies, or two recipes of one study, side by side.
"""

from diffcredit.validation.statistics import Estimate, lds

__all__ = ["Estimate", "lds"]
