"""Look-alikes are those that the definition names, pair by pair."""

import numpy as np
import pytest

from diffcredit.contributions import lookalikes_of
from diffcredit.contributions.near_copies import lookalikes as module
from diffcredit.contributions.near_copies.lookalikes import lookalikes

from .near_copies_made import contributions, mirrored, picture


def by_definition(vectors, givers, margin):
    """Every pair by itself, from the definition in the module."""
    scaled = (vectors - vectors.mean(axis=0)) / vectors.std(axis=0)
    unit = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    similar = unit @ unit.T
    everybody = range(len(vectors))

    def usual(image, other):
        third = [k for k in everybody if givers[k] not in (givers[image], givers[other])]
        own = [k for k in everybody if k not in (image, other) and givers[k] == givers[image]]
        if givers[image] == givers[other]:
            third += own
        return max([0.0, *(similar[image, k] for k in third or own)])

    found = []
    for one in everybody:
        for two in range(one + 1, len(vectors)):
            above = similar[one, two] - max(usual(one, two), usual(two, one))
            if above >= margin:
                found.append((one, two, above))
    return sorted(found, key=lambda pair: -pair[2])


def made(seed, people, each, width=6):
    """Features of images, a few of which are noisy copies of others."""
    random = np.random.default_rng(seed)
    givers = [f"person {who}" for who in range(people) for _ in range(each)]
    order = random.permutation(len(givers))
    vectors = random.normal(size=(len(givers), width)).astype(np.float32)
    for copy, original in random.permutation(len(givers))[: len(givers) // 3 * 2].reshape(-1, 2):
        vectors[copy] = vectors[original] + random.normal(scale=0.3, size=width)
    return vectors, [givers[place] for place in order]


@pytest.mark.parametrize(("people", "each"), [(1, 9), (4, 1), (2, 8), (3, 5), (6, 4), (12, 1)])
@pytest.mark.parametrize("rows", [2, 256])
def test_pairs_are_those_of_the_definition(monkeypatch, people, each, rows):
    monkeypatch.setattr(module, "ROWS", rows)
    total = 0
    for seed in range(8):
        vectors, givers = made(seed, people, each)
        found, expected = lookalikes(vectors, givers, 0.1), by_definition(vectors.astype(np.float64), givers, 0.1)
        assert {pair[:2] for pair in found} == {pair[:2] for pair in expected}
        assert [pair[2] for pair in found] == pytest.approx([pair[2] for pair in expected], abs=1e-5)
        total += len(found)
    assert total > 0


def test_a_copy_stands_out_and_a_common_style_does_not():
    random = np.random.default_rng(0)
    style = random.normal(size=20) * 5
    vectors = random.normal(size=(40, 20))
    vectors[:20] += style  # of four people
    vectors[3] = vectors[12] + random.normal(size=20) * 0.3
    givers = [f"person {i // 5}" for i in range(40)]
    assert [pair[:2] for pair in lookalikes(vectors.astype(np.float32), givers)] == [(3, 12)]


def test_several_copies_by_one_person_all_stand_out():
    random = np.random.default_rng(1)
    vectors = random.normal(size=(30, 40)).astype(np.float32)
    vectors[1], vectors[2] = vectors[20] + 0.01, vectors[20] - 0.01
    givers = ["Ben"] * 10 + ["Cyd"] * 10 + ["Ann"] * 10
    assert {pair[:2] for pair in lookalikes(vectors, givers)} == {(1, 20), (2, 20)}


def test_no_image_one_image_and_features_without_differences():
    assert lookalikes(np.empty((0, 3), np.float32), []) == lookalikes(np.ones((1, 3), np.float32), ["a"]) == []
    assert lookalikes(np.ones((4, 3), np.float32), ["a", "a", "b", "c"]) == []


def test_near_copies_are_left_out_and_names_are_given():
    given = contributions(
        {"Ann": [picture(0), picture(1)], "Ben": [picture(2), mirrored(picture(0))], "Cyd": [picture(3), picture(4)]}
    )
    random = np.random.default_rng(0)
    vectors = random.normal(size=(6, 30)).astype(np.float32)
    vectors[3] = vectors[0]  # the mirror image, which is a near-copy
    vectors[2] = vectors[5] + 0.01
    (found,) = lookalikes_of(given, vectors)
    assert (found.one, found.one_giver, found.two, found.two_giver) == ("Ben/0.png", "Ben", "Cyd/1.png", "Cyd")
    assert found.margin > 0.5
