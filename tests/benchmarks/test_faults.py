"""The fault campaign, small: faults happen and nothing is lost; and what would be lost is found."""

import json
import random
import shutil
from pathlib import Path

import benchmarks.faults.measure as measure
import pytest
from benchmarks.faults import planted
from benchmarks.faults.acts import ACTS, acts_of
from benchmarks.faults.campaign import Campaign, Phase, missing, phases_of
from benchmarks.faults.check import judged
from benchmarks.faults.model import Diverged, images_of
from benchmarks.faults.page import page
from benchmarks.faults.places import Place

import tampering
from diffcredit.execution import InProcess
from diffcredit.execution.tasks import failed_evaluation

HERE = Path(measure.__file__).parent

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes by way of /proc")


@pytest.fixture
def campaign(tmp_path):
    return Campaign(tmp_path / "study", Place("SQLite", str(tmp_path / "ledger.db")), seed=0)


@pytest.mark.slow
def test_nine_faults(campaign, tmp_path):
    quick = tuple(each for each in planted.PLANTED if each not in (planted.PAUSED, planted.HUNG, planted.MEMORY))
    campaign.run(Phase(quick))
    campaign.run(Phase(act="driver killed"))
    campaign.run(Phase(act="two drivers at once"))
    assert {kind: tally.injected for kind, tally in campaign.tallies.items()} == dict.fromkeys(
        [*quick, "driver killed", "two drivers at once"], 1
    )
    assert campaign.tallies[planted.KILLED].noticed == {"worker lost": 1}
    assert campaign.tallies[planted.KILLED].repeated == 1
    assert campaign.tallies["driver killed"].noticed["claim taken over"] == 1
    verdict = judged(campaign, tmp_path / "undisturbed")
    assert verdict.sound
    assert verdict.wanted == Phase(quick).evaluations + 2 * Phase(act="driver killed").evaluations + 2
    assert verdict.failed == {planted.NAN: 1, planted.AFTER: 1}
    assert verdict.parts == 1
    assert campaign.left_behind == 0
    assert campaign.codes[-9] == 1


def test_what_was_lost_or_spoilt_is_found(campaign, tmp_path):
    campaign.evaluations = 12
    made = list(campaign.study.evaluate(InProcess()))
    assert judged(campaign, tmp_path / "undisturbed").sound
    study = campaign.study
    victim = made[5]
    with study.ledger() as ledger:
        failure = failed_evaluation(victim, "nobody knows why", "w", victim.started)
        ledger.record(study.name, study.recipe.name, failure)
        ledger.claim(study.name, study.recipe.name, "1100000000", 9, "somebody:1:x", 60)
    ledger = Path(campaign.place.ledger)
    tampering.change(
        ledger,
        "UPDATE property_values SET value = value + 1e-9 WHERE id = 3",
        "DELETE FROM property_values WHERE evaluation_id = 8",
        "DELETE FROM evaluations WHERE id = 8",
    )
    tampering.chain_anew(ledger)
    record = next((campaign.folder / "shared" / "kept").rglob("*.artifact.json"))
    record.unlink()
    shutil.rmtree(tmp_path / "undisturbed")
    verdict = judged(campaign, tmp_path / "undisturbed")
    found = (verdict.lost, verdict.wrong, verdict.unexplained, verdict.claims, verdict.artifacts, verdict.verify)
    assert found == (1, 1, 1, 1, 1, 0)
    assert verdict.credits > 1e-12
    assert missing(campaign.study) == [f"{made[7].coalition} {made[7].replicate}"]
    assert not verdict.sound
    tampering.change(ledger, "UPDATE property_values SET value = value + 1e-9 WHERE id = 3")
    shutil.rmtree(tmp_path / "undisturbed")
    verdict = judged(campaign, tmp_path / "undisturbed")
    # of a changed record nothing can be read
    assert (verdict.chain, verdict.verify, verdict.lost) == (1, 1, verdict.wanted)
    assert not verdict.sound


def test_a_schedule_has_all_kinds_and_follows_from_its_seed(tmp_path):
    place = Place("SQLite", "ledger.db")
    phases = phases_of(place, measure.PLANTED, measure.ACTS, random.Random(3))
    kinds = [kind for phase in phases for kind in (phase.faults or [phase.act])]
    assert set(kinds) == {*planted.PLANTED, *acts_of(place)}
    assert all(kinds.count(kind) == measure.PLANTED for kind in planted.PLANTED)
    assert phases == phases_of(place, measure.PLANTED, measure.ACTS, random.Random(3))
    assert phases != phases_of(place, measure.PLANTED, measure.ACTS, random.Random(4))


def test_the_model_is_a_function_of_its_task_and_diverges_when_told_to():
    assert (images_of("1010000000", 0) == images_of("1010000000", 0)).all()
    assert (images_of("1010000000", 0) != images_of("1010000000", 1)).any()
    assert (images_of("1010000000", 0) != images_of("0101000000", 0)).any()
    with pytest.raises(Diverged, match=r"the training loss became (inf|nan) at step"):
        images_of("1010000000", 0, rate=1e3)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["sqlite", "postgres", "ray"])
def test_every_kind_once(place, request):
    if place == "ray":
        pytest.importorskip("ray", reason='ray is not installed: pip install "diffcredit[cluster]"')
    if place == "postgres":
        request.getfixturevalue("postgres_server")  # skips, or fails where one is required
    record = measure.campaign(place, planted_each=1, acts_each=1, seed=1)
    assert record["sound"], record["verdict"]
    assert set(record["faults"]) >= set(planted.PLANTED) | {"driver killed"}
    assert set(record["faults"]) <= {*planted.PLANTED, *ACTS, "no fault of their own"}


def test_the_page_is_of_its_record():
    results = json.loads((HERE / "results.json").read_text(encoding="utf-8"))
    assert (HERE / "results.md").read_text(encoding="utf-8") == page(results)
    for each in results["campaigns"].values():
        assert each["sound"]
        assert each["verdict"]["wanted"] >= 200
        assert sum(kind["injected"] for kind in each["faults"].values()) >= 50
