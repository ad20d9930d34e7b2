"""Evaluations to credits with intervals. Needs numpy and scipy alone, and works on any set function."""

from diffcredit.credit.anchors import KnownSurrogate
from diffcredit.credit.credits import Credits
from diffcredit.credit.critical_value import robust_critical_value
from diffcredit.credit.estimate import METHODS, estimate
from diffcredit.credit.mixing import mix
from diffcredit.credit.planning import (
    Choice,
    Costs,
    Fidelity,
    Noise,
    Split,
    best_split,
    best_steps,
    pilot_noise,
    signal_to_noise,
)
from diffcredit.credit.precision import Correlation, TopK, Width
from diffcredit.credit.stopping import AllOf, AnyOf, Evaluations, Look, Money, Rule, Standing, Time

__all__ = [
    "METHODS",
    "AllOf",
    "AnyOf",
    "Choice",
    "Correlation",
    "Costs",
    "Credits",
    "Evaluations",
    "Fidelity",
    "KnownSurrogate",
    "Look",
    "Money",
    "Noise",
    "Rule",
    "Split",
    "Standing",
    "Time",
    "TopK",
    "Width",
    "best_split",
    "best_steps",
    "estimate",
    "mix",
    "pilot_noise",
    "robust_critical_value",
    "signal_to_noise",
]
