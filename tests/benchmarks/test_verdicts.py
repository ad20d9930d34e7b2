"""The benchmark's small version: error rates of verdicts, on games whose contributors are equal or planted."""

import numpy as np
import pytest
from benchmarks.verdicts import measure, page
from benchmarks.verdicts.worlds import World, simulate

from diffcredit.credit.verdicts import LEVELS


@pytest.mark.parametrize(
    ("world", "paid", "levels"),
    [
        (World(12, 5), (0, 1), LEVELS[1:]),
        (World(12, 5, noise="small coalitions noisier"), (0, 1), LEVELS[1:]),
        (World(12, 10, difference=2.0), (16, 20), LEVELS),
        (World(12, 10, difference=2.0, truthful=-1.0), (0, 0), LEVELS[2:]),
        (World(12, 20, difference=0.15), (0, 1), LEVELS),
    ],
)
def test_how_often_one_may_pay(world, paid, levels):
    found = measure.rates(world, 20)
    assert paid[0] <= found["levels"]["pay by it"] <= paid[1]
    assert set(found["levels"]) <= {*levels, "pay by it"}
    assert found["failed_is_reason"] == found["failed"]
    assert world.truthful > 0 or found["failed"] == 20


def test_a_simulated_study_has_the_help_it_says():
    world = World(6, 0, truths=10, difference=3.0, design="exhaustive")
    studies = [simulate(world, number) for number in range(10)]
    for study in studies:
        assert study.help.mean() == pytest.approx(0, abs=1e-12)
        assert study.help.std(ddof=1) == pytest.approx(3.0)
        assert study.credits.evaluations == 62
    low, high = np.stack([study.credits.help_intervals() for study in studies], axis=1)
    truth = np.stack([study.help for study in studies])
    assert ((low <= truth) & (truth <= high)).mean() > 0.85


def test_the_page_has_every_part(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "STUDIES", 1)
    monkeypatch.setattr(measure, "RESULTS", tmp_path / "results.json")
    few = {name: worlds[-1:] for name, worlds in measure.worlds_by_part().items()}
    monkeypatch.setattr(measure, "worlds_by_part", lambda: few)
    measure.main()
    text = (tmp_path / "results.md").read_text()
    assert text.count("\n## ") == 5
    assert all(title in text for title in page.CHECKS.values())
