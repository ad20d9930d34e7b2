"""Statistics of validation: pure functions of arrays and records, with numpy and scipy alone.

`lds` scores credits by anybody's numbers. The other modules each answer one question from records (`records`): how
methods compare (`datamodeling`), how high they could score (`ceilings`), how fast credits converge (`convergence`),
what compute buys (`budget`, `runtime`), how near cheap retraining is to retraining (`fidelity`), what surrogates save
(`surrogacy`), what removing contributors does (`counterfactual`), what the best of them have in common
(`contributors`), and how far two games agree behind their errors (`agreement`).
"""

from diffcredit.validation.statistics.datamodeling import LDSResult, compare_lds, lds, linear_datamodeling_score
from diffcredit.validation.statistics.records import Contender, Estimate, RecipeGame, Truth

__all__ = [
    "Contender",
    "Estimate",
    "LDSResult",
    "RecipeGame",
    "Truth",
    "compare_lds",
    "lds",
    "linear_datamodeling_score",
]
