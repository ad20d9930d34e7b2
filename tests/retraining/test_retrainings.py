import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from diffcredit.contributions import Contributions
from diffcredit.diffusion import Training, kept, training
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.networks import parameter_count
from diffcredit.diffusion.training import train
from diffcredit.errors import UserError
from diffcredit.retraining import RETRAININGS
from diffcredit.retraining.base import RetrainingContext
from diffcredit.retraining.fine_tune import FineTune
from diffcredit.retraining.from_scratch import FromScratch
from diffcredit.retraining.pruning import Sparsity
from diffcredit.retraining.sparsified import Sparsified
from diffcredit.util.plugins import build
from diffcredit.util.progress import silent

SIDE = 8
TRAINING = Training(steps=3, batch_size=4, ema=0.9)
OWNER = np.array([0, 0, 1, 1, 1, 2, 2])
NOBODY, EVERYBODY = [False] * 3, [True] * 3
ALL = np.array(list(itertools.product([False, True], repeat=3)))


def contributions(changed: int | None = None) -> Contributions:
    """Three contributors' images; those of contributor ``changed`` are other ones."""
    images = np.random.default_rng(0).integers(0, 256, (len(OWNER), SIDE, SIDE, 3), dtype=np.uint8)
    if changed is not None:
        images[changed == OWNER] = 255 - images[changed == OWNER]
    return Contributions(images, OWNER, ("a", "b", "c"), tuple("1234567"), images[:0])


def ground(
    folder: Path, given: Contributions | None = None, base_seed: int = 0, progress=silent, seed: int = 9
) -> RetrainingContext:
    base = DDPM.create("tiny", SIDE, base_seed)
    return RetrainingContext(
        base, given or contributions(), TRAINING, seed=seed, folder=folder, load=DDPM.load, progress=progress
    )


OPTIONS: dict[str, dict[str, object]] = {
    "from_scratch": {},
    "fine_tune": {"steps": 3},
    "sparsified": {"steps": 3, "recover_steps": 2},
    "lora": {"steps": 3},
    "gradient_ascent": {"steps": 3},
    "influence": {"time_steps": 2},
    "soup": {"steps": 3},
}
DETERMINISTIC = ("influence", "soup")


def make(name: str):
    return build(name, OPTIONS[name], RETRAININGS, where="retraining", beside=Path())


def prepared(name: str, on: RetrainingContext):
    retraining = make(name)
    retraining.prepare(on)
    return retraining


def fingerprints(retraining, coalitions, seeds) -> list[str]:
    return [model.fingerprint for model in retraining.models_for(np.array(coalitions, dtype=bool), seeds)]


def fingerprint(retraining, coalition, seed: int) -> str:
    (result,) = fingerprints(retraining, [coalition], [seed])
    return result


@pytest.fixture(scope="module", params=RETRAININGS)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def retraining(name, tmp_path_factory):
    return prepared(name, ground(tmp_path_factory.mktemp(name)))


@pytest.fixture(scope="module")
def together(retraining) -> list[str]:
    """The models of all coalitions, made in one call with the seeds 0, 1, 2, …"""
    return fingerprints(retraining, ALL, range(len(ALL)))


def test_nobodys_model_is_the_untrained_network(retraining, name):
    one, other = retraining.models_for(np.array([NOBODY] * 2), [4, 5])
    assert one.fingerprint == other.fingerprint, "F(none) is one number a study"
    two = next(retraining.models_for(np.array([[True, True, False]]), [4]))
    shapes = [tensor.shape for tensor in two.network.state_dict().values()]
    assert [tensor.shape for tensor in one.network.state_dict().values()] == shapes
    # every norm is as on construction, and none is after training
    for module in one.network.modules():
        if isinstance(module, nn.GroupNorm):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()
    trained = [module for module in two.network.modules() if isinstance(module, nn.GroupNorm)]
    assert any((module.bias != 0).any() for module in trained) == (name != "lora"), "LoRA trains attention alone"


@pytest.mark.parametrize("kind", ["fine_tune", "from_scratch"])
def test_nobodys_model_does_not_depend_on_the_data(kind, tmp_path):
    one = prepared(kind, ground(tmp_path))
    other = prepared(kind, ground(tmp_path, contributions(changed=1)))
    assert fingerprint(one, NOBODY, 3) == fingerprint(other, NOBODY, 3)
    assert fingerprint(prepared(kind, ground(tmp_path, seed=10)), NOBODY, 3) != fingerprint(one, NOBODY, 3)


def test_a_model_does_not_depend_on_the_other_coalitions(retraining, together):
    assert len(set(together)) == len(ALL)
    for index in (0, 6):
        assert fingerprint(retraining, ALL[index], index) == together[index]
    assert fingerprints(retraining, ALL[[5, 2]], [5, 2]) == [together[5], together[2]]


def test_a_model_depends_on_the_seed_unless_nothing_is_random(retraining, together, name):
    assert (fingerprint(retraining, ALL[3], 99) == together[3]) == (name in DETERMINISTIC)


@pytest.mark.parametrize("kind", ["fine_tune", "from_scratch"])
def test_a_model_depends_on_its_coalitions_images_alone(kind, tmp_path):
    retraining = prepared(kind, ground(tmp_path))
    coalition = [True, False, True]
    expected = fingerprint(retraining, coalition, 1)
    for changed in range(3):
        other = prepared(kind, ground(tmp_path, contributions(changed=changed)))
        assert (fingerprint(other, coalition, 1) == expected) == (changed == 1)


@pytest.mark.parametrize("kind", ["fine_tune", "from_scratch"])
def test_who_never_came_changes_nothing(kind, tmp_path):
    """The last contributor's absence from the study, too, leaves the others' images in their places."""
    everything = contributions()
    stay = everything.owner < 2
    fewer = Contributions(
        everything.images[stay], everything.owner[stay], ("a", "b"), everything.names[:5], everything.heldout
    )
    one = prepared(kind, ground(tmp_path))
    other = prepared(kind, ground(tmp_path, fewer))
    assert fingerprint(one, [True, True, False], 1) == fingerprint(other, [True, True], 1)


def test_fine_tuning_for_everybody_is_training_the_base_on_everything(tmp_path):
    on = ground(tmp_path)
    retraining = FineTune(steps=4, batch_size=3, learning_rate=3e-4, schedule="constant", average_tail=0.5)
    retraining.prepare(on)
    expected = on.base.clone()
    settings = Training(
        steps=4, batch_size=3, learning_rate=3e-4, schedule="constant", average_tail=0.5, gradient_clip=1.0, flip=True
    )
    train(expected, expected.encode(on.contributions.images), settings, seed=8)
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
    assert Sparsified(recover_steps=4, recover_learning_rate=1.0).recovery(base).learning_rate == 1.0


def test_from_scratch_for_everybody_is_training_an_untrained_network(tmp_path, monkeypatch):
    on = ground(tmp_path)
    retraining = prepared("from_scratch", on)
    with monkeypatch.context() as patched:
        patched.setattr(training, "train", lambda *_, **__: None)
        untrained, other = retraining.models_for(np.array([EVERYBODY] * 2), [8, 9])
    assert untrained.fingerprint not in (other.fingerprint, on.base.fingerprint)
    train(untrained, untrained.encode(on.contributions.images), TRAINING, seed=8)
    assert fingerprint(retraining, EVERYBODY, 8) == untrained.fingerprint


def test_from_scratch_owes_nothing_to_the_bases_weights(tmp_path):
    one, other = (prepared("from_scratch", ground(tmp_path, base_seed=seed)) for seed in (0, 1))
    assert one.weights == other.weights == ""
    assert fingerprints(one, ALL[[0, 3]], [1, 2]) == fingerprints(other, ALL[[0, 3]], [1, 2])


def test_making_models_leaves_the_base_as_it_was(tmp_path):
    on = ground(tmp_path)
    before = on.base.fingerprint
    retraining = prepared("fine_tune", on)
    assert retraining.weights == before
    assert fingerprint(retraining, EVERYBODY, 1) != before
    assert on.base.fingerprint == before


# Sparsified


@pytest.fixture(scope="module")
def sparse(tmp_path_factory) -> tuple[Path, RetrainingContext, Sparsified]:
    folder = tmp_path_factory.mktemp("sparse")
    on = ground(folder)
    return folder, on, prepared("sparsified", on)


def never(*_, **__):
    raise AssertionError("what was prepared is trained again")


def test_what_was_prepared_is_found_again(tmp_path, monkeypatch):
    reports = []
    first = prepared("sparsified", ground(tmp_path, progress=lambda *report: reports.append(report)))
    assert reports == [("recovering the pruned model", 1, 2), ("recovering the pruned model", 2, 2)]
    expected = fingerprint(first, EVERYBODY, 0)
    monkeypatch.setattr(kept, "train", never)
    again = prepared("sparsified", ground(tmp_path, progress=never))
    assert again.weights == first.weights
    assert fingerprint(again, EVERYBODY, 0) == expected
    # how coalitions are fine-tuned does not concern it
    other = Sparsified(steps=7, recover_steps=2, schedule="constant")
    other.prepare(ground(tmp_path))
    assert other.weights == first.weights


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({"recover_steps": 1}, {}),
        ({"recover_learning_rate": 5e-4}, {}),
        ({}, {"seed": 10}),
        ({}, {"base_seed": 1}),
    ],
)
def test_another_option_makes_another_sparse_model(options, changes, sparse):
    folder, _, first = sparse
    before = set(folder.iterdir())
    other = Sparsified(**{"recover_steps": 2, **options})
    other.prepare(ground(folder, **changes))
    assert other.weights != first.weights
    assert len(set(folder.iterdir()) - before) == 1


def test_the_sparse_model_is_a_recovered_share_of_the_base(sparse):
    folder, on, retraining = sparse
    model = next(retraining.models_for(np.array([EVERYBODY]), [0]))
    share = parameter_count(model.network) / parameter_count(on.base.network)
    assert share == pytest.approx(0.55, abs=0.1)
    (stored,) = [found for path in folder.iterdir() if (found := DDPM.load(path)).fingerprint == retraining.weights]
    # conv_out's biases are pruned of nothing: what changed them is the recovery
    assert not stored.network.conv_out.bias.equal(on.base.network.conv_out.bias)


# What it would cost


@pytest.mark.parametrize(
    ("options", "preparation", "coalition"),
    [
        ({"method": "from_scratch"}, None, 3),
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


def test_a_rehearsal_has_the_shapes_of_the_real_thing(sparse):
    _, on, retraining = sparse
    rehearsed = make("sparsified").rehearse(on.base.untrained(3), TRAINING, on.contributions).model
    real = next(retraining.models_for(np.array([EVERYBODY]), [0]))
    shapes = [[tensor.shape for tensor in model.network.state_dict().values()] for model in (rehearsed, real)]
    assert shapes[0] == shapes[1]


def test_study_files_say_how_sparse_the_start_is(tmp_path):
    options = {"steps": 2, "sparse": {"parameters": 0.4, "importance": "taylor", "recover_steps": 3}}
    soup = build("soup", options, RETRAININGS, where="retraining", beside=tmp_path)
    assert soup.sparse == Sparsity(parameters=0.4, importance="taylor", recover_steps=3)
    with pytest.raises(UserError, match=r"retraining\.sparse\.recover: unknown; accepted: parameters, "):
        build("soup", {"sparse": {"recover": 3}}, RETRAININGS, where="retraining", beside=tmp_path)
