import dataclasses
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from torch import nn

from diffcredit.contributions import HOUSE, Contributions
from diffcredit.diffusion import Training, training
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.networks import parameter_count
from diffcredit.diffusion.training import train
from diffcredit.errors import UserError
from diffcredit.retraining import RETRAININGS
from diffcredit.retraining.base import RetrainingContext
from diffcredit.retraining.fine_tune import FineTune, FromScratch
from diffcredit.retraining.pruning import Sparsity
from diffcredit.retraining.sparsified import Sparsified
from diffcredit.util.plugins import build
from diffcredit.util.progress import silent

SIDE = 8
TRAINING = Training(steps=2, batch_size=4, ema=0.9)
OWNER = np.array([0, 0, 1, 1, 1, 2, 2])
NOBODY, TWO, EVERYBODY = [False] * 3, [True, False, True], [True] * 3
SOME = np.array([NOBODY, [False, True, False], TWO, EVERYBODY])
SEEDS = [1, 2, 3, 4]


def contributions(changed: int | None = None, side: int = SIDE) -> Contributions:
    """Three contributors' images; those of contributor ``changed`` are other ones."""
    images = np.random.default_rng(0).integers(0, 256, (len(OWNER), side, side, 3), dtype=np.uint8)
    if changed is not None:
        images[changed == OWNER] = 255 - images[changed == OWNER]
    return Contributions(images, OWNER, ("a", "b", "c"), tuple("1234567"), images[:0])


def context(
    folder: Path, given: Contributions | None = None, base_seed: int = 0, progress=silent, seed: int = 9
) -> RetrainingContext:
    base = DDPM.create("tiny", SIDE, base_seed)
    return RetrainingContext(
        base, given or contributions(), TRAINING, seed=seed, folder=folder, load=DDPM.load, progress=progress
    )


OPTIONS: dict[str, dict[str, object]] = {
    "from_scratch": {},
    "fine_tune": {"steps": 2},
    "sparsified": {"steps": 2, "recover_steps": 2},
    "lora": {"steps": 2},
    "gradient_ascent": {"steps": 2},
    "influence": {"time_steps": 2},
    "soup": {"steps": 2},
}
DETERMINISTIC = ("influence", "soup")


def prepared(name: str, on: RetrainingContext):
    retraining = build(name, OPTIONS[name], RETRAININGS, where="retraining", beside=Path())
    retraining.prepare(on)
    return retraining


def fingerprint(retraining, coalition, seed: int) -> str:
    (model,) = retraining.models_for(np.array([coalition], dtype=bool), [seed])
    return model.fingerprint


@pytest.mark.parametrize("name", RETRAININGS)
def test_a_coalitions_model(name, tmp_path):
    """It depends on its coalition and, unless nothing is random, on its seed, but not on the other coalitions; nobody's
    is the untrained network."""
    retraining = prepared(name, context(tmp_path))
    models = list(retraining.models_for(SOME, SEEDS))
    found = [model.fingerprint for model in models]
    assert len(set(found)) == len(SOME)
    assert fingerprint(retraining, TWO, SEEDS[2]) == found[2]
    assert (fingerprint(retraining, TWO, 99) == found[2]) == (name in DETERMINISTIC)
    assert fingerprint(retraining, NOBODY, 99) == found[0], "F(none) is one number a study"
    nobody, _, two, _ = (model.network for model in models)
    shapes = [[tensor.shape for tensor in network.state_dict().values()] for network in (nobody, two)]
    assert shapes[0] == shapes[1]
    # every norm is as on construction, and none is after training
    norms = [module for module in nobody.modules() if isinstance(module, nn.GroupNorm)]
    assert all((norm.weight == 1).all() and (norm.bias == 0).all() for norm in norms)
    trained = any((norm.bias != 0).any() for norm in two.modules() if isinstance(norm, nn.GroupNorm))
    assert trained == (name != "lora"), "LoRA trains attention alone"


@pytest.mark.parametrize("kind", ["fine_tune", "from_scratch"])
def test_a_model_depends_on_its_coalitions_images_alone(kind, tmp_path):
    retraining = prepared(kind, context(tmp_path))
    expected, nobody = fingerprint(retraining, TWO, 1), fingerprint(retraining, NOBODY, 1)
    for changed in (1, 2):
        other = prepared(kind, context(tmp_path, contributions(changed=changed)))
        assert (fingerprint(other, TWO, 1) == expected) == (changed == 1)
        assert fingerprint(other, NOBODY, 1) == nobody
    assert fingerprint(prepared(kind, context(tmp_path, seed=10)), NOBODY, 1) != nobody


def test_who_never_came_changes_nothing(tmp_path):
    """The last contributor's absence from the study, too, leaves the others' images in their places."""
    everything = contributions()
    stay = everything.owner < 2
    fewer = Contributions(
        everything.images[stay], everything.owner[stay], ("a", "b"), everything.names[:5], everything.heldout
    )
    one, other = (prepared("fine_tune", context(tmp_path, given)) for given in (everything, fewer))
    assert fingerprint(one, [True, True, False], 1) == fingerprint(other, [True, True], 1)


@pytest.mark.parametrize("name", RETRAININGS)
def test_the_house_is_a_contributor_in_every_coalition(name, tmp_path):
    """Each model is that of an ordinary game with the house's images as a third contributor's, who is always in."""
    given = contributions()
    ours = dataclasses.replace(given, owner=np.array([0, 0, 1, 1, 1, HOUSE, HOUSE]), contributors=("a", "b"))
    house, ordinary = (prepared(name, context(tmp_path / name, each)) for each in (ours, given))
    house.at_once = 3  # together, nobody among them
    coalitions = np.array([[False, True], [False, False], [True, False], [True, True]])
    everywhere = np.hstack([coalitions, np.ones((4, 1), dtype=bool)])
    models = zip(house.models_for(coalitions, SEEDS), ordinary.models_for(everywhere, SEEDS), strict=True)
    found = [(mine.fingerprint, theirs.fingerprint) for mine, theirs in models]
    assert [mine for mine, _ in found] == [theirs for _, theirs in found]
    assert len(set(found)) == 4
    assert house.weights == ordinary.weights
    costs = [one.rehearse(one.context.base, TRAINING, one.context.contributions) for one in (house, ordinary)]
    assert costs[0].preparation == costs[1].preparation


def test_fine_tuning_for_everybody_is_training_the_base_on_everything(tmp_path):
    on = context(tmp_path)
    options = {"steps": 4, "batch_size": 3, "learning_rate": 3e-4, "schedule": "constant", "average_tail": 0.5}
    retraining = FineTune(**options)
    retraining.prepare(on)
    assert retraining.weights == on.base.fingerprint
    expected = on.base.clone()
    train(expected, expected.encode(on.contributions.images), Training(**options), seed=8)
    assert fingerprint(retraining, EVERYBODY, 8) == expected.fingerprint


def test_fine_tuning_takes_what_is_not_given_from_the_base():
    base = Training(steps=50, batch_size=7, learning_rate=2e-3, gradient_clip=0.5, flip=False, ema=0.99)
    assert FineTune(steps=9).training(base) == Training(
        steps=9, batch_size=7, learning_rate=2e-3, gradient_clip=0.5, flip=False, schedule="cosine", average_tail=0.25
    )
    paper = FineTune(steps=9, schedule="constant", average_tail=None)
    assert paper.training(dataclasses.replace(base, warmup_steps=20)) == dataclasses.replace(
        base, steps=9, ema=None, warmup_steps=0
    )
    assert FromScratch().training(base) == base
    assert FromScratch(steps=3).training(base) == dataclasses.replace(base, steps=3)
    assert Sparsified(recover_steps=4).recovery(base) == dataclasses.replace(base, steps=4)
    warm = dataclasses.replace(base, warmup_steps=10)  # longer than the recovery
    expected = dataclasses.replace(base, steps=4, warmup_steps=3, learning_rate=1.0)
    assert Sparsified(recover_steps=4, recover_learning_rate=1.0).recovery(warm) == expected


def test_from_scratch_for_everybody_is_training_an_untrained_network(tmp_path, monkeypatch):
    on, other_base = context(tmp_path), context(tmp_path, base_seed=1)
    retraining, other = prepared("from_scratch", on), prepared("from_scratch", other_base)
    with monkeypatch.context() as patched:
        patched.setattr(training, "train", lambda *_, **__: None)
        untrained, another = retraining.models_for(np.array([EVERYBODY] * 2), [8, 9])
    assert untrained.fingerprint not in (another.fingerprint, on.base.fingerprint)
    train(untrained, untrained.encode(on.contributions.images), TRAINING, seed=8)
    assert fingerprint(retraining, EVERYBODY, 8) == untrained.fingerprint
    # it owes nothing to the base's weights
    assert retraining.weights == other.weights == ""
    assert fingerprint(other, EVERYBODY, 8) == untrained.fingerprint


def test_what_was_prepared_is_found_again(tmp_path, monkeypatch):
    reports = []
    on = context(tmp_path, progress=lambda *report: reports.append(report))
    first = prepared("sparsified", on)
    assert reports == [("recovering the pruned model", 1, 2), ("recovering the pruned model", 2, 2)]
    assert parameter_count(first.start.network) / parameter_count(on.base.network) == pytest.approx(0.55, abs=0.1)
    # conv_out's biases are pruned of nothing: what changed them is the recovery
    assert not first.start.network.conv_out.bias.equal(on.base.network.conv_out.bias)
    never = Mock(side_effect=AssertionError("what was prepared is trained again"))
    monkeypatch.setattr(training, "train", never)
    # how coalitions are fine-tuned does not concern it
    again = Sparsified(steps=7, recover_steps=2, schedule="constant")
    again.prepare(context(tmp_path, progress=never))
    assert again.weights == first.weights == first.start.fingerprint


def test_another_option_makes_another_sparse_model(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "train", lambda *_, **__: None)
    monkeypatch.setattr(Sparsity, "pruned", lambda self, context: context.base)
    for options, changes in (
        ({}, {}),
        ({"recover_steps": 1}, {}),
        ({"recover_learning_rate": 5e-4}, {}),
        ({"multiple": 4}, {}),
        ({}, {"seed": 10}),
        ({}, {"base_seed": 1}),
    ):
        before = len(list(tmp_path.iterdir()))
        Sparsified(**{"recover_steps": 2, **options}).prepare(context(tmp_path, **changes))
        assert len(list(tmp_path.iterdir())) == before + 1


@pytest.mark.parametrize(
    ("options", "preparation", "coalition"),
    [
        ({"method": "from_scratch"}, None, 2),
        ({"method": "fine_tune", "steps": 5}, None, 5),
        ({"method": "sparsified", "steps": 5, "recover_steps": 2}, 2, 5),
        ({"method": "lora", "steps": 5, "sparse": {"recover_steps": 2}}, 2, 5),
        # three and a half images in batches of four
        ({"method": "gradient_ascent"}, None, 1),
        ({"method": "gradient_ascent", "batch_size": 1, "sparse": {"recover_steps": 2}}, 2, 4),
        # seven images at five time steps, four at once
        ({"method": "influence", "time_steps": 5}, 9, None),
        ({"method": "influence", "time_steps": 5, "sparse": {"recover_steps": 2}}, 11, None),
        # three contributors
        ({"method": "soup", "steps": 5}, 15, None),
        ({"method": "soup", "steps": 5, "sparse": {"recover_steps": 2}}, 17, None),
    ],
)
def test_rehearsals(options, preparation, coalition):
    untrained = DDPM.create("tiny", SIDE, 0)
    full = parameter_count(untrained.network)
    method = options.pop("method")
    retraining = build(method, options, RETRAININGS, where="retraining", beside=Path())
    rehearsal = retraining.rehearse(untrained, TRAINING, contributions())
    assert (rehearsal.preparation and rehearsal.preparation.steps) == preparation
    assert (rehearsal.coalition and rehearsal.coalition.steps) == coalition
    share = sum(p.numel() for name, p in rehearsal.model.network.named_parameters() if "lora_" not in name) / full
    assert share == (pytest.approx(0.55, abs=0.1) if "recover_steps" in str(options) else 1)
    assert parameter_count(untrained.network) == full
    # it can be trained as it is
    data = rehearsal.model.encode(contributions().images)
    train(rehearsal.model, data, dataclasses.replace(rehearsal.coalition or TRAINING, steps=1), seed=0)


def test_study_files_say_how_sparse_the_start_is(tmp_path):
    options = {"steps": 2, "sparse": {"parameters": 19_800_000, "importance": "taylor", "recover_steps": 3}}
    soup = build("soup", options, RETRAININGS, where="retraining", beside=tmp_path)
    assert soup.sparse == Sparsity(parameters=19_800_000, importance="taylor", recover_steps=3)
    assert isinstance(soup.sparse.parameters, int)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("parameters", 0),
        ("parameters", -3),
        ("parameters", 1),
        ("parameters", 1.5),
        ("importance", "magic"),
        ("multiple", 0),
        ("recover_steps", 0),
        ("recover_learning_rate", 0.0),
        ("paramters", 0.5),
    ],
)
def test_settings_that_are_refused(key, value, tmp_path):
    with pytest.raises(UserError, match=f"^retraining.{key}: "):
        build("sparsified", {key: value}, RETRAININGS, where="retraining", beside=tmp_path)
    with pytest.raises(UserError, match=f"^retraining.sparse.{key}: "):
        build("soup", {"sparse": {key: value}}, RETRAININGS, where="retraining", beside=tmp_path)
