"""``diffcredit pilot``, and what ``plan`` and ``status`` make of it."""

import math
import re
from types import SimpleNamespace

import pytest
from scipy import stats

from diffcredit.credit.planning import Pilot
from diffcredit.study.pilot import _of_pilot, other_recipes, truth_of
from diffcredit.study.study import Study
from tiny_study import rows, write_small

NOISE = """
from itertools import count

class Noise:
    calls = count()

    def measure(self, images):
        return float(next(self.calls) // 3 % 2)  # differs between seeds, not between the three coalitions
"""


def row_of(out, name):
    return next(line for line in out.splitlines() if line.split()[:1] == [name]).split()


@pytest.mark.usefixtures("speeds")
def test_a_table_and_a_sentence_for_each_property(diffcredit, tmp_path):
    (tmp_path / "noise_of_a_pilot.py").write_text(NOISE)
    file = write_small(tmp_path, {"properties": ["colourfulness", "noise_of_a_pilot:Noise"]}, "ada bob cem dan")
    out = diffcredit.printed("pilot", file, "--coalitions", 3, "--replicates", 2, "--workers", 1)
    assert "evaluating the pilot: 6/6" in out
    told = "Pilot of fine_tune: 6 evaluations of 3 coalitions of half the contributors"
    assert told in " ".join(out.split())
    within, images, _, ratio, low, to, high = row_of(out, "colourfulness")[1:]
    assert (float(within) > 0, float(images) > 0, to) == (True, True, "to")
    assert 0 <= float(low) <= float(ratio) <= float(high)
    assert "colourfulness: " in out
    said = [line for line in out.splitlines() if ": signal/noise " in line]
    assert [line.partition(":")[0] for line in said] == ["colourfulness", "Noise"]
    assert rows(tmp_path, "SELECT DISTINCT purpose FROM evaluations") == [("pilot",)]

    again = diffcredit.printed("pilot", file, "--coalitions", 3, "--replicates", 2, "--workers", 1)
    assert "evaluating" not in again
    assert row_of(again, "colourfulness") == row_of(out, "colourfulness")

    # neither status nor plan counts it, and plan says the same of signal and noise
    assert "fine_tune 0 of 10 0" in " ".join(diffcredit("status", file)[1].split())
    out = diffcredit.printed("plan", file, "--workers", 1)
    assert "10 evaluations of 10, " in out
    assert [line for line in out.splitlines() if ": signal/noise " in line] == said
    assert re.search(r"pilot \(diffcredit pilot\): 6 evaluations +done", out)


def test_other_retrainings_and_from_scratch_beside_it(diffcredit, tmp_path):
    compared = [{"method": "fine_tune", "name": "longer", "steps": 2}]
    file = write_small(
        tmp_path, {"validation": {"shares": [0.5], "retrainings": compared, "steps": 3}}, "ada bob cem dan"
    )
    command = ("pilot", file, "--coalitions", 4, "--replicates", 2, "--workers", 1, "--compare")
    out = diffcredit.printed(*command)
    recipes = re.findall(r"Pilot of (\S+): 8 evaluations", out)
    assert recipes == ["fine_tune", "longer", "from_scratch"]
    values = {
        name: dict(
            rows(
                tmp_path,
                "SELECT coalition, avg(value) FROM evaluations JOIN property_values ON evaluation_id = evaluations.id "
                f"JOIN recipes ON recipe_id = recipes.id WHERE recipes.name = '{name}' GROUP BY coalition",
            )
        )
        for name in recipes
    }
    told = [line.split() for line in out.splitlines() if line.split()[:1] == ["colourfulness"]]
    for name, row in zip(recipes[:2], told[:2], strict=True):
        means = [[values[each][coalition] for coalition in sorted(values[name])] for each in (name, "from_scratch")]
        assert float(row[-1]) == pytest.approx(stats.pearsonr(*means).statistic, abs=0.0051)
    assert len(told[2]) == len(told[0]) - 1  # not beside itself


def test_what_retrains_from_scratch_is_compared_with_wherever_it_stands(tmp_path):
    compared = [{"method": "fine_tune", "steps": 2}]
    changes = {"retraining": {"method": "from_scratch"}, "validation": {"shares": [0.5], "retrainings": compared}}
    study = Study.load(write_small(tmp_path, changes, "ada bob cem dan"))
    recipes = [study.recipe, *other_recipes(study)]
    assert [each.name for each in recipes] == ["from_scratch", "fine_tune"]
    assert truth_of(recipes) is study.recipe


def test_one_of_anything_tells_nothing(diffcredit, tmp_path):
    file = write_small(tmp_path)
    for option in ("--coalitions", "--replicates"):
        assert diffcredit("pilot", file, option, 1)[0] == 2


def signal(ratio, low, high, images=0.1, n=20):
    made = Pilot(4, 12, 1.0, math.sqrt(ratio), images, ratio, low, high)
    study = SimpleNamespace(design=SimpleNamespace(distribution="uniform"))
    return _of_pilot(study, n, made)


def test_what_it_means():
    """In closed form at n = 20 with uniform sizes: M = 6·19/21 · (5/ratio) · ρ²/(1 − ρ²)."""
    expected = math.tanh(math.atanh(0.9) + stats.norm.ppf(0.85) / math.sqrt(17)) ** 2
    evaluations = 6 * 19 / 21 * 5 / 0.5 * expected / (1 - expected)
    text = signal(0.5, 0.0, 2.0).sentence()
    found, _, asked = text.partition(": ")
    assert found == "signal/noise 0.5 (0 to 2) by a pilot of 12 evaluations"
    assert asked.startswith(f"about {round(evaluations, -1):.0f} evaluations should reach a correlation of 0.9")
    # a bound that is endless is none: it says what would give one
    assert f"(at least {round(evaluations / 4):.0f}; diffcredit pilot --coalitions 8 narrows this)" in asked
    bounded = signal(0.5, 0.25, 2.0).sentence()
    assert f"(at least {round(evaluations / 4):.0f}, at most {round(2 * evaluations, -1):.0f})" in bounded


def test_what_helps():
    certain, unknown = signal(0.01, 0, 0.05).sentence(), signal(0.01, 0, math.inf).sentence()
    assert "is under 0.1: contributors explain little" in certain
    assert "(0 to any) by a pilot of 12 evaluations: too few evaluations to say whether it is above 0.1" in unknown
    for text in (certain, unknown):
        assert "annealing and tail averaging" in text
        assert "more fine-tuning steps" in text
        assert "sampling.images" not in text
        assert "evaluations should reach" not in text
    assert "more sampling.images" in signal(0.01, 0, 0.05, images=0.9).sentence()
    assert "sampling.images" not in signal(0.01, 0, 0.05, images=None).sentence()
