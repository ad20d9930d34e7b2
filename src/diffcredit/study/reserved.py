"""Truth: models retrained from scratch on coalitions that no estimate may rest on.

Which coalitions these are follows from the study file alone, so that they are reserved before the first evaluation:
the study's design leaves them out.
"""

from math import comb

import numpy as np

from diffcredit.coalitions import encode, make_design
from diffcredit.execution import Task
from diffcredit.ledger.purposes import TRUTH_REPLICATE
from diffcredit.study.config import StudyConfig
from diffcredit.study.sections import ValidationSection
from diffcredit.util.arrays import BoolArray
from diffcredit.util.seeds import derive_seed

LEAST_TRUTH = 10  # coalitions of a size that an interval rests on
WHOLE = ("exhaustive", "leave-one-out", "add-one-in")  # designs that are nothing without all of their coalitions


def truth_coalitions(config: StudyConfig, n: int, share: float) -> BoolArray:
    """(B, n) coalitions of ``share`` of the contributors, as many as the study file asks for, but never more than half
    of all there are: the design needs some of that size too."""
    wanted = (config.validation or ValidationSection()).coalitions
    design = make_design(f"subset({share})", derive_seed(config.seed, "truth"))
    size = int(design.size_probabilities(n).argmax()) + 1
    return design.draw(n, 0, max(1, min(wanted, comb(n, size) // 2)))


def all_truth_coalitions(config: StudyConfig, n: int) -> BoolArray:
    """(m, n), of every share."""
    shares = (config.validation or ValidationSection()).shares
    return np.concatenate([truth_coalitions(config, n, share) for share in shares])


def reserved(config: StudyConfig, n: int) -> BoolArray:
    """(m, n) coalitions that the study's design must leave out: none where the study file does not speak of
    validation, or where the design is nothing without them."""
    if config.validation is None or config.design.distribution in WHOLE:
        return np.zeros((0, n), dtype=np.bool_)
    return all_truth_coalitions(config, n)


def truth_tasks(config: StudyConfig, n: int) -> list[Task]:
    """All of them with the first seed, then with the next: what is cut off is still whole. A share that has too few
    for an interval would be retrained for nothing, and is not."""
    section = config.validation or ValidationSection()
    by_share = [truth_coalitions(config, n, share) for share in section.shares]
    coalitions = dict.fromkeys(encode(row) for rows in by_share if len(rows) >= LEAST_TRUTH for row in rows)
    return [truth_task(coalition, seed) for seed in range(section.seeds) for coalition in coalitions]


def truth_task(coalition: str, seed: int) -> Task:
    """A model retrained on ``coalition`` with its ``seed``-th training seed."""
    return Task(coalition, TRUTH_REPLICATE + seed, "truth")
