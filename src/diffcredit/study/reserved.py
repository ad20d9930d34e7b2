"""Truth coalitions: retrained from scratch for validation, and left out of the study's design. They follow from the
study file alone, so they are known before the first evaluation."""

from math import comb

import numpy as np

from diffcredit.coalitions import encode, make_design
from diffcredit.execution import Task
from diffcredit.ledger.purposes import TRUTH_REPLICATE
from diffcredit.study.config import StudyConfig
from diffcredit.study.sections import ValidationSection
from diffcredit.util.arrays import BoolArray
from diffcredit.util.seeds import derive_seed

LEAST_TRUTH = 10  # coalitions of one size that an interval needs
WHOLE = ("exhaustive", "leave-one-out", "add-one-in")  # designs that need all of their coalitions


def truth_coalitions(config: StudyConfig, n: int, share: float) -> BoolArray:
    """Return the (B, n) truth coalitions of ``share`` of the contributors: as many as the study file asks for, but at
    most half of that size, since the design needs some of it too."""
    wanted = (config.validation or ValidationSection()).coalitions
    design = make_design(f"subset({share})", derive_seed(config.seed, "truth"))
    size = int(design.size_probabilities(n).argmax()) + 1
    return design.draw(n, 0, max(1, min(wanted, comb(n, size) // 2)))


def reserved(config: StudyConfig, n: int) -> BoolArray:
    """Return the (m, n) coalitions that the study's design leaves out: the truth coalitions of every share. There are
    none without a validation section, or if the design needs all of its coalitions."""
    if config.validation is None or config.design.distribution in WHOLE:
        return np.zeros((0, n), dtype=np.bool_)
    return np.concatenate([truth_coalitions(config, n, share) for share in config.validation.shares])


def truth_tasks(config: StudyConfig, n: int) -> list[Task]:
    """Return the truth evaluations: all coalitions with the first seed, then all with the next, so that an interrupted
    validation has every coalition. Shares with too few coalitions for an interval are left out."""
    section = config.validation or ValidationSection()
    by_share = [truth_coalitions(config, n, share) for share in section.shares]
    coalitions = dict.fromkeys(encode(row) for rows in by_share if len(rows) >= LEAST_TRUTH for row in rows)
    return [truth_task(coalition, seed) for seed in range(section.seeds) for coalition in coalitions]


def shortages(config: StudyConfig, n: int) -> list[str]:
    """Return sentences that say which shares have fewer truth coalitions than the study file asks for."""
    section, found = config.validation or ValidationSection(), []
    for share in section.shares:
        rows = truth_coalitions(config, n, share)
        every = f"{n} contributors have {comb(n, int(rows[0].sum())):,} coalitions of that size"
        if len(rows) < LEAST_TRUTH:
            found.append(
                f"share {share:g}: left out: {every}, of which at most half are retrained, and an interval needs "
                f"{LEAST_TRUTH}"
            )
        elif len(rows) < section.coalitions:
            found.append(
                f"share {share:g}: {len(rows)} coalitions instead of {section.coalitions}: {every}, and the design "
                "needs half of these"
            )
    return found


def truth_task(coalition: str, seed: int) -> Task:
    """Return the task of retraining ``coalition`` from scratch with its ``seed``-th training seed."""
    return Task(coalition, TRUTH_REPLICATE + seed, "truth")
