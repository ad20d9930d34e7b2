from dataclasses import replace

import numpy as np
import pytest
from tests.validation.made_up import recipe_game, section_of, truth_of, uniform

from diffcredit.credit import KnownSurrogate, estimate
from diffcredit.errors import UserError
from diffcredit.testing.games import additive, noisy
from diffcredit.validation.statistics import linear_datamodeling_score
from diffcredit.validation.statistics.surrogacy import ALL, NONE, compare_surrogates

N, M = 12, 400
WEIGHTS = np.random.default_rng(0).normal(size=N)
JUNK = np.random.default_rng(1).normal(size=N)
COALITIONS = uniform(N, M)


def known(weights):
    """A surrogate that is the additive game of ``weights``, its credits known exactly."""
    return KnownSurrogate(COALITIONS @ weights, weights, np.zeros(N))


def price(names):
    """Ten evaluations pay for pools, nothing for real data, and eleven for both together."""
    return 1.0 + 10.0 * ("pools" in names) if len(names) > 1 else 10.0 * ("pools" in names)


def planted(deviation=2.0, surrogates=None, **about):
    game = recipe_game(noisy(additive(WEIGHTS), deviation, 3), COALITIONS)
    truth = truth_of(noisy(additive(WEIGHTS), 0.1, 5), N, 80, seeds=2)
    some = {"pools": known(WEIGHTS), "real_data": known(JUNK)} if surrogates is None else surrogates
    return game, truth, compare_surrogates(game, some, [truth], **({"price": price} | about))


def lds_of(credits, truth):
    return linear_datamodeling_score(credits, truth.coalitions, truth.values.mean(axis=1))


def test_every_score_is_that_of_the_credits_it_is_called_by():
    game, truth, found = planted(counts=(30, 100))
    assert found.share == 0.5
    assert [(each.surrogate, each.evaluations) for each in found.worths] == [
        *((NONE, count) for count in (30, 100, M)),
        *(("pools", count) for count in (0, 30, 100, M)),
        *(("real_data", count) for count in (0, 30, 100, M)),
        *((ALL, count) for count in (30, 100, M)),
    ]
    used = {NONE: [], "pools": [WEIGHTS], "real_data": [JUNK], ALL: [WEIGHTS, JUNK]}
    scores = {}
    for each in found.worths:
        rows = slice(each.evaluations)
        if each.evaluations == 0:
            credits = used[each.surrogate][0]
        else:
            some = [KnownSurrogate(COALITIONS[rows] @ w, w, np.zeros(N)) for w in used[each.surrogate]]
            credits = estimate(
                COALITIONS[rows], game.values[rows], empty=game.empty, full=game.full, surrogate=some or None
            ).values
        scores[each.surrogate, each.evaluations] = lds_of(credits, truth)
        assert each.lds.value == pytest.approx(scores[each.surrogate, each.evaluations])
        assert each.lds.low <= each.lds.value <= each.lds.high
    for each in found.worths:
        mine = scores[each.surrogate, each.evaluations]
        if (each.surrogate, each.evaluations) == (NONE, M):
            assert each.less_evaluated is None
        else:
            assert each.less_evaluated.value == pytest.approx(mine - scores[NONE, M])
        if (each.surrogate, each.evaluations) == ("real_data", 0):
            assert each.less_control is None
        else:
            assert each.less_control.value == pytest.approx(mine - scores["real_data", 0])


def test_one_that_knows_the_game_passes_without_evaluations_and_junk_does_not():
    _, _, found = planted(counts=())
    assert found.of("pools")[0].lds.value > 0.97
    assert found.passing("pools") is found.of("pools")[0]
    assert found.passing("real_data") is None
    assert found.evaluated.evaluations == M
    section = section_of("surrogates", {"Colour": found})
    assert len(section.summary) == 1
    assert f"Colour: {M} evaluations alone reach an LDS of {found.evaluated.lds.value:.2f}" in section.summary[0]
    assert "pools passes without any evaluation, at the cost of 10: " in section.summary[0]
    assert "real_data passes" not in section.summary[0]
    assert len(section.tables[0].rows) == len(found.worths)
    assert "<svg" in section.figures[0].svg


def test_what_a_surrogate_takes_to_prepare_is_part_of_its_cost():
    _, _, found = planted(counts=(30,))
    assert [each.cost for each in found.of(NONE)] == [30, M]
    assert [each.cost for each in found.of("pools")] == [10, 40, 10 + M]
    assert [each.cost for each in found.of("real_data")] == [0, 30, M]
    assert [each.cost for each in found.of(ALL)] == [41, 11 + M]
    alone = found.of("pools")[0]
    for cost, passes in ((0.1 * M, True), (0.1 * M + 1, False)):  # though it knows the game
        dear = replace(found, worths=(*found.of(NONE), replace(alone, cost=cost)))
        assert (dear.passing("pools") is not None) == passes


@pytest.mark.parametrize(("deviation", "fewest"), [(0.2, 30), (3.0, M)])
def test_how_many_evaluations_are_as_good_alone(deviation, fewest):
    game, truth, found = planted(deviation, surrogates={"pools": known(JUNK)}, counts=(15, 30, 100))
    assert ALL not in found.surrogates
    assert "No surrogate passes." in section_of("surrogates", {"Colour": found}).summary[0]  # there is no control
    first, *_, last = found.of("pools")
    assert first.lds.value < 0.7 < last.lds.value  # junk is corrected by evaluations
    assert found.enough.evaluations == fewest
    assert f"; from {fewest} on they are within 0.05 of it." in section_of("surrogates", {"Colour": found}).summary[0]
    scores = [
        lds_of(estimate(COALITIONS[:m], game.values[:m], empty=game.empty, full=game.full).values, truth)
        for m in (15, 30, 100, M)
    ]
    near = [score >= scores[-1] - 0.05 for score in scores]
    place = (15, 30, 100, M).index(fewest)
    assert all(near[place:])
    assert not any(near[max(0, place - 1) : place])


def test_a_control_that_orders_nothing_is_chance():
    flat = np.ones(N)  # all coalitions of a size are alike to it
    some = {"pools": known(WEIGHTS), "other": known(-WEIGHTS), "real_data": known(flat)}
    _, _, found = planted(surrogates=some, counts=(30,))
    (alone, *_) = found.of("pools")
    assert alone.less_control == alone.lds
    assert found.passing("pools") is alone
    assert found.passing("other").evaluations > 0  # which turn it round
    assert found.of("real_data")[0].less_control is None


def test_nothing_to_compare():
    game, truth, _ = planted(counts=())
    with pytest.raises(UserError, match="no surrogate stands in"):
        compare_surrogates(game, {}, [truth], price)
    with pytest.raises(UserError, match="no truth"):
        compare_surrogates(game, {"pools": known(WEIGHTS)}, [], price)
    few = recipe_game(additive(WEIGHTS), COALITIONS[:2])
    with pytest.raises(UserError, match="2 evaluations are too few"):
        compare_surrogates(
            few, {"pools": KnownSurrogate(COALITIONS[:2] @ WEIGHTS, WEIGHTS, np.zeros(N))}, [truth], price
        )
