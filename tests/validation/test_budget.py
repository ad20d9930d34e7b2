from dataclasses import replace

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from tests.validation.made_up import recipe_game, section_of, truth_of, uniform

from diffcredit.credit import estimate
from diffcredit.errors import UserError
from diffcredit.testing.games import additive, learning, noisy
from diffcredit.validation.statistics import linear_datamodeling_score
from diffcredit.validation.statistics.budget import BUDGETS, lds_by_cost
from diffcredit.validation.statistics.convergence import convergence_curves

N, UNIT = 10, 100.0


def retraining(m=100, **about):
    game = noisy(learning(N, 2), 0.05)
    about = {"recipe": "from_scratch", "method": "from_scratch", "training": 70.0, "sampling": 30.0, **about}
    return recipe_game(game, uniform(N, m), **about)


def tenth(game, **about):
    """The same values at a tenth of the seconds."""
    seconds = {"training_seconds": game.training_seconds / 10, "sampling_seconds": game.sampling_seconds / 10}
    return replace(game, recipe="cheap", method="sparsified", **seconds, **about)


def weighed(games, estimators=("kernelshap", "unshrunk"), truths=None):
    truths = truths or [truth_of(learning(N, 2), N, 50)]
    seconds = {game.recipe: float(np.mean(game.seconds)) for game in games}
    return lds_by_cost(convergence_curves(games, truths, None, estimators), games, truths, seconds, UNIT)


def by_recipe(result, estimator):
    return {curve.recipe: curve for curve in result.curves if curve.estimator == estimator}


def test_a_tenth_of_the_cost_reaches_the_same_at_a_tenth_of_the_budget():
    game = retraining()
    result = weighed([game, tenth(game)])
    for estimator in ("kernelshap", "unshrunk"):
        found = by_recipe(result, estimator)
        dear, cheap = found["from_scratch"], found["cheap"]
        assert cheap.costs == pytest.approx([cost / 10 for cost in dear.costs])
        assert cheap.lds == dear.lds
        assert (cheap.at[2.0], cheap.at[5.0], cheap.at[10.0]) == (dear.at[20.0], dear.at[50.0], dear.at[100.0])
    assert {way.recipe for way in result.cheapest} == {"cheap"}
    alone = {way.level: way for way in weighed([game]).cheapest}
    assert alone
    for way in result.cheapest:
        assert way.cost == pytest.approx(alone[way.level].cost / 10)
        assert way.estimator == alone[way.level].estimator


def test_a_budget_buys_the_evaluations_that_it_pays_for():
    """Preparation takes 3.5 retrainings and an evaluation 1/4: 20 buy 66, 1 and 2 none, 50 more than there are."""
    game = retraining(training=20.0, sampling=5.0, preparation=350.0)
    truth = truth_of(noisy(learning(N, 2), 0.03, 5), N, 50, seeds=3)
    curve = by_recipe(weighed([game], truths=[truth]), "unshrunk")["from_scratch"]
    rows = slice(66)
    credits = estimate(game.coalitions[rows], game.values[rows], empty=game.empty, full=game.full, method="unshrunk")
    assert curve.at[20.0].value == pytest.approx(
        linear_datamodeling_score(credits.values, truth.coalitions, truth.values.mean(axis=1))
    )
    assert set(curve.at) == {10.0, 20.0}  # 5 buy 6 evaluations, too few to tell 10 contributors apart
    assert curve.costs[-1] == pytest.approx(3.5 + 100 / 4)


def test_the_cheapest_way_lies_on_a_rising_curve():
    game = retraining()
    result = weighed([game, tenth(game)], ["unshrunk"])
    curve = by_recipe(result, "unshrunk")["cheap"]
    rising = IsotonicRegression().fit(curve.costs, [each.value for each in curve.stretches])
    later = [way for way in result.cheapest if way.cost > curve.costs[0]]
    assert later
    assert rising.predict([way.cost for way in later]) == pytest.approx([way.level for way in later])
    assert result.cheapest[-1].level <= rising.predict([curve.costs[-1]])[0] < result.cheapest[-1].level + 0.1


def test_recipes_without_seconds_are_left_out():
    unknown = replace(tenth(retraining()), training_seconds=np.full(100, np.nan))
    result = weighed([retraining(), unknown])
    assert {curve.recipe for curve in result.curves} == {"from_scratch"}
    assert set(result.prices) == {"from_scratch"}


def test_what_cannot_be_weighed_is_refused():
    games, truths = [retraining()], [truth_of(learning(N, 2), N, 50)]
    scores = convergence_curves(games, truths, None, ["unshrunk"])
    for unit in (float("nan"), 0.0):
        with pytest.raises(UserError, match=r"seconds a retraining; a positive number"):
            lds_by_cost(scores, games, truths, {"from_scratch": UNIT}, unit)
    with pytest.raises(UserError, match="no LDS is known"):
        lds_by_cost(convergence_curves(games, [], None, ["unshrunk"]), games, [], {"from_scratch": UNIT}, UNIT)


def test_an_order_that_is_never_found_is_not_the_same_as_none():
    """What is retrained goes by the opposite of what was evaluated."""
    game = recipe_game(additive(np.arange(N)), uniform(N, 60))
    result = weighed([game], truths=[truth_of(additive(-np.arange(N)), N)])
    assert result.cheapest == ()
    assert "IS: no recipe and estimator reaches an LDS of 0.1" in section_of("budget", {"IS": result}).summary[0]


def test_the_section():
    game = retraining()
    result = weighed([game, tenth(game, preparation=float("nan"))])
    section = section_of("budget", {"IS": result, "entropy": result})
    at, cheapest = section.tables
    assert len(at.rows) == 2 * len(result.curves)
    assert all(len(row) == len(at.columns) for row in at.rows)
    assert at.rows[0][-1] == result.curves[0].at[float(BUDGETS[-1])]
    assert len(cheapest.rows) == 2 * len(result.cheapest)
    assert any("not known for cheap" in caveat for caveat in section.caveats)
    assert "not counting its preparation" in section.summary[0]
    assert {row[-1] for row in cheapest.rows} == {"not known"}
    known = section_of("budget", {"IS": weighed([game, tenth(game)])})
    assert "preparation" not in known.summary[0]
    assert {row[-1] for row in known.tables[1].rows} == {"counted"}
