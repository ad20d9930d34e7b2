import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import DDIMPipeline, DDIMScheduler
from safetensors.torch import load_file, save_file

from diffcredit.diffusion import Sampling, networks
from diffcredit.diffusion.ddpm import DDPM, SCHEDULE
from diffcredit.diffusion.presets import PRESETS
from diffcredit.errors import DiffcreditError, UserError
from diffcredit.retraining.pruning import prune

from . import tiny


@pytest.fixture(scope="module")
def model() -> DDPM:
    """A network whose outputs depend on its inputs everywhere, as a trained one's do."""
    return tiny.model(seed=3)


@pytest.fixture(scope="module")
def pruned(model: DDPM) -> DDPM:
    return DDPM(prune(model.network, 0.5, model.example()), model.config)


def test_ddpm_cifar_has_the_parameters_of_ho_et_al():
    # 35.7 M in the paper; google/ddpm-cifar10-32 has exactly 35,746,307
    config = {"sample_size": 32, "in_channels": 3, "out_channels": 3, **PRESETS["ddpm-cifar"]}
    with torch.device("meta"):
        network = networks.UNet2DModel(**config)
    assert networks.parameter_count(network) == 35_746_307


@pytest.mark.parametrize(("preset", "millions"), [("tiny", 0.3), ("small", 9.0)])
def test_presets_have_the_size_they_state(preset, millions):
    with torch.device("meta"):
        network = networks.UNet2DModel(sample_size=32, **PRESETS[preset])
    assert networks.parameter_count(network) / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize("steps", [7, 10])
def test_samples_are_those_of_diffusers_own_pipeline(model, steps):
    seeds = [0, 5, 17]
    scheduler = DDIMScheduler(**SCHEDULE, clip_sample=True)
    pipeline = DDIMPipeline(model.network, scheduler)
    pipeline.set_progress_bar_config(disable=True)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    theirs = pipeline(
        len(seeds), generator=generators, eta=0.0, num_inference_steps=steps, use_clipped_model_output=False
    )
    ours = model.sample(seeds, steps)
    assert ours.dtype == np.uint8
    assert ours.shape == (3, tiny.SIDE, tiny.SIDE, 3)
    assert ours.std() > 10, "images that are all alike would agree with anything"
    difference = np.abs(ours.astype(int) - np.stack([np.asarray(image) for image in theirs.images]).astype(int))
    assert difference.max() <= 1


def test_an_image_depends_on_its_seed_alone(model):
    seeds = list(range(9))
    together = model.sample(seeds, 5)
    for batch_size in (1, 2, 4):
        # a convolution may sum in another order for another batch, hence a rounding here and there
        assert _nearly_equal(model.sample(seeds, 5, batch_size), together)
    assert _nearly_equal(model.sample([8, 3], 5), together[[8, 3]])
    assert not _nearly_equal(together[:1], together[1:2])


def _nearly_equal(one, other) -> bool:
    difference = np.abs(one.astype(int) - other.astype(int))
    return bool(difference.max() <= 1 and (difference > 0).mean() < 0.01)


@pytest.mark.parametrize("batch_size", [1, 3, 5])
def test_initial_noises_are_bitwise_those_of_their_seeds(model, monkeypatch, batch_size):
    seen = []
    monkeypatch.setattr(
        DDPM, "predict", lambda self, x, t, condition=None: seen.append(x.clone()) or torch.zeros_like(x)
    )
    model.sample(range(5), 1, batch_size)
    for seed, noise in enumerate(torch.cat(seen)):
        assert noise.equal(torch.randn(3, tiny.SIDE, tiny.SIDE, generator=torch.Generator().manual_seed(seed)))


def test_sampling_does_not_touch_torchs_own_random_numbers(model):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    model.sample([0], 2)
    model.untrained(5)
    assert torch.rand(3).equal(expected)


def test_images_that_are_no_numbers_are_refused(model):
    broken = model.clone()
    with torch.no_grad():
        next(broken.network.parameters()).fill_(math.nan)
    with pytest.raises(DiffcreditError, match="not finite"):
        broken.sample([0], 2)


def test_encode(model):
    pictures = tiny.images(3)
    pictures[0, 0, 0] = [0, 255, 51]
    batch = model.encode(pictures)
    expected = pictures.transpose(0, 3, 1, 2).astype(np.float64) / 127.5 - 1
    np.testing.assert_allclose(batch.x.numpy(), expected, atol=1e-6)
    np.testing.assert_allclose(batch.flipped.numpy(), expected[..., ::-1], atol=1e-6)
    assert batch.x[0, :, 0, 0].tolist() == pytest.approx([-1, 1, -0.6])
    assert batch.rows.tolist() == [0, 1, 2]
    assert batch.condition is None


def test_loss_is_the_closed_form(model):
    data, t = model.encode(tiny.images(4)), np.array([0, 1, 499, 999])
    noise = torch.randn(data.x.shape, generator=torch.Generator().manual_seed(2))
    alpha_bar = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000))[t][:, None, None, None]
    x_t = np.sqrt(alpha_bar) * data.x.numpy() + np.sqrt(1 - alpha_bar) * noise.numpy()
    with torch.no_grad():
        predicted = model.network(torch.from_numpy(x_t).float(), torch.from_numpy(t)).sample.double().numpy()
        losses = model.loss(data, torch.from_numpy(t), noise)
    expected = ((predicted - noise.numpy()) ** 2).reshape(4, -1).mean(axis=1)
    np.testing.assert_allclose(losses.numpy(), expected, rtol=1e-4)


@pytest.mark.parametrize("which", ["model", "pruned"])
def test_a_model_that_was_kept_is_bitwise_the_same(which, request, tmp_path: Path):
    model: DDPM = request.getfixturevalue(which)
    model.save(tmp_path)
    again = DDPM.load(tmp_path)
    assert tiny.same(tiny.weights(again), tiny.weights(model))
    assert again.fingerprint == model.fingerprint
    np.testing.assert_array_equal(again.sample([1, 2], 3), model.sample([1, 2], 3))
    # and it can be trained on
    data = again.encode(tiny.images(2))
    again.loss(data, torch.tensor([3, 600]), torch.ones_like(data.x)).mean().backward()
    assert all(parameter.grad is not None for parameter in again.network.parameters())


def test_fingerprint_tells_weights_and_architectures_apart(model, pruned):
    other = model.clone()
    assert other.fingerprint == model.fingerprint
    with torch.no_grad():
        next(other.network.parameters())[0, 0, 0, 0] += 1e-6
    prints = {model.fingerprint, other.fingerprint, pruned.fingerprint, tiny.model(4).fingerprint}
    assert len(prints) == 4


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
    [({"family": "latent"}, "family 'latent'; accepted: 'ddpm'"), ({"schedule": {"beta_end": 0.1}}, "schedule .*0.1")],
)
def test_another_family_or_schedule_is_refused(model, tmp_path, change, message):
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


def test_a_resolution_that_does_not_fit_is_refused():
    with pytest.raises(UserError, match=r"resolution: 30 .*halves it 2 times; accepted: multiples of 4"):
        DDPM.create("tiny", 30, 0)
    with pytest.raises(UserError, match="multiples of 8"):
        DDPM.create("ddpm-cifar", 36, 0)


def test_an_unknown_preset_lists_the_choices():
    with pytest.raises(UserError, match="'huge' is unknown; accepted: tiny, small, ddpm-cifar"):
        DDPM.create("huge", 32, 0)


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


def test_a_study_may_not_ask_for_more_sampling_than_time_steps():
    from pydantic import TypeAdapter, ValidationError

    assert TypeAdapter(Sampling).validate_python({"steps": 1000}).steps == 1000
    with pytest.raises(ValidationError, match="1000"):
        TypeAdapter(Sampling).validate_python({"steps": 1001})
    assert list(Sampling(images=3, seed=5).seeds) == [5, 6, 7]
