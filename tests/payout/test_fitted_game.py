"""The fitted game after a change, against brute force over all coalitions and images."""

from dataclasses import replace
from itertools import permutations
from math import comb

import numpy as np
import pytest
from tests.payout.made_up_basis import every_coalition, exact_credits

from diffcredit import estimate
from diffcredit.errors import UserError
from diffcredit.payout.changes import Change, Holdings, holdings
from diffcredit.payout.fitted_game import FittedGame, cyclic_orders, shifted
from diffcredit.payout.merit import Contributors
from diffcredit.util.arrays import BoolArray, FloatArray

NAMES = ("Ada", "Ben", "Cy", "Dee")
IMAGES = (6, 4, 5, 3)
WORTH = np.array([3.0, -1.0, 0.5, 2.0])


def curve(sizes: FloatArray, n: int) -> FloatArray:
    """A curve of the size that the fitted game can follow exactly, where there are enough sizes: t² and log(s + ½)."""
    return 4 * (sizes / n) ** 2 - 2 * np.log(sizes + 0.5)


def game(coalitions: BoolArray) -> FloatArray:
    return 7 + coalitions @ WORTH + 4 * (coalitions.sum(axis=1) / 4) ** 2


def shapley(values: FloatArray, q: int) -> FloatArray:
    """Shapley values by their definition; ``values`` (2^q,) in the order of every_coalition."""
    coalitions = every_coalition(q)
    place = {tuple(row): i for i, row in enumerate(coalitions.tolist())}
    found = np.zeros(q)
    for row, i in place.items():
        for player in range(q):
            if not row[player]:
                with_player = (*row[:player], True, *row[player + 1 :])
                found[player] += (values[place[with_player]] - values[i]) / (q * comb(q - 1, sum(row)))
    return found


def brute_force(fitted: FittedGame, held: Holdings) -> tuple[FloatArray, float]:
    """Shapley values and F(all) after a change, image by image."""
    q, n = len(held.contributors.owner), fitted.credits.table.n
    had = [int((held.source == player).sum()) for player in range(n)]
    values = []
    for coalition in every_coalition(q):
        present = [
            i for i, holders in enumerate(held.holders.tolist()) if coalition[holders[0]] or coalition[holders[1]]
        ]
        worth = sum(float(fitted.credits.values[held.source[i]]) / had[held.source[i]] for i in present)
        size = sum(1 / had[held.source[i]] for i in present)
        values.append(fitted.credits.empty + worth + float(fitted.curve(np.array(size))))
    return shapley(np.array(values), q), values[-1]


def contributors(lot: int | None = None) -> tuple[Contributors, tuple[int, ...]]:
    """The four contributors, or three of them cut into lots of four images."""
    if lot is None:
        return Contributors.of(dict(zip(NAMES, IMAGES, strict=True)), {}), IMAGES
    images = {"Ada · lot 1": 4, "Ada · rest": 2, "Ben · lot 1": 4, "Cy · rest": 3}
    return Contributors.of(images, {name: name.partition(" ")[0] for name in images}, lot), tuple(images.values())


CHANGES = {
    "split": Change("split", 0, parts=3),
    "copy": Change("copy", 1, 0),
    "leave": Change("leave", 2),
}


def test_shapley_values_of_the_fitted_game_are_the_credits() -> None:
    credits = exact_credits(game, NAMES)
    fitted = FittedGame.of(credits)
    assert shapley(fitted.values(every_coalition(4)), 4) == pytest.approx(credits.values)
    assert fitted.values(np.array([[False] * 4, [True] * 4])) == pytest.approx([credits.empty, credits.full])


def test_it_is_the_game_itself_where_everybody_adds_up_beside_the_size() -> None:
    n = 9
    worth = np.arange(n) / 3

    def values(coalitions: BoolArray) -> FloatArray:
        return 7 + coalitions @ worth + curve(coalitions.sum(axis=1), n)

    fitted = FittedGame.of(exact_credits(values, tuple("ABCDEFGHI")))
    assert len(fitted.coefficients) == 3
    assert fitted.values(every_coalition(n)) == pytest.approx(values(every_coalition(n)))
    between = np.array([0.25, 3.5, 8.9])
    line = curve(np.array([0.0]), n) + between / n * (curve(np.array([9.0]), n) - curve(np.array([0.0]), n))
    assert fitted.curve(between) == pytest.approx(curve(between, n) - line)


def test_noisy_evaluations_have_the_curve_of_a_least_squares_fit() -> None:
    generator = np.random.default_rng(1)
    coalitions = generator.random((60, 9)) < generator.random((60, 1))
    coalitions = coalitions[(coalitions.any(axis=1)) & ~coalitions.all(axis=1)]
    coalitions = np.vstack([coalitions, coalitions[:7]])  # replicates
    values = curve(coalitions.sum(axis=1), 9) + generator.normal(size=len(coalitions))
    credits = estimate(coalitions, values, empty=[1.0], full=[2.5])
    fitted = FittedGame.of(credits)

    def misfit(coefficients: FloatArray) -> float:
        left = values - FittedGame(credits, coefficients).values(coalitions)
        return float(left @ left)

    least = misfit(fitted.coefficients)
    for step in np.vstack([np.eye(3), -np.eye(3)]) * 0.01:
        assert misfit(fitted.coefficients + step) > least


@pytest.mark.parametrize("lot", [None, 4])
@pytest.mark.parametrize("kind", CHANGES)
def test_a_changed_game_has_the_shapley_values_of_brute_force(kind: str, lot: int | None) -> None:
    owners, images = contributors(lot)
    fitted = FittedGame(exact_credits(game, NAMES), np.array([4.0, -2.0, 3.0]))  # a strong curve, of all terms
    held = holdings(CHANGES[kind], owners, images, lot)
    q = len(held.contributors.owner)
    values, full = brute_force(fitted, held)
    every_order = np.array(list(permutations(range(q))))
    moved = shifted(fitted, held, [every_order])
    assert moved.values(fitted.credits.values) == pytest.approx(values)
    assert moved.full == pytest.approx(full)
    quick = shifted(fitted, held)
    assert quick.values(fitted.credits.values) == pytest.approx(values, abs=0.02)
    assert quick.level.sum() == pytest.approx(moved.level.sum())
    assert moved.credits(fitted.credits).efficient


def test_credits_that_do_not_add_up_are_refused() -> None:
    coalitions = every_coalition(4)[1:-1]
    credits = estimate(coalitions, game(coalitions) ** 2, empty=7.0, full=200.0, method="banzhaf")
    with pytest.raises(UserError, match="needs Shapley values; the credits of the method 'banzhaf' are not"):
        FittedGame.of(credits)


def test_errors_of_changed_credits_follow_from_those_of_the_credits() -> None:
    generator = np.random.default_rng(2)
    coalitions = every_coalition(4)[1:-1]
    credits = estimate(coalitions, game(coalitions) + generator.normal(size=14), empty=[7.0], full=[15.0])
    owners, images = contributors()
    moved = shifted(FittedGame.of(credits), holdings(CHANGES["copy"], owners, images, None))
    after = moved.credits(credits)
    drawn = generator.standard_normal((200_000, credits.influence.shape[1])) @ credits.influence.T
    spread = moved.values(credits.values + drawn).std(axis=0)
    assert np.sqrt((after.influence**2).sum(axis=1)) == pytest.approx(spread, rel=0.02)
    assert after.efficient
    biased = replace(credits, bias=np.array([1.0, 2.0, 3.0, 4.0]))
    # Ada has half of the worth of her images, and Ben, who comes last now, the other half and his own
    assert moved.credits(biased).bias.tolist() == [0.5, 3.0, 4.0, 2.5]


@pytest.mark.parametrize("q", [1, 2, 7])
def test_everybody_has_every_place_equally_often_in_cyclic_orders(q: int) -> None:
    orders = np.vstack(list(cyclic_orders(q)))
    for place in orders.T:
        assert (np.bincount(place, minlength=q) == len(orders) / q).all()


def test_large_games_have_one_round_of_orders() -> None:
    assert sum(1 for _ in cyclic_orders(3000)) == 1
