"""Planted copies are found, other pictures are not, and the search agrees with one pair at a time."""

import itertools

import imagehash
import numpy as np
import pytest
from PIL import Image

from diffcredit.contributions.near_copies import finding, looks
from diffcredit.contributions.near_copies.finding import find_pairs, search
from diffcredit.contributions.near_copies.looks import VIEWS, hashes, looks_of, part, seen
from diffcredit.errors import UserError

from .near_copies_made import CHANGES, SIDE, cropped, mirrored, picture


def found(images, distance=finding.DISTANCE):
    pairs = find_pairs(images, distance)
    return set(zip(pairs.one.tolist(), pairs.two.tolist(), strict=True))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_planted_copies_are_found_and_nothing_else(change):
    images = [picture(seed) for seed in range(30)]
    copies = [change(image) for image in images[:10]]
    assert found([*images, *copies]) == {(i, 30 + i) for i in range(10)}


def test_a_larger_crop_is_found_from_either_side():
    images = [picture(seed) for seed in range(12)]
    small = [cropped(image, 0.2) for image in images]
    assert found([*images, *small]) == found([*small, *images]) == {(i, 12 + i) for i in range(12)}


@pytest.mark.parametrize("place", [(0.0, 0.0), (1.0, 0.3), (0.15, 0.85), (0.5, 0.7)])
@pytest.mark.parametrize("share", [0.05, 0.1])
@pytest.mark.parametrize("turned", [False, True])
def test_a_part_cut_out_anywhere_is_found(share, place, turned):
    images = [picture(seed) for seed in range(20)]
    side = SIDE * (1 - share)
    left, top = (SIDE * share * each for each in place)
    box = (left, top, left + side, top + side)
    copies = [Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=box) for image in images[:6]]
    copies = [mirrored(np.asarray(copy)) if turned else np.asarray(copy) for copy in copies]
    assert found([*images, *copies]) == {(i, 20 + i) for i in range(6)}


def test_a_long_search_says_how_far_it_is(monkeypatch):
    told = []
    find_pairs([picture(seed) for seed in (78, 79)], progress=lambda *each: told.append(each))
    assert told == []
    monkeypatch.setattr(finding, "MANY", 2)
    find_pairs([picture(seed) for seed in (80, 81)], progress=lambda *each: told.append(each))
    assert told == [("comparing views of images", number, len(VIEWS)) for number in range(len(VIEWS) + 1)]


def test_mirrored_copies_say_so():
    images = [picture(0), picture(1), mirrored(picture(0)), cropped(picture(1), 0.05)]
    pairs = find_pairs(images)
    assert dict(zip(pairs.one.tolist(), pairs.mirrored.tolist(), strict=True)) == {0: True, 1: False}


def test_the_same_bytes_are_one_class_and_no_pair():
    images = [picture(0), picture(1), picture(0), picture(2), picture(1)]
    pairs = find_pairs(images)
    assert pairs.class_of == (0, 1, 0, 2, 1)
    assert len(pairs.one) == 0


def test_hashes_are_those_of_the_library():
    some = looks_of([picture(seed) for seed in range(5)])
    expected = [int(str(imagehash.phash(Image.fromarray(look))), 16) for look in some]
    assert [int.from_bytes(value.tobytes(), "big") for value in hashes(some)] == expected


def test_close_hashes_are_those_of_every_two(monkeypatch):
    """Also where tiles end within the rows and columns, and without what the pixels say."""
    monkeypatch.setattr(finding, "ROWS", 3)
    monkeypatch.setattr(finding, "COLUMNS", 5)
    random = np.random.default_rng(0)
    bits = random.random((23, 64)) < 0.5
    bits[7], bits[22], bits[1] = bits[0], bits[12], bits[5]
    bits[7, :4] ^= True
    bits[1, :13] ^= True
    values = np.packbits(bits, axis=1).view(np.uint64)[:, 0]
    for most, symmetric in itertools.product((0, 4, 12, 24), (True, False)):
        rows = list(finding._close(values, values, most, symmetric=symmetric))
        all_ = {(i, j, d) for one, two, bits_ in rows for i, j, d in zip(one, two, bits_, strict=True)}
        expected = {
            (i, j, int((bits[i] != bits[j]).sum()))
            for i, j in itertools.permutations(range(23), 2)
            if (i < j or not symmetric) and (bits[i] != bits[j]).sum() <= most
        }
        assert all_ == expected
        assert sum(len(one) for one, _, _ in rows) == len(expected)


def test_the_distance_is_that_of_the_closest_view():
    images = [picture(3), cropped(picture(3), 0.1), mirrored(picture(4)), picture(4)]
    pairs = find_pairs(images)
    shown = looks_of(images)
    for one, two, distance in zip(pairs.one, pairs.two, pairs.distance, strict=True):
        views = [
            np.bitwise_count(hashes(seen(shown[[a]], view)) ^ hashes(turned)).item()
            for view in VIEWS
            for a, b in ((one, two), (two, one))
            for turned in (shown[[b]], shown[[b], :, ::-1])
        ]
        assert distance == min(views)


@pytest.mark.parametrize("scale", [0.8, 0.9, 1.0])
@pytest.mark.parametrize("place", [(0.5, 0.5), (0.0, 1.0)])
def test_a_part_is_what_pillow_cuts_out(scale, place):
    """On a linear slope, where every way to enlarge agrees, but for the edge."""
    slope = np.add.outer(np.arange(32) * 3.0, np.arange(32) * 2.0)
    image = np.repeat(slope[None, :, :, None], 3, axis=3).astype(np.float32)
    left, top = (32 * (1 - scale) * each for each in place)
    expected = Image.fromarray(image[0, :, :, 0]).resize(
        (32, 32), Image.Resampling.BILINEAR, box=(left, top, left + 32 * scale, top + 32 * scale)
    )
    inner = slice(2, -2)
    np.testing.assert_allclose(part(image, scale, *place)[0, inner, inner, 0], np.array(expected)[inner, inner], atol=1)


def test_one_changed_place_makes_another_picture():
    """Two drawings of one template are two works."""
    base = picture(5)
    other = base.copy()
    other[24:34, 24:34] = (255 - base[24:34, 24:34] * 0.5).astype(np.uint8)
    assert np.corrcoef(base.ravel().astype(float), other.ravel().astype(float))[0, 1] > finding.ALIKE
    assert found([base, other], 16) == set()


def test_close_hashes_alone_are_not_enough(monkeypatch):
    monkeypatch.setattr(finding, "hashes", lambda some: np.zeros(len(some), dtype=np.uint64))
    images = [picture(seed) for seed in range(20)]
    assert found(images) == set()
    assert found([*images, cropped(images[3])]) == {(3, 20)}


def test_flat_pictures_are_copies_only_byte_by_byte():
    grey = [np.full((SIDE, SIDE, 3), value, dtype=np.uint8) for value in (100, 101, 100, 255)]
    pairs = find_pairs(grey)
    assert pairs.class_of == (0, 1, 0, 2)
    assert len(pairs.one) == 0


@pytest.mark.parametrize("side", [4, 8, 16, 32, 100])
def test_any_resolution(side):
    images = [np.asarray(Image.fromarray(picture(seed)).resize((side, side))) for seed in range(3)]
    assert found([*images, images[1][:, ::-1]]) == {(1, 3)}


def test_no_images_and_one():
    assert found([]) == found([picture(0)]) == set()


def test_what_was_found_is_noted(monkeypatch):
    images = [picture(seed) for seed in (70, 71)] + [mirrored(picture(70))]
    first = find_pairs(images)
    monkeypatch.setattr(finding, "search", None)
    again = find_pairs(images)
    for column in ("one", "two", "distance", "mirrored"):
        np.testing.assert_array_equal(getattr(again, column), getattr(first, column))
        assert getattr(again, column).dtype == getattr(first, column).dtype
    with pytest.raises(TypeError):
        find_pairs(images, 5)  # another distance is another search
    with pytest.raises(TypeError):
        find_pairs(images[::-1])


def test_a_missing_package_is_named(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(looks, "import_module", missing)
    assert not looks.installed()
    with pytest.raises(UserError, match="near_copies needs the package ImageHash: pip install ImageHash"):
        hashes(looks_of([picture(0)]))


def test_too_many_proposals_are_refused_in_words(monkeypatch):
    monkeypatch.setattr(finding, "MOST_PAIRS", 3)
    images = looks_of([cropped(picture(1), share / 100) for share in range(6)])
    with pytest.raises(UserError, match=r"near_copies\.distance: 12 proposes over 3 pairs of images; a smaller number"):
        search(images, 12)
