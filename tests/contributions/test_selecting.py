from collections import Counter
from functools import partial

import pytest
from PIL import Image

from diffcredit.contributions import load_contributions
from diffcredit.contributions.selecting import select
from diffcredit.contributions.sources import Record

from .pictures import paint_many


def records(**counts):
    opened = partial(Image.new, "RGB", (8, 8))
    return [Record(f"{name}/{index}", name, opened) for name, count in counts.items() for index in range(count)]


def names(selected):
    return {record.contributor for record in selected}


def test_everybody_plays_by_default():
    given = records(ada=1, bob=2)
    assert select(given, 1, None, 0) == (given, ())


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


def test_the_draw_is_of_those_with_enough_images():
    kept, left_out = select(records(ada=3, bob=3, cyd=1, dan=3), 2, 2, 0)
    assert len(names(kept)) == 2
    assert names(kept) < {"ada", "bob", "dan"}
    assert len(left_out) == 2


def test_the_draw_follows_from_names_and_seed_alone():
    people = {f"p{index}": 1 for index in range(20)}
    first = names(select(records(**people), 1, 8, 0)[0])
    assert names(select(records(**people)[::-1], 1, 8, 0)[0]) == first
    assert names(select(records(**dict.fromkeys(people, 2)), 1, 8, 0)[0]) == first
    assert names(select(records(**people), 1, 8, 1)[0]) != first
    # fewer drawn are some of those drawn, and a newcomer replaces one of them at most
    assert names(select(records(**people), 1, 5, 0)[0]) < first
    assert len(first - names(select(records(**people, newcomer=1), 1, 8, 0)[0])) <= 1


def test_everybody_is_as_likely_to_be_drawn():
    people = {f"p{index}": 1 for index in range(10)}
    drawn = Counter(name for seed in range(1000) for name in names(select(records(**people), 1, 3, seed)[0]))
    # each is drawn with probability 0.3: 300 of 1000 times, with a standard deviation of 14.5
    assert all(abs(drawn[name] - 300) < 5 * 14.5 for name in people)


@pytest.mark.parametrize("holdout", [None, 0.5])
def test_who_is_left_out_of_a_folder(tmp_path, holdout):
    paint_many(tmp_path, [f"ada/{i}.png" for i in range(4)] + [f"bob/{i}.png" for i in range(4)] + ["cyd/0.png"])
    found = load_contributions(tmp_path, at_least=3, holdout=holdout, resolution=4)
    assert found.contributors == ("ada", "bob")
    assert len(found.names) + len(found.heldout) == 8
    assert found.left_out == ("cyd (1 image)",)
