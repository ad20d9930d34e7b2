from torch import nn

from diffcredit.diffusion import Training
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.fast import eligibility as sizes
from diffcredit.diffusion.fast.eligibility import fleet_size, training_bytes


def test_memory_of_a_training_by_hand():
    """22 bytes a weight, and in bf16 what every convolution and linear layer sees and makes, for each image."""
    model = DDPM.create("tiny", 8, 0)
    weights = sum(weight.numel() for weight in model.network.parameters())
    one, two = training_bytes(model, 1), training_bytes(model, 2)
    assert training_bytes(model, 10) - one == 9 * (two - one)
    assert 2 * one - two == 22 * weights
    # conv_in: 3 · 8² numbers in and 16 · 8² out; conv_out the other way round; and much between them
    assert two - one > 2 * 2 * (3 + 16) * 64


def test_larger_models_need_more():
    mini, light = (training_bytes(DDPM.create(preset, 32, 0), 64) for preset in ("mini", "light"))
    # 16 fleets of mini took 3.6 GiB on a GPU, 8 of light 4.1 GiB
    assert 0.8 < 16 * mini / (3.6 * 2**30) < 1.25
    assert 0.8 < 8 * light / (4.1 * 2**30) < 1.25


def test_no_fleet_without_a_gpu():
    assert fleet_size(DDPM.create("tiny", 8, 0), Training(steps=1)) == 1


def test_by_weights_and_by_memory(monkeypatch):
    free = [1e12]
    monkeypatch.setattr(sizes, "trains_fast", lambda *_: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (free[0], 1e12))
    settings = Training(steps=1, batch_size=64)
    mini, light, small = (DDPM.create(preset, 32, 0) for preset in ("mini", "light", "small"))
    assert [fleet_size(model, settings) for model in (mini, light, small)] == [16, 8, 1]
    free[0] = 5.5 * training_bytes(mini, 64) / sizes.SHARE
    assert fleet_size(mini, settings) == 5
    free[0] = 0.0
    assert fleet_size(mini, settings) == 1
    mini.network.down_blocks[0].resnets[0].dropout = nn.Dropout2d(0.1)
    free[0] = 1e12
    assert fleet_size(mini, settings) == 1
