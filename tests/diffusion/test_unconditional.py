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
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.networks import PRESETS
from diffcredit.diffusion.noise_schedule import NoiseSchedule
from diffcredit.errors import UserError
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
    config = {key: value for key, value in network.config.items() if not key.startswith("_")}
    whole = DDPM(network, config, NoiseSchedule(SCHEDULE))
    smaller = prune(network, 0.5, whole.example())
    assert networks.parameter_count(smaller) < 0.6 * networks.parameter_count(network)
    return DDPM(smaller, config, NoiseSchedule(SCHEDULE))


@pytest.mark.parametrize(
    ("preset", "channels", "size", "parameters"),
    [
        ("ddpm-cifar", 3, 32, 35_746_307),  # google/ddpm-cifar10-32
        ("ldm-celebahq", 3, 64, 274_056_163),  # the U-Net of CompVis/ldm-celebahq-256
    ],
)
def test_presets_have_the_parameters_of_the_published_models(preset, channels, size, parameters):
    config = {"sample_size": size, "in_channels": channels, "out_channels": channels, **PRESETS[preset]}
    with torch.device("meta"):
        network = UNet2DModel(**config)
    assert networks.parameter_count(network) == parameters


@pytest.mark.parametrize(
    ("preset", "channels", "millions"), [("tiny", 3, 0.3), ("small", 3, 9.0), ("latent-small", 32, 15.3)]
)
def test_presets_have_the_size_they_state(preset, channels, millions):
    with torch.device("meta"):
        network = UNet2DModel(sample_size=32, in_channels=channels, out_channels=channels, **PRESETS[preset])
    assert networks.parameter_count(network) / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize("which", ["model", "pruned", "pruned_attention"])
def test_a_model_that_was_kept_is_bitwise_the_same(which, request, tmp_path: Path):
    model: DDPM = request.getfixturevalue(which)
    model.save(tmp_path)
    again = DDPM.load(tmp_path)
    assert tiny.same(tiny.weights(again), tiny.weights(model))
    assert again.fingerprint == model.fingerprint
    assert again.noise_schedule.config == model.noise_schedule.config
    np.testing.assert_array_equal(again.sample([1, 2], 3), model.sample([1, 2], 3))
    # and it can be trained on
    data = again.encode(tiny.images(2))
    again.loss(data, torch.tensor([3, 150]), torch.ones_like(data.x)).mean().backward()
    assert all(parameter.grad is not None for parameter in again.network.parameters())


def test_fingerprint_tells_weights_architectures_and_schedules_apart(model, pruned):
    other = model.clone()
    assert other.fingerprint == model.fingerprint
    with torch.no_grad():
        next(other.network.parameters())[0, 0, 0, 0] += 1e-6
    scheduled = DDPM(model.network, model.config, NoiseSchedule(SCHEDULE))
    models = (model, other, pruned, scheduled, tiny.model(4))
    assert len({one.fingerprint for one in models}) == 5


def test_a_clone_stands_on_its_own(model):
    before = tiny.weights(model)
    clone = model.clone()
    with torch.no_grad():
        for parameter in clone.network.parameters():
            parameter.zero_()
    assert tiny.same(tiny.weights(model), before)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(model, tmp_path, file):
    model.save(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(UserError, match=file):
        DDPM.load(tmp_path)


@pytest.mark.parametrize("keep", [0, 4, 100, -100])
def test_corrupt_weights_are_named(model, tmp_path, keep):
    model.save(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"model\.safetensors: the saved weights are corrupt"):
        DDPM.load(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", '{"family": "ddpm"}', "\xff"])
def test_a_corrupt_description_is_named(model, tmp_path, text):
    model.save(tmp_path)
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=r"config\.json: not the description"):
        DDPM.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": "latent"}, "family 'latent'; accepted: 'ddpm'"),
        ({"schedule": 3}, "not the description"),
        ({"network": {"wings": 2}}, "not the description.*wings"),
    ],
)
def test_another_family_or_description_is_refused(model, tmp_path, change, message):
    model.save(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UserError, match=rf"config\.json: {message}"):
        DDPM.load(tmp_path)


def test_weights_of_another_architecture_are_refused(model, tmp_path):
    model.save(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)

    save_file({name: tensor for name, tensor in tensors.items() if name != "conv_out.bias"}, file)
    with pytest.raises(UserError, match=r"model\.safetensors: .*1 tensors .*'conv_out\.bias'"):
        DDPM.load(tmp_path)

    save_file(tensors | {"conv_out.bias": torch.zeros(3, 1)}, file)
    with pytest.raises(UserError, match=r"model\.safetensors: .*rank"):
        DDPM.load(tmp_path)

    wider = {**model.config, "block_out_channels": (32, 64, 64)}
    save_file(networks.build(wider, 0).state_dict(), file)
    with pytest.raises(UserError, match=r"model\.safetensors: .*has the shape .* at most"):
        DDPM.load(tmp_path)


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
