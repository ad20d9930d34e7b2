"""Numbers by counting, against other people's and against what they are to be distributed like."""

import numpy as np
import torch
from scipy import stats

from diffcredit.diffusion.counter_rng import normal_counters, normals, normals_of, quantiles, words


def splitmix64(seed: int, count: int) -> list[int]:
    """As its authors wrote it."""
    state, found = seed, []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        found.append(z ^ (z >> 31))
    return found


def test_words_are_those_of_splitmix64():
    for seed in (0, 1, 1234567, 2**63 + 5):
        assert words(seed, np.arange(5, dtype=np.uint64)).tolist() == splitmix64(seed, 5)
    # of many keys at once, and the first of seed 1234567 as published with the reference implementation
    keys = np.array([[3], [1234567]], dtype=np.uint64)
    assert words(keys, np.arange(4, dtype=np.uint64))[1].tolist()[0] == 6457827717110365317
    assert words(keys, np.arange(4, dtype=np.uint64))[0].tolist() == splitmix64(3, 4)


def test_tensors_have_the_same_numbers_bit_for_bit():
    keys = torch.tensor([0, 17, -(2**62) - 1])
    for count in (1, 7, 96):
        found = normals_of(keys, normal_counters(count, torch.device("cpu")), quantiles(torch.device("cpu")))[:, :count]
        assert torch.equal(found, torch.stack([normals(int(key), count) for key in keys]))


def test_more_numbers_begin_with_the_same():
    assert torch.equal(normals(5, 1000)[:11], normals(5, 11))
    assert not torch.equal(normals(5, 11), normals(6, 11))


def test_they_are_normal():
    x = normals(42, 1_000_000).numpy().astype(float)
    assert stats.kstest(x, "norm").pvalue > 1e-3
    assert abs(x.mean()) < 4e-3
    assert abs(x.std() - 1) < 3e-3
    assert abs(stats.kurtosis(x)) < 0.02
    assert 4.2 < np.abs(x).max() < 6
    # neighbours share a word, and know nothing of each other
    assert abs(np.corrcoef(x[::2], x[1::2])[0, 1]) < 5e-3
    assert abs(np.corrcoef(x[::2] ** 2, x[1::2] ** 2)[0, 1]) < 5e-3
