"""What a baseline answers, checked before anything is made of it or kept: it may be a user's own class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.baselines.protocol import Evidence
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.util.plugins import in_plugin


def check_words(baseline: Any) -> None:
    """Refuses a class without the words that tables need."""
    needed = ("name", "title", "category", *(() if hasattr(baseline, "credits") else ("aggregations",)))
    if lacking := [word for word in needed if not hasattr(baseline, word)]:
        raise UserError(f"{type(baseline).__name__}: lacks {', '.join(lacking)}; a baseline has {', '.join(needed)}")


def scores_of(baseline: Any, evidence: Evidence) -> FloatArray:
    """(m,) its scores of the training images."""
    with in_plugin(f"{baseline.name}: scores(evidence)"):
        found = baseline.scores(evidence)
    return one_number_each(found, evidence.contributions.names, f"{baseline.name}: scores")


def credits_of(baseline: Any, evidence: Evidence) -> FloatArray:
    """(n,) its credits of the contributors."""
    with in_plugin(f"{baseline.name}: credits(evidence)"):
        found = baseline.credits(evidence)
    return one_number_each(found, evidence.contributions.contributors, f"{baseline.name}: credits")


def chosen_by(baseline: Any) -> dict[str, float]:
    """The numbers that it chose by itself."""
    chosen = {str(name): number for name, number in getattr(baseline, "chosen", {}).items()}
    numbers = one_number_each(list(chosen.values()), list(chosen), f"{baseline.name}: chosen")
    return dict(zip(chosen, numbers.tolist(), strict=True))


def one_number_each(values: ArrayLike, names: Sequence[str], what: str) -> FloatArray:
    """``values`` as float64, one for each of the ``names``; ``what`` starts every error."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what}: not numbers ({error}); an array of numbers is accepted") from None
    if numbers.shape != (len(names),):
        raise UserError(f"{what}: shape {numbers.shape}; one number for each of {len(names)} is accepted")
    if not np.isfinite(numbers).all():
        worst = names[int(np.argmin(np.isfinite(numbers)))]
        raise UserError(f"{what}: that of {worst} is not a finite number")
    return numbers
