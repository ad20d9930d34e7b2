"""A study's verdicts: from a ledger whose credits are known, with truth that agrees, disagrees or is missing."""

import numpy as np
import pytest
import yaml

from diffcredit.coalitions import encode
from diffcredit.credit import mix
from diffcredit.report.standings import credits_csv
from diffcredit.report.tables import credit_tables
from diffcredit.study.identity import recorded_base
from diffcredit.study.reserved import truth_coalitions
from diffcredit.study.study import Study
from diffcredit.util.cache import artifact_name
from diffcredit.validation.data import ValidationData
from diffcredit.validation.verdicts import score_against_truth
from validated_study import WEIGHTS, additive, record, validated

LOWER = ["heldout_loss"]
GAMES = {name: additive(noise=0.1, seed=seed) for seed, name in enumerate(("colourfulness", "heldout_loss"))}


def with_truth(folder, truth, changes=None, tasks=None):
    """A study of the additive game, whose truth is another game; ``tasks``: how many of it are there."""
    data = ValidationData(Study.load(validated(folder, {"design": {"full_replicates": 3}, **(changes or {})})))
    record(data.study.recipe, data.design(data.study.recipe).missing(), GAMES, lower=LOWER)
    record(data.scratch, data.truth().missing()[:tasks], dict.fromkeys(GAMES, truth), lower=LOWER)
    return Study.load(data.study.file)


def test_credits_that_order_retrained_models_may_be_paid_by(tmp_path):
    study = with_truth(tmp_path, additive(noise=0.5, seed=9))
    found = score_against_truth(study, study.credits())
    for name in GAMES:
        assert found[name].score > 0.9
        assert (found[name].coalitions, found[name].seeds) == (20, 2)
        assert found[name].ceiling == pytest.approx(1, abs=0.1)
    assert {each.level for each in study.verdicts().values()} == {"pay by it"}
    mixed = mix(study.credits(), {"colourfulness": 1.0, "heldout_loss": -1.0})  # twice the same game
    (both,) = study.verdicts({"both": mixed}).values()
    assert both.level == "pay by it"
    for table in credit_tables(study):
        # ± 0.1 between seeds: only who is nearer to the average than that does not matter
        help_ = WEIGHTS - WEIGHTS.mean()
        assert [bool(each) for each in table.matters][:4] == [True] * 4
        assert list(table.help) == pytest.approx(help_.tolist(), abs=0.2)


def test_a_failed_validation_reaches_every_output(tmp_path):
    study = with_truth(tmp_path, additive(-WEIGHTS))
    for name, verdict in study.verdicts().items():
        assert verdict.level == "do not use"
        assert verdict.reason.startswith("The credits failed their test: rank correlation −"), name
    rows = credits_csv(credit_tables(study)).splitlines()
    assert len(rows) == 1 + 2 * 8
    assert all(row.endswith(",do not use") for row in rows[1:])


@pytest.mark.parametrize(
    ("known", "said"), [(120.0, ", about 1 h 20 min of one worker: "), (None, " --plan says what")]
)
def test_credits_that_were_never_tested_say_what_a_test_would_cost(tmp_path, known, said):
    """40 models: a training takes what the base model's took, 120 s, and sampling 1 s by the ledger."""
    study = with_truth(tmp_path, additive(), tasks=0)
    if known is not None:
        with study.ledger() as ledger:
            recipe = study.recipe.recorded(ledger)
        lock = study.folder / ".locks" / f"{artifact_name('base', recorded_base(recipe.settings))}.seconds"
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.write_text(str(known))
    for verdict in study.verdicts().values():
        assert verdict.level == "use with care"
        assert verdict.reason.startswith("The credits were never tested. A test retrains 40 models from scratch")
        assert said in verdict.reason
        assert "diffcredit validate study.yaml" in verdict.reason


def test_too_little_truth_is_no_test(tmp_path):
    study = with_truth(tmp_path, additive(), tasks=9)
    assert score_against_truth(study, study.credits()) == {}


def test_credits_are_not_tested_on_what_they_were_estimated_from(tmp_path):
    """Without a section ``validation`` the design has truth's coalitions too. Their values, here far off, do not enter
    the credits that are tested."""
    off = {encode(row) for row in truth_coalitions(Study.load(validated(tmp_path)).config, 8, 0.5)}

    def game(coalition):
        return float(WEIGHTS[coalition].sum()) - 100.0 * (encode(coalition) in off) * float(WEIGHTS[coalition].sum())

    changes = {
        "design": {"distribution": "exhaustive", "full_replicates": 3},
        "stop": {"evaluations": 254},
    }
    file = validated(tmp_path / "own", changes)
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "validation": None}))
    data = ValidationData(Study.load(file))
    record(data.study.recipe, data.design(data.study.recipe).missing(), dict.fromkeys(GAMES, game), lower=LOWER)
    record(data.scratch, data.truth().missing(), dict.fromkeys(GAMES, additive()), lower=LOWER)
    study = Study.load(data.study.file)
    assert all(each.score > 0.99 for each in score_against_truth(study, study.credits()).values())


def test_what_the_study_says_matters_replaces_the_spread_between_seeds(tmp_path):
    study = with_truth(tmp_path, additive(), {"matters": {"colourfulness": 2.0}})
    tables = {table.property: table for table in credit_tables(study)}
    distance = np.abs(tables["colourfulness"].help)
    assert tables["colourfulness"].matters == tuple((distance > 2.0).tolist())
    assert sum(tables["colourfulness"].matters) == 2  # the first and the last, at 2.5 and at −2.5 of the average
    assert sum(tables["heldout_loss"].matters) > 4
    nobody = with_truth(tmp_path / "nobody", additive(noise=0.5), {"matters": {"heldout_loss": 5.0}}).verdicts()
    assert (nobody["colourfulness"].level, nobody["heldout_loss"].level) == ("pay by it", "use with care")
    assert "what the study says matters, 5" in nobody["heldout_loss"].reason
