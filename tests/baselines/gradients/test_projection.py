import math

import numpy as np
import pytest
import torch

from diffcredit.baselines.gradients.rows import SIGNS_AT_ONCE, project, sign_seeds, signs, splitmix64
from diffcredit.util.seeds import derive_seed


def block(dimensions, seed, first, blocks, device="cpu"):
    return signs(sign_seeds(dimensions, seed, device), first, blocks)


def whole_numbers(rows, parameters, seed=0):
    """Sums of few small whole numbers are exact in float32, whatever the order."""
    return torch.randint(-8, 9, (rows, parameters), generator=torch.Generator().manual_seed(seed)).float()


def by_hand(seed, count):
    """SplitMix64 as Steele, Lea and Flood (2014) print it, with Python's integers."""
    numbers, mask = [], 2**64 - 1
    for _ in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        numbers.append(z ^ (z >> 31))
    return numbers


def test_the_hash_is_splitmix64():
    # the sequence that implementations in other languages are compared with
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert by_hand(1234567, 5) == known
    assert [number % 2**64 for number in splitmix64(torch.tensor(1234567), 0, 5).tolist()] == known
    for seed in (0, 1, -1, -(2**63), 2**63 - 1):
        found = splitmix64(torch.tensor(seed), 3, 40).tolist()
        assert [number % 2**64 for number in found] == by_hand(seed % 2**64, 43)[3:]


def test_signs_are_those_of_the_hash_bits_one_by_one():
    found = block(5, 9, 2, 2)
    assert found.shape == (5, 128)
    columns = by_hand(derive_seed("projection", 9), 5)
    for column in range(5):
        words = by_hand(columns[column], 4)[2:]
        bits = [2 * (word >> i & 1) - 1 for word in words for i in range(64)]
        assert found[column].tolist() == bits
    assert block(5, 9, 0, 4)[:, 128:].equal(found)  # by place, not by call
    assert block(3, 9, 2, 2).equal(found[:3])


@pytest.mark.parametrize("parameters", [64, 100, 1000])
def test_the_projection_is_the_product_with_the_signs(parameters):
    gradients = whole_numbers(3, parameters)
    every = block(50, 4, 0, math.ceil(parameters / 64)).numpy()[:, :parameters]
    expected = gradients.numpy().astype(np.float64) @ every.astype(np.float64).T / math.sqrt(50)
    np.testing.assert_allclose(project(gradients, 50, 4).numpy(), expected, rtol=1e-6)


def test_the_same_bit_for_bit_in_blocks_of_any_size_and_with_any_other_rows(monkeypatch):
    gradients = whole_numbers(5, 1000)
    whole = project(gradients, 70, 1)
    for place in range(5):
        assert project(gradients[[place]], 70, 1).equal(whole[[place]])
    assert not project(gradients, 70, 2).equal(whole)
    for signs_at_once in (1, 64 * 70 * 3, 10**6):
        monkeypatch.setitem(SIGNS_AT_ONCE, "cpu", signs_at_once)
        assert project(gradients, 70, 1).equal(whole)


def test_inner_products_are_unbiased_with_the_variance_of_theory():
    """Of ⟨xR, yR⟩/k over 500 seeds; the mean and the variance within 5 standard errors."""
    x, y = torch.randn(2, 40, generator=torch.Generator().manual_seed(0)).double()
    y = y + 0.5 * x
    k, seeds = 16, 500
    rows = torch.stack([project(torch.stack([x, y]), k, seed) for seed in range(seeds)]).double()
    products = (rows[:, 0] * rows[:, 1]).sum(1)
    variance = float(x.square().sum() * y.square().sum() + (x @ y) ** 2 - 2 * (x.square() * y.square()).sum()) / k
    assert abs(products.mean() - x @ y) < 5 * math.sqrt(variance / seeds)
    # the kurtosis of a sum of 16 is near a normal one's, so that a variance has a relative error of √(2/seeds)
    assert abs(products.var() / variance - 1) < 5 * math.sqrt(3 / seeds)


def test_signs_are_fair_and_columns_parameters_and_seeds_are_independent():
    every = block(256, 0, 0, 16)  # 256 columns, 1,024 parameters
    assert abs(every.mean()) < 5 / math.sqrt(every.numel())
    for gram, count in ((every @ every.T, 1024), (every.T @ every, 256)):
        correlations = gram[~torch.eye(len(gram), dtype=torch.bool)] / count
        assert correlations.abs().max() < math.sqrt(2 * math.log(1e3 * len(correlations)) / count)
        assert abs(correlations.square().mean() * count - 1) < 0.05
    assert abs((every * block(256, 1, 0, 16)).mean()) < 5 / math.sqrt(every.numel())


@pytest.mark.gpu
def test_a_gpu_makes_the_same_signs_bit_for_bit_and_the_same_rows():
    assert block(300, 5, 7, 100, "cuda").cpu().equal(block(300, 5, 7, 100))
    gradients = whole_numbers(5, 40_000)
    on_cpu = project(gradients, 512, 3)
    assert SIGNS_AT_ONCE["cuda"] != SIGNS_AT_ONCE["cpu"]  # other blocks
    torch.testing.assert_close(project(gradients.cuda(), 512, 3).cpu(), on_cpu, rtol=1e-6, atol=1e-4)
