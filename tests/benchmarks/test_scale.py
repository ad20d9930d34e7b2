"""The simulated cluster, small: its run is whole, its game has the credits claimed, its page is of its record."""

import json
from pathlib import Path

import benchmarks.scale.measure as measure
import benchmarks.scale.shapes as shapes
import numpy as np
import pytest
from benchmarks.scale.drive import drive
from benchmarks.scale.page import exponent, page
from benchmarks.scale.shapes import of_command, write_ledger
from benchmarks.scale.simulation import CONTRIBUTORS, PROPERTIES, SimulatedStudy, game, true_credits, write_study

from diffcredit.study.study import Study

HERE = Path(measure.__file__).parent


@pytest.mark.parametrize("prop", PROPERTIES)
def test_the_games_credits(prop):
    """Of a game of pairs, marginal contributions along any order and its reverse average to the Shapley values."""
    alone, pairs = game(prop)

    def value(members):
        return members @ alone + members @ pairs @ members

    order = np.random.default_rng(0).permutation(CONTRIBUTORS)
    total = np.zeros(CONTRIBUTORS)
    for way in (order, order[::-1]):
        members = np.zeros(CONTRIBUTORS)
        for contributor in way:
            before = value(members)
            members[contributor] = 1.0
            total[contributor] += value(members) - before
    np.testing.assert_allclose(true_credits(prop), total / 2)


def test_a_small_run(tmp_path):
    study = SimulatedStudy(write_study(tmp_path, 90))
    *_, last = drive(study, 16)
    endpoints = 1 + study.config.design.full_replicates
    assert last["evaluations"] == 90 + endpoints
    recorded = study.evaluations()
    assert len({each.key for each in recorded}) == 90 + endpoints == len(recorded)
    with study.ledger() as ledger:
        assert ledger.audit("scale").problems == ()
    for prop, credits in study.credits().items():
        assert np.corrcoef(credits.values, true_credits(prop))[0, 1] > 0.8


def test_a_small_shape_has_its_games_credits(tmp_path, monkeypatch):
    """Fewer evaluations than contributors, and more than the size model is fitted to."""
    monkeypatch.setenv("DIFFCREDIT_NOTES", str(tmp_path / "notes"))
    for contributors, evaluations, least in ((60, 50, 0.5), (40, 1300, 0.95)):
        file = write_ledger(tmp_path / str(contributors), contributors, evaluations)
        study = Study.load(file)
        assert next(study.schedule().pending(), None) is None
        for prop, credits in study.credits().items():
            own = shapes.true_credits(prop, contributors)
            assert np.corrcoef(credits.values, own)[0, 1] > least
            covered = abs(credits.help() - (own - own.mean())) < credits.contrast_half_width
            assert covered.mean() > 0.8
    for name in shapes.COMMANDS:
        assert of_command(name, file)["memory"] > 0


def test_exponents():
    assert exponent([10, 100, 1000], [3, 30, 300]) == pytest.approx(1)
    assert exponent([10, 100, 1000], [5, 500, 50_000]) == pytest.approx(2)


def test_the_page_is_of_its_record():
    assert (HERE / "results.md").read_text(encoding="utf-8") == page(json.loads((HERE / "results.json").read_text()))
