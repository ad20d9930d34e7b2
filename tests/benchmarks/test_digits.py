"""The digits game against a numerical gradient, scikit-learn, planted contributors and games with known answers."""

import numpy as np
import pytest
from benchmarks.estimators import digits
from benchmarks.estimators.digits import WORLDS, DigitsGame, make_world, truth, unshrunk_shapley
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

from diffcredit.testing.games import Game, additive, brute_force_shapley, learning


def random_coalitions(n: int, count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.argsort(rng.random((count, n)), axis=1) < rng.integers(0, n + 1, size=(count, 1))


def test_a_value_follows_from_its_coalition_and_seed_alone():
    game = DigitsGame(20, 0)
    coalitions = random_coalitions(20, digits.MODELS + 40)
    seeds = np.arange(len(coalitions))
    together = game.evaluate(coalitions, seeds)
    for row in (0, 7, digits.MODELS - 1, digits.MODELS, len(seeds) - 1):
        assert game.evaluate(coalitions[[row]], seeds[[row]]) == pytest.approx(together[[row]], abs=1e-6)
    backwards = game.evaluate(coalitions[::-1], seeds[::-1])[::-1]
    np.testing.assert_allclose(backwards, together, atol=1e-6)
    other_seeds = game.evaluate(np.tile(random_coalitions(20, 1, seed=3), (50, 1)), np.arange(50))
    assert 0.01 < other_seeds.std() < 0.1


def test_a_step_goes_down_the_numerical_gradient_of_the_cross_entropy(monkeypatch):
    world = make_world(50, 0)
    lone = np.flatnonzero(np.bincount(world.owners) == 1)[0]  # its only image fills every batch
    image = np.flatnonzero(world.owners == lone)[0]
    x, label = world.images[image].astype(np.float64), world.labels[image]
    monkeypatch.setattr(digits, "STEPS", 1)
    coalitions = np.stack([np.zeros(50, dtype=np.bool_), np.arange(50) == lone])
    before, after = digits._trained(world, coalitions, np.array([5, 5])).astype(np.float64)

    def loss(weights: np.ndarray) -> float:
        return float(np.log(np.exp(x @ weights).sum()) - x @ weights[:, label])

    for pixel, target in ((64, label), (64, (label + 1) % 10), (int(x[:64].argmax()), label)):
        shift = np.zeros_like(before)
        shift[pixel, target] = 1e-5
        slope = (loss(before + shift) - loss(before - shift)) / 2e-5
        assert before[pixel, target] - after[pixel, target] == pytest.approx(digits.RATE * slope, rel=1e-3)


def test_long_training_ends_at_scikit_learns_logistic_regression(monkeypatch):
    monkeypatch.setattr(digits, "STEPS", 3000)
    monkeypatch.setattr(digits, "RATE", 0.05)
    world = make_world(20, 1)
    mine = np.array(world.roles) == "clean"
    model = LogisticRegression(C=1.0).fit(world.images[mine[world.owners]], world.labels[mine[world.owners]])
    values = DigitsGame(20, 1).evaluate(np.tile(mine, (5, 1)), np.arange(5))
    assert values.mean() == pytest.approx(model.score(world.test_images, world.test_labels), abs=0.02)


def test_the_surrogate_is_scikit_learns_discriminant_analysis():
    game = DigitsGame(20, 2)
    world = game.world
    coalitions = random_coalitions(20, 12, seed=1)
    coalitions = coalitions[coalitions.sum(axis=1) > 3]
    expected = []
    for coalition in coalitions:
        mine = coalition[world.owners]
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=digits.SHRINKAGE)
        model.fit(world.images[mine, :64].astype(np.float64), world.labels[mine])
        expected.append(model.score(world.test_images[:, :64], world.test_labels))
    np.testing.assert_allclose(game.surrogate(coalitions), expected, atol=2.5 / len(world.test_labels))


def test_the_weak_surrogate_counts_labels():
    game = DigitsGame(50, 0)
    coalition = random_coalitions(50, 1, seed=2)
    labels = game.world.labels[coalition[0][game.world.owners]]
    counts = [int((labels == label).sum()) for label in range(10)]
    assert game.weak_surrogate(coalition) == pytest.approx([sum(c / (c + 5) for c in counts) / 10])


@pytest.mark.parametrize(("n", "world_seed"), WORLDS)
def test_stored_truths_are_precise_and_belong_to_their_world(n: int, world_seed: int):
    game, stored = DigitsGame(n, world_seed), truth(n, world_seed)
    assert stored.error < 0.03
    ends = np.repeat([np.zeros(n, dtype=np.bool_), np.ones(n, dtype=np.bool_)], 100, axis=0)
    empty, full = game.evaluate(ends, np.arange(200)).reshape(2, -1)
    deviation = np.sqrt((empty.var() + full.var()) / 100)
    assert stored.credits.sum() == pytest.approx(full.mean() - empty.mean(), abs=5 * deviation)
    # the planted contributors are found
    roles, error = np.array(game.world.roles), stored.error * stored.credits.std()
    assert abs(stored.credits[roles == "copied"] - stored.credits[roles == "copier"]) < 6 * error
    assert stored.credits[roles == "junk"].max() < np.quantile(stored.credits, 0.25)
    assert stored.credits[roles == "clean"].mean() > stored.credits[roles == "mislabelled"].mean()


def test_a_truth_of_another_game_is_refused(monkeypatch):
    monkeypatch.setattr(digits, "STEPS", 61)
    with pytest.raises(ValueError, match=r"digits_20_0\.json: values of another game"):
        truth(20, 0)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_estimator_of_truths_against_brute_force(noise: float):
    game = learning(6)
    estimate = unshrunk_shapley(seeded(game, noise), 6, 40_000, seed=0)
    np.testing.assert_allclose(estimate, brute_force_shapley(game, 6), atol=0.005)


def test_the_estimator_of_truths_is_exact_where_only_members_and_size_count():
    weights = np.array([3.0, -1.0, 0.5, 2.0, 0.0])

    def game(coalitions: np.ndarray) -> np.ndarray:
        return additive(weights)(coalitions) * 7 ** coalitions.sum(axis=1)

    estimate = unshrunk_shapley(seeded(game), 5, 300, seed=0)
    np.testing.assert_allclose(estimate, brute_force_shapley(game, 5), rtol=1e-9)


def seeded(game: Game, noise: float = 0.0):
    """The game as the digits game is called, with normal noise."""

    def evaluate(coalitions: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        return game(coalitions) + noise * np.random.default_rng(seeds).standard_normal(len(coalitions))

    return evaluate
