"""What the pixel and the latent family share: models that are kept and found again, and the presets."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import UNet2DModel
from safetensors.torch import load_file, save_file

from diffcredit.diffusion import networks
from diffcredit.diffusion.conditions import ClassLabels
from diffcredit.diffusion.ddpm import DDPM, Following
from diffcredit.diffusion.objectives.noise_schedule import NoiseSchedule
from diffcredit.retraining.pruning import prune

from . import tiny, tiny_pipelines

SCHEDULE = {"num_train_timesteps": 200, "beta_schedule": "squaredcos_cap_v2", "prediction_type": "v_prediction"}


@pytest.fixture(scope="module")
def model() -> DDPM:
    return tiny.model(seed=3)


@pytest.fixture(scope="module")
def pruned(model: DDPM) -> DDPM:
    return DDPM(prune(model.network, 0.5, model.example()), model.config)


@pytest.fixture(scope="module")
def pruned_attention() -> DDPM:
    """Of another schedule too."""
    network = tiny_pipelines.unet(block_out_channels=(16, 32), attention_head_dim=16, size=tiny.SIDE)
    config = dict(network.config)
    whole = DDPM(network, config, NoiseSchedule(SCHEDULE))
    smaller = prune(network, 0.5, whole.example())
    assert networks.parameter_count(smaller) < 0.6 * networks.parameter_count(network)
    return DDPM(smaller, config, NoiseSchedule(SCHEDULE))


@pytest.mark.parametrize(
    ("preset", "channels", "size", "parameters"),
    [
        ("tiny", 3, 16, 0.3e6),
        ("small", 3, 32, 9.0e6),
        ("latent-small", 32, 32, 15.3e6),
        ("ddpm-cifar", 3, 32, 35_746_307),  # google/ddpm-cifar10-32
        ("ldm-celebahq", 3, 64, 274_056_163),  # the U-Net of CompVis/ldm-celebahq-256
    ],
)
def test_presets_have_the_size_they_state(preset, channels, size, parameters):
    with torch.device("meta"):
        network = UNet2DModel(**networks.preset_config(preset, channels, size, resolution=size))
    near = 0 if isinstance(parameters, int) else 0.05e6
    assert networks.parameter_count(network) == pytest.approx(parameters, abs=near, rel=0)


@pytest.mark.parametrize("which", ["model", "pruned", "pruned_attention"])
def test_a_model_that_was_kept_is_bitwise_the_same(which, request, tmp_path: Path):
    model: DDPM = request.getfixturevalue(which)
    model.save(tmp_path)
    again = DDPM.load(tmp_path)
    assert tiny.same(tiny.weights(again), tiny.weights(model))
    assert again.fingerprint == model.fingerprint
    assert again.objective.config == model.objective.config
    np.testing.assert_array_equal(again.sample([1, 2], 3), model.sample([1, 2], 3))
    # and it can be trained on
    data = again.encode(tiny.images(2))
    again.loss(data, torch.tensor([3, 150]), torch.ones_like(data.x)).mean().backward()
    assert all(parameter.grad is not None for parameter in again.network.parameters())


def test_a_pruned_network_with_labels_is_kept_and_follows_them(tmp_path: Path):
    following = Following(ClassLabels(["cat", "dog"]), ("cat", "dog"), 0.0)
    whole = DDPM.create("tiny", tiny.SIDE, 3, following=following)
    pruned = DDPM(prune(whole.network, 0.5, whole.example()), whole.config, following=following)
    assert pruned.network.class_embedding.embedding_dim < whole.network.class_embedding.embedding_dim
    pruned.save(tmp_path)
    again = DDPM.load(tmp_path)
    images = pruned.sample([2, 2], 3, prompts=["cat"])
    np.testing.assert_array_equal(again.sample([2, 2], 3, prompts=["cat"]), images)
    assert not np.array_equal(again.sample([2, 2], 3, prompts=["dog"]), images)
    assert again.network.class_embedding.embedding_dim == pruned.network.class_embedding.embedding_dim


def test_fingerprint_tells_weights_architectures_and_schedules_apart(model, pruned):
    other = model.clone()
    assert other.fingerprint == model.fingerprint
    with torch.no_grad():
        next(other.network.parameters())[0, 0, 0, 0] += 1e-6
    scheduled = DDPM(model.network, model.config, NoiseSchedule(SCHEDULE))
    models = (model, other, pruned, scheduled, tiny.model(4))
    assert len({one.fingerprint for one in models}) == 5


def test_what_is_no_saved_model_is_named(model, tmp_path):
    config, weights = tmp_path / "config.json", tmp_path / "model.safetensors"

    def refused(message: str) -> None:
        tiny.refused(message, DDPM.load, tmp_path)
        model.save(tmp_path)

    model.save(tmp_path)
    for file in (config, weights):
        file.unlink()
        refused(rf"{file.name}: no such file")
    for keep in (0, 4, -100):
        weights.write_bytes(weights.read_bytes()[:keep])
        refused(r"model\.safetensors: the saved weights are corrupt")
    for text, message in (
        ("", "cannot be read"),
        ("[]", "list; a JSON object is expected"),
        ('{"family": "ddpm"}', "not the description of a saved model; 'schedule' is missing"),
        ("\xff", "cannot be read"),
    ):
        config.write_text(text, encoding="latin-1")
        refused(rf"config\.json: {message}")
    for change, message in (
        ({"family": "latent"}, "family 'latent'; accepted: 'ddpm'"),
        ({"schedule": 3}, "not the description"),
        ({"network": {"wings": 2}}, "not the description.*wings"),
    ):
        config.write_text(json.dumps(json.loads(config.read_text()) | change))
        refused(rf"config\.json: {message}")
    tensors, wider = load_file(weights), {**model.config, "block_out_channels": (32, 64, 64)}
    for other, message in (
        ({name: tensor for name, tensor in tensors.items() if name != "conv_out.bias"}, "1 tensors .*'conv_out.bias'"),
        (tensors | {"conv_out.bias": torch.zeros(3, 1)}, r"'conv_out.bias' has the shape \(3, 1\)"),
        (networks.build(wider, 0).state_dict(), "has the shape .* at most"),
    ):
        save_file(other, weights)
        refused(rf"model\.safetensors: .*{message}")


@pytest.mark.parametrize("which", ["model", "pruned"])
def test_untrained(which, request):
    model: DDPM = request.getfixturevalue(which)
    before = tiny.weights(model)
    one, again, other = (tiny.weights(model.untrained(seed)) for seed in (1, 1, 2))
    assert tiny.same(tiny.weights(model), before)
    assert tiny.same(one, again)
    assert {name: tensor.shape for name, tensor in one.items()} == {n: tensor.shape for n, tensor in before.items()}
    for name, tensor in one.items():
        # constant on construction: the norms; random: the rest
        assert tensor.equal(other[name]) == ("norm" in name)
        assert not (tensor.equal(before[name]) and "norm" not in name)


def test_untrained_weights_are_distributed_as_on_construction():
    # torch draws a layer's weights from U(−b, b) with b = 1/√(inputs of an output)
    model = tiny.model(0)
    fresh = tiny.model(1).untrained(7)
    for one, other in zip(model.network.modules(), fresh.network.modules(), strict=True):
        if isinstance(one, torch.nn.Conv2d | torch.nn.Linear):
            bound = 1 / math.sqrt(one.weight[0].numel())
            for layer in (one, other):
                assert layer.weight.abs().max() <= bound
                assert layer.bias.abs().max() <= bound
                assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)
        elif isinstance(one, torch.nn.GroupNorm):
            assert (other.weight == 1).all()
            assert (other.bias == 0).all()


def test_what_is_never_trained_stays_so(tmp_path):
    """The fixed frequencies of a Fourier time embedding."""
    network = tiny_pipelines.unet(time_embedding_type="fourier")
    fixed = {name for name, parameter in network.named_parameters() if not parameter.requires_grad}
    assert fixed == {"time_proj.weight"}
    DDPM(network, dict(network.config)).save(tmp_path)
    loaded = DDPM.load(tmp_path).network
    assert {name for name, parameter in loaded.named_parameters() if not parameter.requires_grad} == fixed
