"""The diagnostics of an estimate that readers are shown, with a name and a meaning each; others stay internal."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from diffcredit.report.numbers import plain


class Diagnostic(NamedTuple):
    """A number of the estimate as a text, its name and its meaning."""

    name: str
    value: str
    meaning: str


MEANINGS = {
    "sigma": ("noise", "how far evaluations of one coalition scatter by chance, in the property's unit"),
    "tau": ("signal", "how far the contributors' own effects differ, in the property's unit"),
    "predicted_correlation": ("expected accuracy", "the expected correlation of these credits with the exact ones"),
    "assured_correlation": ("assured accuracy", "that correlation is at least this, 85 % sure"),
    "lack_of_fit_p": ("fit", "p-value of the coalition that fits the estimator's model worst; below 0.01 look into it"),
    "effective_evaluations": ("effective evaluations", "as many unweighted evaluations would be as precise"),
    "predicted_share": ("explained", "the part of the values' variance that these credits predict"),
    "permutations": ("permutations", "orders of the contributors that were evaluated from end to end"),
}


def named_diagnostics(diagnostics: Mapping[str, float]) -> list[Diagnostic]:
    """Return the diagnostics with a meaning for readers, as far as they are known."""
    return [
        Diagnostic(name, plain(diagnostics[key]), meaning)
        for key, (name, meaning) in MEANINGS.items()
        if math.isfinite(diagnostics.get(key, math.nan))
    ]
