"""What models follow: labels by name, dropped conditions, guidance, and trainings that go on where they stopped."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from diffcredit.diffusion.captions import mixed
from diffcredit.diffusion.conditions import NOTHING, ClassLabels
from diffcredit.diffusion.counter_rng import normals
from diffcredit.diffusion.ddpm import GUIDANCE
from diffcredit.diffusion.diffusers_model import initial_noise
from diffcredit.diffusion.draws import draw, noise_key, plan
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.training import train

from . import tiny
from .ways import LABELS, NUMBERS, WAYS, Ways, given, relabelled

FOLLOWING = [name for name, way in WAYS.items() if way.texts is not None]
LABELLED = [name for name, way in WAYS.items() if way.texts in (LABELS, NUMBERS)]
DROPPING = ["dit flow labels", "unet labels", "latent mmdit captions", "pretrained dit", "pretrained unet"]
STEPS = Training(steps=6, batch_size=4, learning_rate=1e-3, ema=0.9)


# -- labels and captions


@pytest.mark.parametrize("name", LABELLED)
def test_labels_are_classes_by_their_names(ways: Ways, name: str) -> None:
    model, contributions = ways.start(name), given(name)
    names = model.conditioner.names
    # of a network of ours in the order of the alphabet, else as the network has them
    expected = WAYS[name].texts if "pretrained" in name or "lora" in name else sorted(LABELS)
    assert list(names) == list(expected)
    batch = model.encode(contributions.images, contributions.captions)
    assert [names[place] for place in batch.condition["class_labels"]] == list(contributions.captions)
    assert model.conditioner.embed([NOTHING], 16)["class_labels"].tolist() == [len(names)]
    # the network has a class for each, and the last for no label
    tables = [each for each in model.network.modules() if isinstance(each, torch.nn.Embedding)]
    assert {len(each.weight) for each in tables} == {len(names) + 1}


@pytest.mark.parametrize("name", ["dit flow labels", "unet labels", "latent dit labels"])
def test_another_label_is_another_architecture(ways: Ways, name: str) -> None:
    contributions = given(name)
    model = ways.family(name).start(relabelled(contributions, ("violet", *contributions.captions[1:])), 0)
    assert model.conditioner.names == ("blue", "green", "red", "violet")
    assert model.fingerprint != ways.family(name).start(contributions, 0).fingerprint


@pytest.mark.parametrize("name", FOLLOWING)
def test_images_follow_the_texts_in_one_mixed_order(ways: Ways, name: str) -> None:
    model, contributions = ways.start(name), given(name)
    order = mixed(WAYS[name].texts)
    assert list(model.prompts) == order
    # which neither the images' order nor how often a text is there changes
    others = (*contributions.captions[:0:-1], contributions.captions[0])
    assert list(ways.family(name).start(relabelled(contributions, others), 0).prompts) == order
    # the image of seed s is that of prompt s mod k, made alone
    seeds = [4, 2, 3]
    together = model.sample(seeds, 2)
    for place, seed in enumerate(seeds):
        alone = model.sample([seed], 2, prompts=[order[seed % 3]])
        assert tiny.nearly_equal(alone[0], together[place])
    assert not tiny.nearly_equal(model.sample([4], 2, prompts=[order[0]])[0], together[0])


def test_other_texts_do_not_change_the_order_of_those_that_are_there() -> None:
    letters = [f"text {place}" for place in range(12)]
    all_of_them = mixed(letters)
    assert sorted(all_of_them) == sorted(letters)
    assert all_of_them not in (letters, sorted(letters))
    assert mixed(letters[::-2]) == [each for each in all_of_them if each in letters[::-2]]


def test_the_label_of_no_image_is_refused() -> None:
    labels = ClassLabels(("red", "blue"))
    tiny.refused("the label 'green' is unknown; the model's 2 classes: red, blue$", labels.place, "green")
    many = ClassLabels([str(place) for place in range(20)])
    tiny.refused("20 classes: 0, 1, 2, 3, 4, 5, 6, 7, …$", many.place, "x")


def test_a_unet_without_a_class_of_no_label_takes_all_its_labels(ways: Ways) -> None:
    """Where no condition is dropped, none is needed."""
    family = dataclasses.replace(ways.family("pretrained unet"), condition_dropout=0.0)
    contributions = given("pretrained unet")
    model = family.start(relabelled(contributions, ("3", *contributions.captions[1:])), 0)
    assert model.conditioner.names == ("0", "1", "2", "3")
    assert model.guidance == 1.0
    assert model.encode(contributions.images[:1], ["3"]).condition["class_labels"].tolist() == [3]
    assert model.sample([0, 1], 2).shape == (2, 16, 16, 3)


# -- conditions that are left out


def test_the_share_of_dropped_conditions() -> None:
    rows, settings = torch.arange(100), Training(steps=500, batch_size=64)
    for share in (0.1, 0.35):
        dropped = plan(rows, settings, 3, 1000, dropout=share).dropped
        assert dropped.shape == (500, 64)
        count = dropped.numel()
        assert abs(float(dropped.float().mean()) - share) < 5 * (share * (1 - share) / count) ** 0.5
    assert plan(rows, settings, 3, 1000).dropped is None


def test_which_are_dropped_follows_from_seed_and_step_alone() -> None:
    settings, longer = Training(steps=8, batch_size=16), Training(steps=20, batch_size=16)
    coalition, all_images = torch.tensor([1, 5, 7]), torch.arange(50)
    dropped = plan(coalition, settings, 3, 1000, dropout=0.3).dropped
    # of other images, of a longer training, from its middle on
    assert dropped.equal(plan(all_images, settings, 3, 1000, dropout=0.3).dropped)
    assert dropped.equal(plan(all_images, longer, 3, 1000, dropout=0.3).dropped[:8])
    assert dropped[5:].equal(plan(all_images, longer, 3, 1000, range(5, 8), dropout=0.3).dropped)
    assert not dropped.equal(plan(all_images, settings, 4, 1000, dropout=0.3).dropped)
    assert len({tuple(row.tolist()) for row in dropped}) == 8  # each step its own
    # more dropout drops more, and nothing else changes
    more, none = plan(coalition, settings, 3, 1000, dropout=0.6), plan(coalition, settings, 3, 1000)
    assert bool((more.dropped | ~dropped).all())
    for key in ("places", "flip", "t", "keys"):
        assert getattr(more, key).equal(getattr(none, key))


@pytest.mark.parametrize("name", DROPPING)
def test_a_dropped_condition_is_that_of_nothing(ways: Ways, name: str) -> None:
    """As if those images had had no text."""
    model, contributions = ways.start(name), given(name)
    assert model.condition_dropout == 0.1
    model.condition_dropout = 0.5
    data = model.encode(contributions.images, contributions.captions)
    nothing = model.conditioner.embed([NOTHING], model.pixels)
    settings, seen = Training(steps=4, batch_size=8), []
    for step in range(4):
        batch, _, _ = draw(data, step, settings, 3, 1000, dropout=0.5)
        drawn = plan(data.rows, settings, 3, 1000, range(step, step + 1), dropout=0.5)
        texts = [contributions.captions[place] for place in drawn.places[0]]
        replaced = [NOTHING if out else text for text, out in zip(texts, drawn.dropped[0], strict=True)]
        expected = model.conditioner.embed(replaced, model.pixels)
        assert all(each.equal(batch.condition[key]) for key, each in expected.items())
        seen += drawn.dropped[0].tolist()
    assert {*seen} == {True, False}
    own = model.conditioner.embed(list(WAYS[name].texts), model.pixels)
    assert not any((each == nothing[key]).reshape(3, -1).all(1).any() for key, each in own.items())


@pytest.mark.parametrize("name", ["dit flow labels", "unet labels"])
def test_a_training_by_hand(ways: Ways, name: str) -> None:
    """Labels replaced by brute force, the loss by its formula, plain steps of torch."""
    model, contributions = ways.start(name), given(name)
    model.condition_dropout = 0.5
    expected = model.clone()
    settings = Training(steps=6, batch_size=4, learning_rate=0.05, optimizer="sgd", flip=False, gradient_clip=None)
    train(model, model.encode(contributions.images, contributions.captions), settings, seed=3)

    images = torch.from_numpy(contributions.images).permute(0, 3, 1, 2).float() / 127.5 - 1
    label_of = [sorted(LABELS).index(text) for text in contributions.captions]
    drawn = plan(torch.arange(10), settings, 3, 1000, dropout=0.5)
    network = expected.network.train()
    optimizer = torch.optim.SGD(network.parameters(), lr=settings.learning_rate)
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
    for step in range(settings.steps):
        places, t = drawn.places[step].tolist(), drawn.t[step]
        labels = torch.tensor(
            [3 if out else label_of[place] for place, out in zip(places, drawn.dropped[step].tolist(), strict=True)]
        )
        x = images[places]
        noise = normals(noise_key(3, step), x.numel()).reshape(x.shape)
        if "flow" in name:
            sigma = torch.sigmoid(torch.special.ndtri((t.double() + 0.5) / 1000)).float()
            at = (1 - sigma[:, None, None, None]) * x + sigma[:, None, None, None] * noise
            found, wanted = network(at, timestep=1000 * sigma, class_labels=labels).sample, noise - x
        else:
            root = alphas[t][:, None, None, None]
            found, wanted = network(root.sqrt() * x + (1 - root).sqrt() * noise, t, class_labels=labels).sample, noise
        optimizer.zero_grad()
        ((found - wanted) ** 2).mean().backward()
        optimizer.step()
    network.eval()
    start, ours, by_hand = (tiny.weights(each) for each in (ways.start(name), model, expected))
    for key, weight in ours.items():
        torch.testing.assert_close(weight, by_hand[key], rtol=0, atol=2e-6)
    assert max(float((weight - start[key]).abs().max()) for key, weight in ours.items()) > 1e-3


# -- guidance


@pytest.mark.parametrize("name", FOLLOWING)
def test_guidance_by_hand(ways: Ways, name: str) -> None:
    """Two predictions, one without the condition, and the formula."""
    model, order = ways.start(name), mixed(WAYS[name].texts)
    x, scale = initial_noise(model.shape, [5, 6]), 3.0
    time = model.objective.sampler("ddim", 4).times[1].expand(2)
    guide = model.guide([5, 6], scale)
    texts = [order[5 % 3], order[6 % 3]]
    with torch.no_grad():
        following, nothing = (
            model.call(x, time, model.conditioner.embed(each, model.pixels)) for each in (texts, [NOTHING] * 2)
        )
        guided = model.guided(x, time, guide)
        if name == "lora flux":  # is told the guidance instead
            told = model.call(x, time, model.conditioner.embed(texts, model.pixels), scale)
            assert guided.equal(told)
            assert not torch.allclose(told, following, atol=1e-4)
            return
        if name == "lora z_image":  # counts from 0
            expected = following + scale * (following - nothing)
        elif name == "lora qwen":
            expected = model.denoiser.guide(nothing, following, scale)  # keeps the norm; see its own tests
        else:
            expected = nothing + scale * (following - nothing)
        unguided = model.guided(x, time, model.guide([5, 6], model.denoiser.unguided))
    torch.testing.assert_close(guided, expected, rtol=0, atol=2e-4 * float(expected.abs().max()))
    torch.testing.assert_close(unguided, following, rtol=0, atol=2e-4 * float(expected.abs().max()))
    assert not torch.allclose(guided, following, atol=1e-3 * float(expected.abs().max()))


def test_models_without_dropped_conditions_are_not_guided_by_default(ways: Ways) -> None:
    family = ways.family("dit flow labels")
    assert family.start(given("dit flow labels"), 0).guidance == GUIDANCE
    without = dataclasses.replace(family, condition_dropout=0.0).start(given("dit flow labels"), 0)
    assert without.guidance == 1.0
    assert without.guide([0, 1], None).nothing is None


# -- held-out losses, untrained copies, interrupted trainings


@pytest.mark.parametrize("name", WAYS)
def test_the_loss_is_the_closed_form(ways: Ways, name: str) -> None:
    model, contributions = ways.start(name), given(name)
    batch = model.encode(contributions.images[:3], contributions.captions and contributions.captions[:3])
    t, noise = torch.tensor([10, 400, 950]), initial_noise(model.shape, [1, 2, 3])
    with torch.no_grad():
        found = model.loss(batch, t, noise)
        level = model.objective.times(t)
        if model.objective.prediction == "flow":
            sigma = level[:, None, None, None]
            x_t, target = (1 - sigma) * batch.x + sigma * noise, noise - batch.x
        else:
            x_t, target = model.objective.add_noise(batch.x, noise, t), noise
        texts = contributions.captions and list(contributions.captions[:3])
        condition = None if texts is None else model.conditioner.embed(texts, model.pixels)
        prediction = model.denoiser.predict(model.network, x_t, level, condition)
        expected = ((prediction - target) ** 2).flatten(1).mean(1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)
    assert len({round(each, 4) for each in found.tolist()}) == 3


@pytest.mark.parametrize("name", WAYS)
def test_an_untrained_copy_keeps_nothing(ways: Ways, name: str) -> None:
    model = ways.start(name)
    with torch.no_grad():
        for parameter in model.network.parameters():
            if parameter.requires_grad:
                parameter.fill_(7.0)  # which no initialisation draws
    before, fresh, again = model.fingerprint, model.untrained(3), model.untrained(3)
    assert model.fingerprint == before
    assert fresh.fingerprint == again.fingerprint
    assert fresh.fingerprint != model.untrained(4).fingerprint
    for key, parameter in fresh.network.named_parameters():
        assert not parameter.requires_grad or not (parameter == 7.0).any(), key
    frozen = {key: each for key, each in model.network.named_parameters() if not each.requires_grad}
    assert all(fresh.network.get_parameter(key).equal(each) for key, each in frozen.items())


@pytest.mark.parametrize(
    "name", ["dit flow labels", "latent mmdit captions", "pretrained unet", "lora sd3", "lora dit"]
)
def test_an_interrupted_training_goes_on_bit_for_bit(ways: Ways, name: str, tmp_path: Path, monkeypatch) -> None:
    """With dropped conditions and averaged weights."""
    monkeypatch.setattr("diffcredit.diffusion.checkpoints.CHECKPOINT_SECONDS", 0)
    contributions, file = given(name), tmp_path / "checkpoint.safetensors"
    whole, cut = ways.start(name), ways.start(name)
    data = whole.encode(contributions.images, contributions.captions)
    train(whole, data, STEPS, seed=5)
    with pytest.raises(tiny.PowerCut):
        train(cut, data, STEPS, seed=5, checkpoint=file, on_step=tiny.cut_at(4))
    resumed, steps = ways.start(name), []
    train(resumed, data, STEPS, seed=5, checkpoint=file, on_step=lambda done, total: steps.append(done))
    assert steps[0] > 1
    assert resumed.fingerprint == whole.fingerprint
    assert resumed.fingerprint != ways.start(name).fingerprint


@pytest.mark.parametrize("name", WAYS)
def test_a_saved_model_is_the_same_model(ways: Ways, name: str, tmp_path: Path) -> None:
    model = ways.start(name)
    model.save(tmp_path)
    loaded = ways.family(name).load(tmp_path)
    assert loaded.fingerprint == model.fingerprint
    assert loaded.encoding == model.encoding
    assert tuple(loaded.prompts) == tuple(model.prompts)
    assert (loaded.condition_dropout, loaded.guidance) == (model.condition_dropout, model.guidance)
    assert loaded.objective.config == model.objective.config
    assert np.array_equal(loaded.sample([0, 1, 2], 2), model.sample([0, 1, 2], 2))
    assert {file.suffix for file in tmp_path.iterdir()} == {".json", ".safetensors"}
