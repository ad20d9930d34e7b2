"""What a ledger's evaluations and retrained models make of a verdict: games with known answers, nothing trained."""

import numpy as np
import pytest

from diffcredit.study.study import Study
from diffcredit.validation.data import ValidationData
from validated_study import WEIGHTS, additive, record, validated


def verdicts_of(folder, factor, **changes):
    """The verdicts of a study whose models retrained from scratch have the credits times ``factor``; 0: none is."""
    data = ValidationData(Study.load(validated(folder, changes)))
    own = data.recipes[0]
    turns = ((own, data.design(own).missing(), 1), (data.scratch, data.truth().missing() if factor else (), factor))
    for seed, (recipe, tasks, turned) in enumerate(turns):
        games = {
            name: additive(turned * WEIGHTS, 0.3, seed=10 * seed + place)
            for place, name in enumerate(("colourfulness", "heldout_loss"))
        }
        record(recipe, tasks, games, lower=["heldout_loss"])
    return data.study.verdicts()


@pytest.mark.parametrize(
    ("factor", "level", "words"),
    [
        (1.0, "pay by it", "passed their test"),
        (-1.0, "do not use", "failed their test: rank correlation -0.9"),
        (0, "use with care", "never tested. A test retrains 40 models"),
    ],
)
def test_retrained_models_decide_for_either_direction(tmp_path, factor, level, words):
    found = verdicts_of(tmp_path, factor)
    assert set(found) == {"colourfulness", "heldout_loss"}
    for each in found.values():
        assert each.level == level
        assert words in each.reason


def test_a_study_states_what_matters(tmp_path):
    found = verdicts_of(tmp_path, 1.0, matters={"heldout_loss": float(np.ptp(WEIGHTS))})
    assert (found["colourfulness"].level, found["heldout_loss"].level) == ("pay by it", "use with care")
    assert "what the study says matters, 5" in found["heldout_loss"].reason
