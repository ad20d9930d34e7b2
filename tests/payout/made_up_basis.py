"""A payout's basis made of a game that is given as a function, evaluated at all its coalitions."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from diffcredit import estimate
from diffcredit.credit import Credits
from diffcredit.credit.verdicts import Verdict
from diffcredit.payout.basis import Basis
from diffcredit.payout.merit import Contributors, cut_off, standing
from diffcredit.payout.reliability import followed
from diffcredit.study.policy import PolicySection
from diffcredit.util.arrays import BoolArray, FloatArray

Game = Callable[[BoolArray], FloatArray]


def every_coalition(n: int) -> BoolArray:
    return np.array(list(product([False, True], repeat=n)))


def exact_credits(game: Game, names: tuple[str, ...]) -> Credits:
    coalitions = every_coalition(len(names))
    values = game(coalitions)
    return estimate(
        coalitions[1:-1], values[1:-1], empty=float(values[0]), full=float(values[-1]), names=names, method="exact"
    )


def policy_of(**settings: Any) -> PolicySection:
    given = {"property": "quality", "fixed": "equal", "merit": "help", "r": "0.4", "currency": "EUR"}
    return PolicySection.model_validate(given | settings)


def basis_of(
    credits: Credits,
    images: dict[str, int],
    *,
    whose: dict[str, str] | None = None,
    lot: int | None = None,
    **policy: Any,
) -> Basis:
    """Return the basis of a payout by `credits` of players with so many ``images``."""
    section = policy_of(**policy)
    contributors = Contributors.of(images, whose or {}, lot)
    found = standing(credits, contributors, 1)
    return Basis(
        policy=section,
        where="payout.yaml",
        credits=credits,
        contributors=contributors,
        sign=1,
        standing=found,
        cut=cut_off(found, section),
        verdict=Verdict("use with care", "made up", ()),
        tested=None,
        followed=followed(section, credits, None),
        data={"images": images} | ({} if lot is None else {"lots": {"lot": lot, "whose": whose}}),
        title="quality",
        explanations={},
    )
