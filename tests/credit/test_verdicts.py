"""The verdict is the worst of its checks, and its reason is that check's sentence."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from diffcredit import estimate, make_design
from diffcredit.credit import mix, seed_yardstick, stated_yardstick, verdict
from diffcredit.credit.verdicts import LEVELS
from diffcredit.credit.verdicts import Tested as Outcome  # pytest would collect a class called Test…

N = 6
PASSED = Outcome(0.8, 0.6, 0.9, 0.95, 40, 2)


def credits_of(slopes, noise=0.1, full=(0.0, 0.1, 0.2)):
    coalitions = make_design("uniform", 1).draw(N, 0, 60)
    values = coalitions @ np.array(slopes) + noise * np.random.default_rng(0).normal(size=60)
    return estimate(coalitions, values, empty=0.0, full=[sum(slopes) + each for each in full], names=list("ABCDEF"))


UNKNOWN = estimate(~np.eye(N, dtype=bool), np.arange(N), empty=0.0, full=[9.0], method="leave-one-out")
DIFFERENT, EQUAL = credits_of([1.0, 1.0, 1.0, 1.0, 1.0, 3.0]), credits_of([1.0] * N)


@pytest.mark.parametrize(
    ("options", "subject", "level", "words"),
    [
        ({}, "tested", "pay by it", "correlation 0.80 (0.60 to 0.90; a perfect prediction would reach about 0.95"),
        ({"tested": None}, "tested", "use with care", "never tested"),
        ({"tested": None, "untested": "It would take 3 hours."}, "tested", "use with care", "It would take 3 hours."),
        ({"tested": Outcome(-0.2, -0.5, 0.1, 0.9, 20, 1)}, "tested", "do not use", "failed their test"),
        ({"tested": Outcome(0.3, 0.1, 0.5, 0.9, 20, 2)}, "tested", "use with care", "poorly"),
        ({"tested": Outcome(0.3, 0.1, 0.5, 0.5, 90, 2)}, "tested", "pay by it", "passed"),
        ({"tested": Outcome(0.4, 0.1, 0.5, None, 90, 1)}, "tested", "use with care", "poorly"),
        ({"tested": Outcome(0.5, -0.1, 0.8, 0.9, 10, 2)}, "tested", "use with care", "too small"),
        ({"tested": Outcome(0.9, np.nan, np.nan, None, 5, 1)}, "tested", "use with care", "too small"),
        ({"yardstick": stated_yardstick(2)}, "material", "use with care", "what the study says matters, 2"),
        ({"yardstick": stated_yardstick(1)}, "material", "pay by it", "1 of 6 contributors surely differ"),
        ({"yardstick": seed_yardstick(UNKNOWN)}, "material", "use with care", "unknown"),
        ({"misfit": "The fit is bad."}, "fit", "use with care", "The fit is bad."),
        ({"signal": 0.09}, "signal", "use with care", "0.09 times the noise"),
        ({"signal": 0.2}, "signal", "pay by it", "0.2 times the noise"),
    ],
)  # fmt: skip
def test_each_check_says_what_it_found(options, subject, level, words):
    found = verdict(DIFFERENT, **{"yardstick": seed_yardstick(DIFFERENT), "tested": PASSED} | options)
    check = next(check for check in found.checks if check.subject == subject)
    assert (check.level, found.level) == (level, level)
    assert words in check.sentence
    if level != "pay by it":
        assert found.reason == check.sentence


def test_equal_contributors_are_not_distinguished():
    found = verdict(EQUAL, yardstick=stated_yardstick(0), tested=PASSED)
    assert (found.level, found.checks[1].level) == ("do not use", "do not use")
    assert "do not show that contributors differ" in found.reason


@pytest.mark.parametrize(("noise", "level"), [(0.1, "pay by it"), (30.0, "do not use")])
def test_few_contributors_are_judged_by_their_intervals(noise, level):
    coalitions = np.repeat(make_design("exhaustive").draw(3, 0, 6), 5, axis=0)
    values = coalitions @ [1.0, 2.0, 4.0] + noise * np.random.default_rng(2).normal(size=30)
    credits = estimate(coalitions, values, empty=0.0, full=7.0, method="exact", size_distribution="exhaustive")
    check = verdict(credits, yardstick=stated_yardstick(1), tested=PASSED).checks[1]
    assert (check.level, "all intervals" in check.sentence) == (level, True)


def test_the_level_is_the_worst_and_a_failed_test_comes_first():
    tests = [PASSED, None, Outcome(0.3, -0.1, 0.5, 0.9, 20, 2)]
    for credits, tested, limit, misfit in product([DIFFERENT, EQUAL], tests, [0.0, 9.0], ["", "It does not fit."]):
        found = verdict(credits, yardstick=stated_yardstick(limit), tested=tested, misfit=misfit)
        ranks = [LEVELS.index(check.level) for check in found.checks]
        assert LEVELS.index(found.level) == max(ranks)
        assert found.reason == found.checks[ranks.index(max(ranks))].sentence
        if tested is tests[2]:
            assert "failed their test" in found.reason


def test_the_confidence_of_printed_intervals_changes_no_verdict():
    printed = [replace(EQUAL, confidence=level) for level in (0.2, 0.95, 0.9999)]
    assert printed[0].distinguishable.any()
    assert not printed[1].distinguishable.any()
    assert len({str(verdict(each, yardstick=stated_yardstick(0), tested=PASSED)) for each in printed}) == 1


def test_the_direction_decides_who_helps_more():
    sentences = [
        verdict(DIFFERENT, yardstick=stated_yardstick(1), tested=PASSED, higher_is_better=higher).checks[2].sentence
        for higher in (None, True, False)
    ]
    assert [sentence.endswith(" more.") for sentence in sentences] == [True, True, False]
    assert all("F helps 1.6" in sentence or "F helps 1.7" in sentence for sentence in sentences)


def test_a_mix_has_a_verdict_of_its_own():
    both = mix({"a": DIFFERENT, "b": EQUAL}, {"a": -1.0, "b": 2.0})
    seeds = -1 * (8 + np.array([0.0, 0.1, 0.2])) + 2 * (6 + np.array([0.0, 0.1, 0.2]))
    noise = DIFFERENT.diagnostics["sigma"] + 2 * EQUAL.diagnostics["sigma"]
    assert seed_yardstick(both).value == pytest.approx(((noise**2 + 3 * seeds.var()) / 3) ** 0.5)
    np.testing.assert_allclose(both.help(), 2 * EQUAL.help() - DIFFERENT.help())
    found = verdict(both, yardstick=seed_yardstick(both), tested=PASSED)
    assert found.level == "pay by it"
    assert "F helps" in found.checks[2].sentence
    assert found.checks[2].sentence.endswith("less.")
