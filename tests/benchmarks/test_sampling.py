"""The table of sampling settings on planted values: what is known of each setting comes out."""

import math
from itertools import islice, product

import numpy as np
import pytest
from benchmarks.sampling.agreement import agreement, key
from benchmarks.sampling.measure import chosen
from benchmarks.sampling.settings import Setting
from scipy.stats import pearsonr, spearmanr

from diffcredit.ledger import Evaluation
from diffcredit.study.config import read_config
from tiny_study import write_study
from validated_study import planted as planted_study

REFERENCE = Setting("ddim", 100)
WEIGHTS = np.array([1.0, 2.0, 4.0, 8.0])
# all coalitions of four contributors, the empty and the full one as endpoints
EVALUATIONS = [
    Evaluation(
        "".join(bits), 0, "endpoint" if len(set(bits)) == 1 else "estimate", "done", (), None, {}, {}, "here:1", "", ""
    )
    for bits in product("01", repeat=4)
]


@pytest.fixture
def config(tmp_path):
    return read_config(write_study(tmp_path, {"design": {"distribution": "uniform", "seed": 0}}))


def worth(evaluation: Evaluation, weights: np.ndarray) -> float:
    return float(np.array([bit == "1" for bit in evaluation.coalition]) @ weights)


def planted(setting: Setting, share: int, weights: np.ndarray, offset: float) -> dict:
    """The reference is the sum of WEIGHTS, the setting that of ``weights`` and an ``offset``."""
    return {
        key(each): {
            REFERENCE.name: {"1": {"p": worth(each, WEIGHTS)}},
            setting.name: {str(share): {"p": worth(each, weights) + offset}},
        }
        for each in EVALUATIONS
    }


def test_values_that_are_a_multiple_agree_but_for_their_level(config):
    setting = Setting("dpm", 10)
    found = agreement(EVALUATIONS, planted(setting, 4, 3 * WEIGHTS, 5.0), config, "p", setting, 4, REFERENCE)
    assert found.full == pytest.approx(3 * 15 + 5)
    assert found.difference == pytest.approx(3 * 15 + 5 - 15)
    assert found.cost == pytest.approx(0.1 / 4)
    for score in (found.pearson, found.spearman, found.credits, found.credit_ranks):
        assert score == pytest.approx(1)


def test_other_contributors_count_other_values_and_credits(config):
    setting, other = Setting("dpm", 5), np.array([8.0, 1.0, 4.0, 2.0])
    found = agreement(EVALUATIONS, planted(setting, 1, other, 0.0), config, "p", setting, 1, REFERENCE)
    inner = [each for each in EVALUATIONS if each.purpose == "estimate"]  # the endpoints have no say
    mine, reference = ([worth(each, weights) for each in inner] for weights in (other, WEIGHTS))
    assert found.pearson == pytest.approx(pearsonr(mine, reference)[0])
    assert found.spearman == pytest.approx(spearmanr(mine, reference)[0])
    # the Shapley values of a sum are its terms
    assert found.credits == pytest.approx(pearsonr(other, WEIGHTS)[0], abs=0.02)
    assert found.credit_ranks == pytest.approx(spearmanr(other, WEIGHTS)[0])
    assert found.difference == 0


def test_a_value_that_is_lacking_is_not_compared(config):
    setting = Setting("ddim", 10)
    values = planted(setting, 8, WEIGHTS, 0.0)
    values["0110 0"][setting.name]["8"]["p"] = None
    found = agreement(EVALUATIONS, values, config, "p", setting, 8, REFERENCE)
    assert math.isnan(found.pearson)
    assert math.isnan(found.spearman)
    assert found.full == 15


def test_the_first_coalitions_of_a_design(tmp_path):
    study = planted_study(tmp_path).study
    every = chosen(study, None)
    assert len(every) == 30 + 2
    first = [task.coalition for task in islice(study.schedule().coalitions(), 5)]
    some = chosen(study, 5)
    assert sorted(each.coalition for each in some if each.purpose == "estimate") == sorted(first)
    assert sum(each.purpose == "endpoint" for each in some) == 2
