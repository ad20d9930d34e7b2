import dataclasses
import random
import shutil
import threading
import time
from collections import Counter
from functools import partial

import numpy as np
import pytest
from PIL import Image

from diffcredit.contributions import HOUSE, House, load_contributions, loading
from diffcredit.contributions.loading import select
from diffcredit.contributions.sources import Record
from diffcredit.errors import UserError

from .pictures import BLUE, GREEN, RED, colour_of, flat, jsonl, paint, paint_many

NAMES = [f"{who}/{index:02d}.png" for who in ("ada", "bob", "cyd") for index in range(10)]


@pytest.fixture(scope="module")
def painted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("painted")
    paint_many(folder, NAMES)
    return folder


ENDINGS = ("png", "jpg", "gif", "webp", "tiff", "bmp")


def test_order_never_depends_on_the_file_system(tmp_path):
    shuffled = random.Random(1).sample(NAMES, len(NAMES))
    paint_many(tmp_path / "one", NAMES)
    paint_many(tmp_path / "two", shuffled)
    jsonl(tmp_path / "three/metadata.jsonl", [{"file_name": n, "contributor": n[:3]} for n in shuffled])
    paint_many(tmp_path / "three", shuffled)
    one, two, three = (load_contributions(tmp_path / name, resolution=4) for name in ("one", "two", "three"))
    assert one.names == tuple(NAMES)
    assert flat(one.images) == [colour_of(name) for name in NAMES]
    assert one.fingerprint == two.fingerprint == three.fingerprint


def test_auto_finds_the_source(tmp_path):
    paint_many(tmp_path / "folders", NAMES)
    assert load_contributions(tmp_path / "folders").contributors == ("ada", "bob", "cyd")
    paint_many(tmp_path / "meta", ["a.png", "b.png"])
    rows = [{"file_name": f"{letter}.png", "contributor": letter} for letter in "ab"]
    metadata = jsonl(tmp_path / "meta/metadata.jsonl", rows)
    assert load_contributions(tmp_path / "meta").contributors == ("a", "b")
    assert load_contributions(metadata).contributors == ("a", "b")
    images = np.zeros((2, 8, 8), np.uint8)
    np.savez(tmp_path / "arrays.npz", images=images, contributor=np.array(["x", "y"]))
    assert load_contributions(str(tmp_path / "arrays.npz")).contributors == ("x", "y")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError, match=r"notes\.txt: a folder, .* or an \.npz file is accepted"):
        load_contributions(tmp_path / "notes.txt")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "nowhere"}, "nowhere: does not exist"),
        ({"path": None}, "path: missing"),
        ({"source": "parquet"}, "source: 'parquet'; auto, folders, .*openmoji are accepted"),
        ({"source": "openmoji"}, "takes no path"),
        ({"resolution": 3}, "resolution: 3; 4 to 1024"),
        ({"resolution": 1025}, "resolution: 1025"),
        ({"unreadable": "ignore"}, "unreadable: 'ignore'; stop or skip"),
        ({"source": 7}, "source: 7 cannot be called"),
        ({"at_least": 0}, "at_least: 0; a number of images from 1"),
        ({"at_least": 11}, "at_least: 11 leaves 0 of 3 contributors, who gave up to 10"),
        ({"draw": 1}, "draw: 1; a number of contributors from 2"),
        ({"draw": 4}, "draw: 4, but there are 3 contributors with at least 1 images"),
        ({"holdout": 1.0}, r"holdout: 1\.0; a fraction"),
        ({"holdout": float("nan")}, "holdout: nan; a fraction"),
        ({"holdout": "nowhere"}, "nowhere: does not exist"),
        ({"holdout": 0.96}, r"holdout: 0\.96 leaves contributor 'ada', who gave 10, no training image"),
    ],
)
def test_what_cannot_be_followed(painted, options, message):
    with pytest.raises(UserError, match=message):
        load_contributions(**({"path": painted} | options))


def test_one_contributor_makes_no_game(tmp_path):
    paint(tmp_path / "ada/1.png")
    with pytest.raises(UserError, match=f"{tmp_path}: one contributor, 'ada'; at least 2"):
        load_contributions(tmp_path)
    shutil.rmtree(tmp_path / "ada")
    with pytest.raises(UserError, match=f"{tmp_path}: no images there"):
        load_contributions(tmp_path)


TRUNCATED, EMPTY, TEXT = (lambda whole: whole[: len(whole) // 2]), (lambda _: b""), (lambda _: b"this is no image")


def corrupt(whole):
    return whole[:50] + bytes(byte ^ 255 for byte in whole[50:])


@pytest.mark.parametrize(
    ("spoil", "ending"),
    [
        *((TRUNCATED, ending) for ending in ENDINGS),
        *((EMPTY, ending) for ending in ("png", "webp")),
        *((TEXT, ending) for ending in ("png", "tiff")),
        *((corrupt, ending) for ending in ("png", "jpg", "gif")),  # the others have no checksum
    ],
)
def test_an_unreadable_image_names_itself(tmp_path, spoil, ending):
    paint_many(tmp_path, NAMES[8:12])
    bad = tmp_path / f"bob/bad.{ending}"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(bad)
    assert len(load_contributions(tmp_path).names) == 5
    bad.write_bytes(spoil(bad.read_bytes()))
    with pytest.raises(UserError, match=f"{tmp_path}: bob/bad.{ending}: .*unreadable: skip"):
        load_contributions(tmp_path)
    kept = load_contributions(tmp_path, unreadable="skip", resolution=4)
    assert flat(kept.images) == [colour_of(name) for name in NAMES[8:12]]
    assert [skipped.partition(":")[0] for skipped in kept.skipped] == [f"bob/bad.{ending}"]


def test_skipping_never_loses_a_contributor(tmp_path):
    paint_many(tmp_path, NAMES)
    (tmp_path / "eve").mkdir()
    (tmp_path / "eve/1.heic").write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.raises(UserError, match=r"eve/1\.heic: not an image in an accepted format"):
        load_contributions(tmp_path)
    with pytest.raises(UserError, match="no training image of contributor 'eve' can be read"):
        load_contributions(tmp_path, unreadable="skip")


def heldout_names(root, **options):
    kept = load_contributions(root, resolution=4, **options)
    return kept, set(NAMES) - set(kept.names)


def test_a_fraction_is_held_out_of_each_contributor(tmp_path):
    paint_many(tmp_path, NAMES)
    kept, out = heldout_names(tmp_path, holdout=0.25, seed=5)
    assert kept.counts.tolist() == [7, 7, 7]  # 2.5 rounds up to 3
    assert sorted(flat(kept.heldout)) == sorted(colour_of(name) for name in out)
    assert heldout_names(tmp_path, holdout=0.25, seed=5)[0].fingerprint == kept.fingerprint
    assert heldout_names(tmp_path, holdout=0.25, seed=6)[1] != out
    assert heldout_names(tmp_path, holdout=0)[1] == set()


def test_what_is_held_out_of_one_does_not_depend_on_others(tmp_path):
    paint_many(tmp_path, NAMES)
    _, before = heldout_names(tmp_path, holdout=0.3)
    places = {tuple(sorted(name[4:] for name in before if name[:3] == who)) for who in ("ada", "bob", "cyd")}
    assert len(places) == 3  # nor is it the same position for everybody
    paint_many(tmp_path, [f"aaa/{index}.png" for index in range(7)])
    kept, after = heldout_names(tmp_path, holdout=0.3)
    assert kept.n == 4
    assert after == before


def test_a_path_of_held_out_images_needs_no_contributors(tmp_path):
    paint_many(tmp_path / "data", NAMES)
    paint(tmp_path / "loose/b.png", BLUE)
    paint(tmp_path / "loose/deep/a.png", RED)
    kept = load_contributions(tmp_path / "data", holdout=tmp_path / "loose", resolution=4)
    assert flat(kept.heldout) == [BLUE, RED]
    assert len(kept.names) == 30

    paint(tmp_path / "listed/z.png", GREEN)
    jsonl(tmp_path / "listed/metadata.jsonl", [{"file_name": "z.png"}])
    for place in ("listed", "listed/metadata.jsonl"):
        assert flat(load_contributions(tmp_path / "data", holdout=str(tmp_path / place)).heldout) == [GREEN]

    np.savez(tmp_path / "arrays.npz", images=np.full((2, 8, 8), 9, np.uint8))
    arrays = load_contributions(tmp_path / "data", holdout=tmp_path / "arrays.npz", resolution=4)
    assert flat(arrays.heldout) == [(9, 9, 9)] * 2


def test_a_path_of_held_out_images_is_checked_too(tmp_path):
    paint_many(tmp_path / "data", NAMES[8:12])
    for place in (".", "data", "data/ada"):
        with pytest.raises(UserError, match="overlap"):
            load_contributions(tmp_path / "data", holdout=tmp_path / place)
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match=f"holdout: no images at {tmp_path / 'out'}"):
        load_contributions(tmp_path / "data", holdout=tmp_path / "out")
    paint(tmp_path / "out/a.png", BLUE)
    (tmp_path / "out/b.png").touch()
    with pytest.raises(UserError, match=r"b\.png: the file is empty"):
        load_contributions(tmp_path / "data", holdout=tmp_path / "out")
    kept = load_contributions(tmp_path / "data", holdout=tmp_path / "out", unreadable="skip")
    assert flat(kept.heldout) == [BLUE]
    assert len(kept.skipped) == 1


def test_held_out_images_keep_their_captions(tmp_path):
    paint_many(tmp_path, NAMES)
    rows = [{"file_name": name, "contributor": name[:3], "text": f"this is {name}"} for name in NAMES]
    jsonl(tmp_path / "metadata.jsonl", rows)
    kept = load_contributions(tmp_path, holdout=0.3, resolution=4)
    assert kept.captions == tuple(f"this is {name}" for name in kept.names)
    assert kept.heldout_captions is not None
    told = [caption.removeprefix("this is ") for caption in kept.heldout_captions]
    assert flat(kept.heldout) == [colour_of(name) for name in told]
    assert load_contributions(tmp_path).heldout_captions == ()
    paint(tmp_path.parent / "loose/a.png")
    assert load_contributions(tmp_path, holdout=tmp_path.parent / "loose").heldout_captions == ("",)
    (tmp_path / "metadata.jsonl").unlink()
    assert load_contributions(tmp_path, holdout=0.3).heldout_captions is None


def test_a_source_of_your_own():
    def source(path, contributor):
        assert path is None
        records = [Record(f"{i}", "ab"[i % 2], partial(Image.new, "RGB", (8, 8), (i, 0, 0))) for i in range(5)]
        return [*records[::-1], Record("x", None, partial(Image.new, "RGB", (8, 8), BLUE), heldout=True)]

    found = load_contributions(source=source, resolution=4)
    assert found.contributors == ("a", "b")
    assert flat(found.images) == [(i, 0, 0) for i in range(5)]
    assert found.owner.tolist() == [0, 1, 0, 1, 0]
    assert flat(found.heldout) == [BLUE]
    with pytest.raises(UserError, match="x: an image without contributor"):
        load_contributions(source=lambda path, contributor: [Record("x", None, partial(Image.new, "RGB", (8, 8)))])


def test_large_images_are_decoded_one_at_a_time(monkeypatch):
    """Eight of the largest at once would take 10 GB; small ones go side by side."""
    alone, together = threading.Lock(), threading.Barrier(2, timeout=60)

    def decode(image, resolution):
        if image.size == (20, 20):
            assert alone.acquire(blocking=False)
            time.sleep(0.002)
            alone.release()
        else:
            together.wait()  # breaks unless there are two at once
        return np.zeros((resolution, resolution, 3), np.uint8)

    def source(path, contributor):
        sizes = [(20, 20), (10, 10)] * 12
        return [Record(f"{i:02d}", "ab"[i % 4 // 2], partial(Image.new, "L", size)) for i, size in enumerate(sizes)]

    monkeypatch.setattr(loading, "square_pixels", decode)
    monkeypatch.setattr(loading, "LARGE", 200)
    monkeypatch.setattr(loading, "AT_A_TIME", 1)
    monkeypatch.setattr(loading.os, "cpu_count", lambda: 8)
    assert load_contributions(source=source).skipped == ()


def records(**counts):
    opened = partial(Image.new, "RGB", (8, 8))
    return [Record(f"{name}/{index}", name, opened) for name, count in counts.items() for index in range(count)]


def names(selected):
    return {record.contributor for record in selected}


def test_too_few_images():
    kept, left_out = select(records(ada=3, bob=1, cyd=2, dan=4), 3, None, 0)
    assert Counter(record.contributor for record in kept) == {"ada": 3, "dan": 4}
    assert left_out == ("bob (1 image)", "cyd (2 images)")


def test_held_out_images_do_not_count_and_leave_with_their_contributor():
    opened = partial(Image.new, "RGB", (8, 8))
    out = [Record(f"out/{who}", who, opened, heldout=True) for who in ("ada", "bob", "eve", None)]
    kept, left_out = select([*records(ada=2, bob=1, cyd=2), *out], 2, None, 0)
    assert [record.name for record in kept if record.heldout] == ["out/ada", "out/None"]
    assert left_out == ("bob (1 image)", "eve (0 images)")


def test_the_draw_follows_from_names_and_seed_alone():
    people = {f"p{index}": 1 for index in range(20)}
    first = names(select(records(**people), 1, 8, 0)[0])
    assert names(select(records(**people)[::-1], 1, 8, 0)[0]) == first
    assert names(select(records(**dict.fromkeys(people, 2)), 1, 8, 0)[0]) == first
    assert names(select(records(**people), 1, 8, 1)[0]) != first
    # fewer drawn are some of those drawn, and a newcomer replaces one of them at most
    assert names(select(records(**people), 1, 5, 0)[0]) < first
    assert len(first - names(select(records(**people, newcomer=1), 1, 8, 0)[0])) <= 1


def test_house_images_of_a_place(painted, tmp_path):
    paint_many(tmp_path / "house", ["z.png", "deep/a.png"])
    jsonl(tmp_path / "said/metadata.jsonl", [{"file_name": "z.png", "text": "a sea"}])
    paint_many(tmp_path / "said", ["z.png"])
    alone = load_contributions(painted, resolution=4)
    given = load_contributions(painted, resolution=4, at_least=3, holdout=0.2, house=tmp_path / "house")
    assert given.contributors == ("ada", "bob", "cyd")
    assert given.counts.tolist() == [8, 8, 8]
    assert given.names[24:] == ("house/deep/a.png", "house/z.png")
    assert flat(given.images[24:]) == [colour_of("deep/a.png"), colour_of("z.png")]
    assert given.owner.tolist()[24:] == [HOUSE, HOUSE]
    assert load_contributions(painted, resolution=4, house=str(tmp_path / "house")).names[:30] == alone.names
    said = load_contributions(painted, resolution=4, house=House(tmp_path / "said", "imagefolder"))
    assert said.captions == ("",) * 30 + ("a sea",)
    clash = load_contributions(tmp_path, resolution=4, house=House(source="openmoji"))  # a contributor called house
    assert len(set(clash.names)) == len(clash.names)
    assert clash.house.sum() == len(clash.names) - 3


def test_contributors_who_are_the_house(painted):
    """They are not drawn, and what is held out stays the same."""
    alone = load_contributions(painted, resolution=4, holdout=0.2)
    given = load_contributions(painted, resolution=4, holdout=0.2, at_least=10, draw=2, house=["bob"])
    assert given.contributors == ("ada", "cyd")
    assert given.names == alone.names
    assert given.owner.tolist() == [0] * 8 + [HOUSE] * 8 + [1] * 8
    assert flat(given.heldout) == flat(alone.heldout)


@pytest.mark.parametrize(
    ("house", "said"),
    [
        (["eve"], "house: 'eve' is no contributor; there are: ada, bob, cyd"),
        (["ada", "bob"], "one contributor, 'cyd'; at least 2 are accepted"),
        (["ada", "bob", "cyd"], "no contributor beside the house; at least 2 are accepted"),
        (5, "house: 5; a path, or a list of contributors' names, is accepted"),
        ("{painted}/ada", "house: .* and the images at .* overlap; separate places are accepted"),
        ("{empty}", "house: .*: no images there"),
        ("{empty}/nowhere", "nowhere: does not exist"),
    ],
)
def test_houses_that_are_refused(painted, tmp_path, house, said):
    house = house.format(painted=painted, empty=tmp_path) if isinstance(house, str) else house
    with pytest.raises(UserError, match=said):
        load_contributions(painted, resolution=4, house=house)


def test_images_that_lose_much_at_their_sides_are_counted(tmp_path):
    """A tenth is the limit: of 10 × 9 pixels a tenth is cut off, of 10 × 8 a fifth."""
    for name, size in (("square", (8, 8)), ("nearly", (10, 9)), ("wide", (10, 8)), ("high", (8, 40))):
        paint(tmp_path / f"images/ann/{name}.png", size=size)
        paint(tmp_path / f"images/bob/{name}.png", size=(8, 8))
    paint(tmp_path / "house/wide.png", size=(20, 10))
    exif = Image.Exif()
    exif[0x0112] = 6  # on its side
    Image.new("RGB", (8, 12)).save(tmp_path / "images/bob/turned.jpg", exif=exif)
    found = load_contributions(tmp_path / "images", house=tmp_path / "house")
    assert {name.rpartition("/")[2] for name in found.cropped} == {"wide.png", "high.png", "turned.jpg"}
    assert len(found.cropped) == 4
    assert found.cropped_in_words.startswith("4 of 10 images were cut by more than a tenth of the area: ")
    rest = dataclasses.replace(
        found, names=found.names[1:], images=found.images[1:], owner=found.owner[1:], cropped=found.names[:2]
    )
    assert rest.cropped_in_words.startswith("1 of 9 images was cut"), "an image that was taken out does not count"


def test_square_images_are_not_reported_as_cropped(tmp_path):
    paint_many(tmp_path, NAMES[8:12])
    found = load_contributions(tmp_path)
    assert (found.cropped, found.cropped_in_words) == ((), "")
