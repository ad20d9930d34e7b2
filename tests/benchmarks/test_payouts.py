"""The benchmark's small version: what splits gain, and whether amounts lie in their intervals."""

from math import comb

import numpy as np
import pytest
from benchmarks.payouts import amounts, manipulations, measure, worlds
from benchmarks.payouts.amounts import Case, Planted

from diffcredit import estimate

SMALL = {name: worlds.GAMES[name] for name in ("adds up", "covers topics")}


def mean_gain(rows, fixed, lot):
    return np.mean([row["gain"] for row in rows if (row["fixed"], row["lot"]) == (fixed, lot)])


def test_three_names_gain_by_heads_and_next_to_nothing_by_lots(monkeypatch):
    monkeypatch.setattr(manipulations, "GAMES", SMALL)
    monkeypatch.setattr(manipulations, "TERMS", [terms for terms in manipulations.TERMS if terms.lot != 5])
    rows = list(manipulations.manipulated(0, "split"))
    assert mean_gain(rows, "equal", None) > 0.5
    assert abs(mean_gain(rows, "lots", 4)) < 0.05
    assert mean_gain(rows, "images", None) < 0.1


def test_a_copier_gains_what_the_fitted_game_says_where_images_add_up(monkeypatch):
    monkeypatch.setattr(manipulations, "GAMES", {"adds up": SMALL["adds up"]})
    rows = list(manipulations.manipulated(1, "copy"))
    assert [row["estimated"] for row in rows] == pytest.approx([row["gain"] for row in rows], abs=1e-4)
    assert min(row["gain"] for row in rows if row["merit"] == "help") > 0


def test_games_have_the_shapley_values_that_they_should():
    world = worlds.World(0)
    accounts = worlds.honest(world, None)
    adding = worlds.shapley(world.adds_up, accounts, 60)
    assert adding == pytest.approx([world._worth[world.owner == person].sum() for person in range(5)])
    for game in (world.saturates, world.covers_topics, world.learnt):
        found = worlds.shapley(game, accounts, 60)
        ends = game(np.array([[False] * 60, [True] * 60]))
        assert found.sum() == pytest.approx(ends[1] - ends[0])
    # of a game of the size alone everybody has the same, and the first of two names half of it where they count alike
    by_size = lambda present: present.sum(axis=1) / 12.0  # noqa: E731
    assert worlds.shapley(by_size, worlds.split(accounts, 0, 2), 60) == pytest.approx([1, 1, 1, 1, 0.5, 0.5])


def test_the_learnt_game_learns():
    world = worlds.World(0)
    nobody, everybody = world.learnt(np.array([[False] * 60, [True] * 60]))
    assert 0.2 < nobody < everybody < 1


def test_the_planted_game_has_the_credits_that_it_says():
    game = Planted.made(np.random.default_rng(3))
    rows = worlds.every_coalition(amounts.N)
    values = game.values(rows)
    credits = estimate(rows[1:-1], values[1:-1], empty=float(values[0]), full=float(values[-1]), method="exact")
    assert credits.values == pytest.approx(game.shapley)
    assert credits.values[amounts.NULL] == pytest.approx(0)
    first, second = amounts.TWINS
    assert credits.values[first] == pytest.approx(credits.values[second])
    assert len(rows) == sum(comb(amounts.N, size) for size in range(amounts.N + 1))


def test_amounts_lie_in_their_intervals():
    found = amounts.measured(Case("shapley", "help", 120, 0.5), 25)
    assert 0.9 <= found["covered"] <= 1
    assert found["twins_apart"] <= 0.08
    assert 0.5 <= found["moved"] / found["moved_by_another_run"] <= 2
    assert found["overtaken"] == pytest.approx(found["better"], abs=0.1)


def test_the_page_has_every_part(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(measure, "WORLDS", 1)
    monkeypatch.setattr(measure, "STUDIES", 1)
    monkeypatch.setattr(measure, "CASES", amounts.CASES[:1])
    monkeypatch.setattr(manipulations, "GAMES", {"adds up": SMALL["adds up"]})
    measure.main()
    text = (tmp_path / "results.md").read_text()
    assert text.count("\n## ") == 3
    assert "| adds up | help |" in text
