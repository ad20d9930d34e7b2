"""Groups, who is credited, and what contributions become; against brute force and cases with known answers."""

import itertools
import random
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest

from diffcredit.contributions import HOUSE, NearCopyRule, near_copies_of
from diffcredit.contributions.near_copies import rules
from diffcredit.contributions.near_copies.finding import Pairs
from diffcredit.contributions.near_copies.groups import close_classes, grouped, interchangeable
from diffcredit.contributions.near_copies.sharing import shared_evenly
from diffcredit.errors import UserError

from .near_copies_made import brighter, compressed, contributions, cropped, mirrored, picture, resized


def pairs_of(edges, class_of):
    one, two = (np.array([edge[k] for edge in edges], dtype=np.int64) for k in (0, 1))
    return Pairs(tuple(class_of), one, two, np.zeros(len(edges), np.int64), np.zeros(len(edges), np.bool_))


def brute_force(order, near, alone):
    """The definition, image by image."""
    left, groups = list(order), []
    while left:
        group = [left.pop(0)]
        for image in list(left):
            if image not in alone and near(image, group[0]):
                group.append(image)
                left.remove(image)
        groups.append(group)
    return [group for group in groups if len(group) > 1]


@pytest.mark.parametrize("seed", range(30))
def test_groups_against_brute_force(seed):
    dice = random.Random(seed)
    class_of = [dice.randrange(10) for _ in range(16)]
    edges = [edge for edge in itertools.combinations(range(10), 2) if dice.random() < 0.2]
    order = dice.sample(range(16), 16)
    alone = frozenset(dice.sample(range(16), 3))

    def near(a, b):
        pair = tuple(sorted((class_of[a], class_of[b])))
        return pair[0] == pair[1] or pair in edges

    close = close_classes(pairs_of(edges, class_of))
    groups = grouped(order, class_of, close, alone=alone)
    assert groups == brute_force(order, near, alone)
    able = interchangeable(groups, class_of, close, alone)
    for group, images in zip(groups, able, strict=True):
        assert group[0] in images
        assert {*images} <= {*group}
        for one, other in itertools.product(images, group):
            assert near(one, other)


@pytest.mark.parametrize("seed", range(30))
def test_whichever_stays_no_two_are_near_copies(seed):
    dice = random.Random(seed)
    class_of = [dice.randrange(10) for _ in range(16)]
    edges = [edge for edge in itertools.combinations(range(10), 2) if dice.random() < 0.2]
    house = dice.sample(range(16), 3)  # first, as in every rule
    order = house + dice.sample(sorted({*range(16)} - {*house}), 13)
    close = close_classes(pairs_of(edges, class_of))
    groups = grouped(order, class_of, close, alone=house)
    for chosen in itertools.islice(itertools.product(*interchangeable(groups, class_of, close, house)), 200):
        stays = [image for image in order if not any(image in group for group in groups)] + [*chosen]
        for one, two in itertools.combinations(stays, 2):
            near = class_of[one] == class_of[two] or tuple(sorted((class_of[one], class_of[two]))) in edges
            assert not near or {one, two} <= {*house}


def test_a_chain_is_no_group():
    close = close_classes(pairs_of([(0, 1), (1, 2)], range(3)))
    assert grouped([0, 1, 2], range(3), close) == [[0, 1]]  # 2 is like 1, which is gone, and not like 0
    assert grouped([1, 0, 2], range(3), close) == [[1, 0, 2]]  # both are like the one that stays
    assert interchangeable([[1, 0, 2]], range(3), close) == [[1]]
    assert interchangeable([[0, 1]], range(3), close) == [[0]]  # 1 is also like 2, which stays


@pytest.mark.parametrize("seed", range(40))
def test_everybody_gets_what_is_due_but_for_a_fraction(seed):
    dice = random.Random(seed)
    people = "ABCDEFG"[: dice.randint(2, 7)]
    works = [frozenset(dice.sample(people, dice.randint(2, len(people)))) for _ in range(dice.randint(1, 40))]
    to = shared_evenly(works, {name: dice.random() for name in people})
    assert len(to) == len(works)
    assert all(giver in givers for giver, givers in zip(to, works, strict=True))
    for name in people:
        due = sum((Fraction(1, len(givers)) for givers in works if name in givers), Fraction())
        assert floor(due) <= to.count(name) <= ceil(due)


def test_works_are_handed_on_where_greed_would_fail():
    """B must give up the work that only A and B gave, for C has nobody else to share with."""
    works = [frozenset("AB"), frozenset("AB"), frozenset("BC"), frozenset("BC"), frozenset("CD"), frozenset("CD")]
    to = shared_evenly(works, {"A": 3, "B": 0, "C": 1, "D": 2})
    assert {name: to.count(name) for name in "ABCD"} == {"A": 1, "B": 2, "C": 2, "D": 1}


def test_reported_without_a_rule():
    given = contributions(
        {"Ada": [picture(0), picture(1), resized(picture(1))], "Bob": [mirrored(picture(0)), picture(2)]},
        house=[brighter(picture(2))],
        heldout=[cropped(picture(1)), picture(9)],
    )
    found = near_copies_of(given)
    assert [(each.name, each.giver, each.original, each.original_giver) for each in found.copies] == [
        ("Bob/1.png", "Bob", "house/0.png", "the house"),
        ("Bob/0.png", "Bob", "Ada/0.png", "Ada"),
        ("Ada/2.png", "Ada", "Ada/1.png", "Ada"),
    ]
    assert [each.mirrored for each in found.copies] == [False, True, False]
    assert found.between == 2
    assert [(each.name, each.original) for each in found.heldout] == [("heldout/0.png", "Ada/1.png")]
    assert found.credit is None


def applied(given, credit, heldout_givers=(), seed=0, **options):
    rule = NearCopyRule(credit, **options)
    return rules.without_near_copies(given, rule, images=None, heldout_givers=heldout_givers, seed=seed)


def reasons(found):
    return {each.name: each.reason for each in found.excluded}


def dates_in(folder, rows, column="date"):
    file = folder / "dates.csv"
    file.write_text(f"file_name,{column}\n" + "".join(f"{name},{date}\n" for name, date in rows.items()))
    return file


def three():
    """Bob copies Ada's first image and Cyd's, and gives one of his own twice; Cyd has two images nobody else has."""
    return contributions(
        {
            "Ada": [picture(0), picture(1)],
            "Bob": [compressed(picture(0)), mirrored(picture(2)), picture(3), cropped(picture(3))],
            "Cyd": [picture(2), picture(4), picture(5)],
        }
    )


def test_first_keeps_the_earliest(tmp_path):
    dates = {
        "Ada/0.png": "2026-02-01",
        "Bob/0.png": "2026-01-01",
        "Bob/1.png": "2026-02-02T10:00",
        "Cyd/0.png": "2026-02-02",
    }
    found = applied(three(), "first", dates=dates_in(tmp_path, dates))
    assert reasons(found) == {"Ada/0.png": rules.EARLIER, "Bob/1.png": rules.EARLIER, "Bob/3.png": rules.OWN}
    assert {each.name: each.counterpart for each in found.excluded} == {
        "Ada/0.png": "Bob/0.png",
        "Bob/1.png": "Cyd/0.png",
        "Bob/3.png": "Bob/2.png",
    }
    assert found.names == ("Ada/1.png", "Bob/0.png", "Bob/2.png", "Cyd/0.png", "Cyd/1.png", "Cyd/2.png")
    assert found.counts.tolist() == [1, 2, 3]
    for row, name in enumerate(found.names):  # pixels and owners follow their names
        before = three()
        assert (found.images[row] == before.images[before.names.index(name)]).all()
        assert found.giver(row) == name[:3]
    assert [each.done for each in found.near_copies.copies].count(rules.EARLIER) == 2


def test_dates_of_several_time_zones(tmp_path):
    dates = {"Ada/0.png": "2026-01-01T00:30+02:00", "Bob/0.png": "2025-12-31T23:00Z"}  # the first is 22:30 in UTC
    given = contributions({"Ada": [picture(0), picture(1)], "Bob": [mirrored(picture(0)), picture(2)]})
    assert reasons(applied(given, "first", dates=dates_in(tmp_path, dates))) == {"Bob/0.png": rules.EARLIER}


DATES = {"Ada/0.png": "2026-02-01", "Bob/0.png": "2026-01-01", "Bob/1.png": "2026-02-03", "Cyd/0.png": "2026-02-02"}


MISSING = "of which another contributor gave a near-copy; a date such as 2026-03-31 is accepted"
TIED = "near-copies by two contributors with the same date, 2026-02-01T00:00:00+00:00; different dates are accepted"
ACCEPTED = "a date such as 2026-03-31 or 2026-03-31T12:00 is accepted"
WITHIN = "leads out of the folder; paths within it are accepted"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Bob/0.png": "2026-02-01"}, f": Ada/0.png and Bob/0.png are {TIED}"),
        ({"Bob/0.png": None}, f": no date of 'Bob/0.png', {MISSING}"),
        ({"Cyd/0.png": ""}, f": no date of 'Cyd/0.png', {MISSING}"),
        ({"Cyd/0.png": "last May"}, f":5: date 'last May'; {ACCEPTED}"),
        ({"../x.png": "2026-01-01"}, f":6: file_name '../x.png' {WITHIN}"),
    ],
)
def test_dates_that_decide_nothing_are_refused(tmp_path, changes, message):
    rows = {name: date for name, date in {**DATES, **changes}.items() if date is not None}
    file = dates_in(tmp_path, rows)
    with pytest.raises(UserError) as caught:
        applied(three(), "first", dates=file)
    assert str(caught.value) == f"near_copies.dates: {file}{message}"


def test_dates_that_are_not_there(tmp_path):
    with pytest.raises(UserError, match=r"near_copies\.dates: missing; credit: first needs the images' dates"):
        applied(three(), "first")
    with pytest.raises(UserError, match=r"near_copies\.dates: .*none\.csv: no file there"):
        applied(three(), "first", dates=tmp_path / "none.csv")
    file = dates_in(tmp_path, DATES, column="made")
    with pytest.raises(UserError, match=r"near_copies\.dates: .*:2: no column 'date'; there are: file_name, made"):
        applied(three(), "first", dates=file)
    assert applied(three(), "first", dates=file, date="made").counts.tolist() == [1, 2, 3]
    file.write_text("file_name,date\nAda/0.png,2026-01-01\nAda/0.png,2026-01-02\n")
    with pytest.raises(UserError, match=r":3: Ada/0\.png is in line 2 already"):
        applied(three(), "first", dates=file)


def test_of_ones_own_near_copies_the_earliest_stays_where_dates_say(tmp_path):
    rows = {**DATES, "Bob/2.png": "2026-05-01", "Bob/3.png": "2026-04-01"}
    assert reasons(applied(three(), "first", dates=dates_in(tmp_path, rows)))["Bob/2.png"] == rules.OWN


def test_a_chain_costs_nobody_a_work(tmp_path, monkeypatch):
    """Bob's is like Ada's and Cyd's, which are two works: only Bob's goes, and Cyd's stays."""
    given = contributions({"Ada": [picture(0), picture(6)], "Bob": [picture(1), picture(7)], "Cyd": [picture(2)]})
    chain = pairs_of([(0, 2), (2, 4)], range(5))
    monkeypatch.setattr(rules, "find_pairs", lambda *given: chain)
    dates = {"Ada/0.png": "2026-01-01", "Bob/0.png": "2026-01-02", "Cyd/0.png": "2026-01-03"}
    assert set(reasons(applied(given, "first", dates=dates_in(tmp_path, dates)))) == {"Bob/0.png"}
    assert len(reasons(applied(given, "split"))) == 1


def test_split_gives_twins_halves():
    works = [picture(seed) for seed in range(8)]
    for seed in range(3):
        found = applied(contributions({"Ada": works, "Bob": works, "Cyd": [picture(50)]}), "split", seed=seed)
        assert dict(zip(found.contributors, found.counts.tolist(), strict=True)) == {"Ada": 4, "Bob": 4, "Cyd": 1}
        kept = sorted(name.partition("/")[2] for name in found.names if not name.startswith("Cyd"))
        assert kept == sorted(f"{i}.png" for i in range(8))  # every work once
        assert set(reasons(found).values()) == {rules.OTHERS}


def test_two_copies_of_one_image_that_are_not_alike_count_once(tmp_path):
    """Ben's is found, Cyd's was found by a person: Ann's alone is like both."""
    given = contributions(
        {"Ann": [picture(0), picture(1)], "Ben": [resized(picture(0)), picture(2)], "Cyd": [picture(3)] * 2}
    )
    given = replace(given, images=np.concatenate([given.images[:-1], picture(4)[None]]))
    (tmp_path / "pairs.csv").write_text("file_name,copy_of\nCyd/0.png,Ann/0.png\n")
    for credit in ("split", "house"):
        house = [picture(9)] if credit == "house" else []
        some = given if not house else contributions_with(given, house)
        rule = NearCopyRule(credit, pairs=tmp_path / "pairs.csv")
        found = rules.without_near_copies(some, rule, images=None, heldout_givers=[], seed=0)
        credited = {name for name, owner in zip(found.names, found.owner, strict=True) if owner != HOUSE}
        assert credited & {"Ann/0.png", "Ben/0.png", "Cyd/0.png"} == ({"Ann/0.png"} if credit == "split" else set())
        assert {"Ann/1.png", "Ben/1.png", "Cyd/1.png"} <= credited


def contributions_with(given, house):
    """``given`` with house images."""
    return replace(
        given,
        images=np.concatenate([given.images, house]),
        owner=np.concatenate([given.owner, [HOUSE] * len(house)]),
        names=(*given.names, *(f"house/{i}.png" for i in range(len(house)))),
    )


def test_split_in_three_and_in_two():
    works = [picture(seed) for seed in range(6)]
    changed = [compressed(image) for image in works]
    found = applied(
        contributions({"Ada": works, "Bob": changed, "Cyd": works, "Dan": [picture(60), picture(61)]}), "split"
    )
    assert found.counts.tolist() == [2, 2, 2, 2]
    found = applied(contributions({"Ada": works[:4], "Bob": works, "Cyd": works[4:]}), "split")
    assert found.counts.tolist() == [2, 3, 1]


def test_split_keeps_the_contributors_own_file():
    given = contributions({"Ada": [picture(0), resized(picture(0))], "Bob": [mirrored(picture(0)), picture(1)]})
    found = applied(given, "split")
    for row, name in enumerate(found.names):
        assert found.giver(row) == name[:3]
    assert len(found.names) == 2


def test_split_does_not_depend_on_the_order_of_names_alone():
    """With an odd work, the seed decides who gets it."""
    works = [picture(0)]
    given = contributions({"Ada": [*works, picture(5)], "Bob": [*works, picture(6)]})
    assert {tuple(applied(given, "split", seed=seed).counts.tolist()) for seed in range(12)} == {(1, 2), (2, 1)}


def test_house_credits_nobody():
    given = three()
    with pytest.raises(UserError, match=r"near_copies\.credit: 'house', but there are no house images"):
        applied(given, "house")
    given = contributions(
        {
            name: [given.images[i] for i in range(9) if given.names[i].startswith(name)]
            for name in ("Ada", "Bob", "Cyd")
        },
        house=[picture(20)],
    )
    found = applied(given, "house")
    assert reasons(found) == {
        **dict.fromkeys(("Ada/0.png", "Bob/0.png", "Bob/1.png", "Cyd/0.png"), rules.NOBODYS),
        "Bob/3.png": rules.OWN,
    }
    assert [found.names[row] for row in np.flatnonzero(found.owner == HOUSE)] == [
        "Ada/0.png",
        "Bob/1.png",
        "house/0.png",
    ]
    assert found.counts.tolist() == [1, 1, 2]


@pytest.mark.parametrize("credit", ["first", "split", "house"])
def test_a_near_copy_of_a_house_image_is_credited_to_nobody(tmp_path, credit):
    given = contributions(
        {"Ada": [picture(0), picture(1)], "Bob": [picture(0), picture(2)]}, house=[brighter(picture(0)), picture(0)]
    )
    options = {"dates": dates_in(tmp_path, {})} if credit == "first" else {}
    found = applied(given, credit, **options)
    assert reasons(found) == dict.fromkeys(("Ada/0.png", "Bob/0.png"), rules.OF_HOUSE)
    assert found.house.sum() == 2  # the house's own near-copies stay
    assert found.counts.tolist() == [1, 1]


def test_who_has_nothing_but_copies_is_left_out(tmp_path):
    works = [picture(seed) for seed in range(4)]
    given = contributions(
        {"Ada": works[:2], "Bob": works[2:], "Eve": [mirrored(works[0]), works[2]]}, heldout=[picture(30), picture(31)]
    )
    rows = {"Ada/0.png": "2026-01-01", "Bob/0.png": "2026-01-01", "Eve/0.png": "2026-02-01", "Eve/1.png": "2026-02-01"}
    found = applied(given, "first", heldout_givers=["Eve", "Ada"], dates=dates_in(tmp_path, rows))
    assert found.contributors == ("Ada", "Bob")
    assert found.left_out == ("Eve (2 images, all near-copies)",)
    assert found.given == (2, 2)
    assert found.heldout_names == ("heldout/1.png",)
    assert (found.heldout[0] == picture(31)).all()
    assert {each.contributor for each in found.excluded} == {"Eve"}


def test_two_must_remain(tmp_path):
    given = contributions({"Ada": [picture(0)], "Eve": [mirrored(picture(0))]})
    rows = {"Ada/0.png": "2026-01-01", "Eve/0.png": "2026-02-01"}
    with pytest.raises(UserError, match="near_copies: 'Ada' alone has images that are credited; at least 2"):
        applied(given, "first", dates=dates_in(tmp_path, rows))


def test_reasons_name_nobody():
    given = three()
    names = [*given.contributors, *given.names]
    for reason in reasons(applied(given, "split")).values():
        assert not any(name in reason for name in names)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"credit": "last"}, "near_copies.credit: 'last'; first, split, house are accepted"),
        ({"credit": "split", "distance": 17}, "near_copies.distance: 17; 0 to 16 bits are accepted"),
        ({"credit": "split", "distance": True}, "near_copies.distance: True; 0 to 16"),
        (
            {"credit": "split", "dates": "x.csv"},
            "near_copies.dates: x.csv; dates are accepted with credit: first alone",
        ),
    ],
)
def test_rules_that_cannot_be(options, message):
    with pytest.raises(UserError) as caught:
        NearCopyRule(**options)
    assert str(caught.value).startswith(message)
