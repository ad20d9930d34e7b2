"""From evaluated coalitions to credits with intervals. Needs numpy and scipy alone and works for any set function.

>>> import numpy as np
>>> from diffcredit.coalitions import make_design
>>> from diffcredit.credit import estimate
>>> coalitions = make_design("uniform").draw(4, 0, 24)  # which coalitions to evaluate: (24, 4) booleans
>>> values = np.sqrt(coalitions @ [4.0, 1.0, 0.0, 4.0])  # F of each; usually a model retrained and measured
>>> credits = estimate(coalitions, values, empty=0.0, full=3.0, names=["Ada", "Ben", "Cy", "Di"])
>>> bool(abs(credits.values.sum() - 3.0) < 1e-9)  # credits sum to F(all) − F(reference)
True
>>> bool(credits.values[0] > credits.values[1] > credits.values[2])
True

`Credits` print, plot, save and load; ``0.7 * a + 0.3 * b`` and `mix` weigh properties against each other. Stopping
rules say when there are enough evaluations, ``Correlation(0.9) | Evaluations(500)``. `best_split` divides a budget
between evaluations and images; `KnownSurrogate` brings a cheap stand-in for F.

Pitfall: a small standard error is not closeness to the truth. It says that more coalitions would change little for this
base model and this retraining; whether cheap retraining stands in for full retraining: `diffcredit.validation`.
"""

from diffcredit.credit.control_variates import KnownSurrogate, surrogate_credits
from diffcredit.credit.credits import Credits
from diffcredit.credit.estimate import METHODS, estimate
from diffcredit.credit.intervals import robust_critical_value
from diffcredit.credit.materiality import Yardstick, matters, seed_yardstick, stated_yardstick
from diffcredit.credit.mixing import mix
from diffcredit.credit.planning import Costs, Noise, Split, best_split, pilot_noise, signal_to_noise
from diffcredit.credit.precision import Correlation, TopK, Width
from diffcredit.credit.stopping import AllOf, AnyOf, Evaluations, Look, Money, Rule, RuleStatus, Time
from diffcredit.credit.verdicts import Check, Level, Tested, Verdict, verdict

__all__ = [
    "METHODS",
    "AllOf",
    "AnyOf",
    "Check",
    "Correlation",
    "Costs",
    "Credits",
    "Evaluations",
    "KnownSurrogate",
    "Level",
    "Look",
    "Money",
    "Noise",
    "Rule",
    "RuleStatus",
    "Split",
    "Tested",
    "Time",
    "TopK",
    "Verdict",
    "Width",
    "Yardstick",
    "best_split",
    "estimate",
    "matters",
    "mix",
    "pilot_noise",
    "robust_critical_value",
    "seed_yardstick",
    "signal_to_noise",
    "stated_yardstick",
    "surrogate_credits",
    "verdict",
]
