import numpy as np
import pytest
from scipy.stats import spearmanr

from diffcredit.baselines import BaselineCredits
from diffcredit.baselines.study import StudyBaseline
from diffcredit.report.baselines import agreement, compared

RANDOM = np.random.default_rng(0)
ONE, OTHER, TRUTH = RANDOM.normal(size=(3, 9))
SAME = np.ones(9)


def method(name, credits, prop=None, how="sum", higher_is_better=True):
    found = BaselineCredits(name, how, credits, {"lambda": 2.0}, 3.0)
    return StudyBaseline(name, "gradient", prop, found, higher_is_better)


def test_agreement_is_scipy_s_correlation():
    found = agreement([method("one", ONE), method("other", OTHER, "score"), method("same", SAME)])
    assert found.names == ("one (sum)", "other (sum), score", "same (sum)")
    assert found.correlations[0][1] == pytest.approx(spearmanr(ONE, OTHER).statistic)
    assert found.correlations[1][0] == found.correlations[0][1]
    assert found.correlations[1][1] == pytest.approx(1)
    assert found.correlations[2] == (None, None, None)  # of equal credits nothing can be told
    assert agreement([method("one", ONE)]) is None


def test_only_what_measures_the_property_is_turned_where_lower_is_better():
    found = [method("one", ONE), method("own", OTHER, "loss", higher_is_better=False)]
    rows = {row.name: row for row in compared(found, {"loss": -TRUTH, "score": TRUTH})}
    assert rows["one (sum)"].correlations["score"] == pytest.approx(spearmanr(ONE, TRUTH).statistic)
    assert rows["one (sum)"].correlations["loss"] == pytest.approx(spearmanr(ONE, -TRUTH).statistic)
    assert rows["own (sum)"].correlations["loss"] == pytest.approx(spearmanr(-OTHER, -TRUTH).statistic)
    assert rows["own (sum)"].correlations["score"] is None
    assert rows["one (sum)"].chosen == {"lambda": 2.0}
    assert agreement(found).correlations[0][1] == pytest.approx(spearmanr(ONE, -OTHER).statistic)
