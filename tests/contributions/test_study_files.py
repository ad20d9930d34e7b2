"""What a study file says about contributions, and what becomes of it."""

import numpy as np
import pytest
from PIL import Image

from diffcredit.contributions.near_copies.rules import OTHERS
from diffcredit.errors import UserError
from diffcredit.payout.works import HELD_OUT, given_works
from diffcredit.study.identity import data_settings
from diffcredit.study.recorded import _about_images
from diffcredit.study.study import Study
from diffcredit.study.workers import _named_paths
from tiny_study import write_study

from .near_copies_made import picture

PLUGIN = """
from dataclasses import dataclass
from functools import partial
from PIL import Image
from diffcredit.contributions.sources import Record

@dataclass(frozen=True)
class Shades:
    people: int
    each: int = 2

    def __call__(self, path, contributor):
        return [
            Record(f"{p}/{i}", f"{contributor} {p}", partial(Image.new, "RGB", (16, 16), (10 * p + i, 0, 0)))
            for p in range(self.people) for i in range(self.each)
        ]

class NoSource:
    pass
"""


def study(folder, section):
    return Study.load(write_study(folder, {"contributions": {**section, "resolution": 16}}))


def refused(folder, section):
    with pytest.raises(UserError) as caught:
        _ = study(folder, section).contributions
    message = str(caught.value)
    assert message.startswith(f"{folder / 'study.yaml'}: contributions")
    assert "\n" not in message
    return message.removeprefix(f"{folder / 'study.yaml'}: ")


def arrays(folder):
    np.savez(
        folder / "a.npz",
        images=np.arange(6, dtype=np.uint8)[:, None, None].repeat(16, 1).repeat(16, 2),
        who=np.array(["a", "b", "a", "b", "c", "c"]),
        split=np.array([0, 0, 0, 0, 0, 1]),
    )
    return {"source": "npz", "path": "a.npz", "contributor": "who"}


def test_options_of_a_source(tmp_path):
    found = study(tmp_path, {**arrays(tmp_path), "heldout": "split"}).contributions
    assert found.contributors == ("a", "b", "c")
    assert found.images[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert found.heldout[:, 0, 0, 0].tolist() == [5]


COMMON = (
    "source, path, contributor, resolution, at_least, draw, holdout, unreadable, house, identities, near_copies, lots, "
    "seed"
)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            {"source": "npz", "path": "x", "pth": 1},
            f"contributions.pth: unknown key; accepted: {COMMON}, caption, heldout",
        ),
        ({"source": "openmoji", "style": "x"}, f"contributions.style: unknown key; accepted: {COMMON}"),
        ({"path": "x", "heldout": "split"}, f"contributions.heldout: unknown key; accepted: {COMMON}"),
        (
            {"path": "x", "house": {"path": "y", "contributor": "z"}},
            "contributions.house.contributor: unknown key; accepted: source, path",
        ),
        ({"source": "emoji", "path": "x", "style": 1}, "contributions: source: 'emoji'; auto, folders, imagefolder, "),
    ],
)
def test_unknown_keys_show_when_the_file_is_read(tmp_path, section, said):
    file = write_study(tmp_path, {"contributions": section})
    with pytest.raises(UserError) as caught:
        Study.load(file)
    assert str(caught.value).startswith(f"{file}: {said}")


def test_values_that_a_source_does_not_take(tmp_path):
    assert refused(tmp_path, {**arrays(tmp_path), "heldout": 3}).startswith("contributions.heldout: 3 is not accepted")
    section = {"source": "cifar100", "path": ".", "superclasses": "flowers"}
    assert refused(tmp_path, section).startswith("contributions.superclasses: 'flowers' is not accepted")
    assert refused(tmp_path, {"source": "openmoji", "path": "x"}).startswith("contributions: path: ")
    assert refused(tmp_path, {"source": "openmoji", "draw": 13}).startswith("contributions: draw: 13, but there are 12")


def test_a_plugged_in_source(tmp_path):
    (tmp_path / "shades_plugin.py").write_text(PLUGIN)
    section = {"source": "shades_plugin:Shades", "people": 3, "contributor": "person"}
    found = study(tmp_path, section).contributions
    assert found.contributors == ("person 0", "person 1", "person 2")
    assert found.images[:, 0, 0, 0].tolist() == [0, 1, 10, 11, 20, 21]
    assert study(tmp_path, {**section, "each": 4}).contributions.counts.tolist() == [4, 4, 4]
    assert refused(tmp_path, {**section, "eech": 4}).startswith("contributions.eech: unknown; ")
    assert refused(tmp_path, {**section, "people": "x"}).startswith("contributions.people: 'x' is not accepted")
    assert "cannot be called" in refused(tmp_path, {"source": "shades_plugin:NoSource"})
    assert "cannot be loaded" in refused(tmp_path, {"source": "shades_plugin:Gone"})


def of_people(folder, **section):
    """Six images of three contributors; ``section`` has more of the study file's."""
    return study(folder, {**arrays(folder), **section})


def test_identities_and_lots(tmp_path):
    (tmp_path / "people.csv").write_text("account,identity\na,ann\nb,ann\n")
    for identities in ({"ann": ["a", "b"]}, "people.csv"):
        found = of_people(tmp_path, identities=identities, lots=3, seed=4)
        assert found.contributions.contributors == ("ann · lot 1", "ann · rest", "c · rest")
        data = data_settings(found.config, found.contributions)
        assert data["accounts"] == {"ann": ["a", "b"]}
        assert data["lots"] == {
            "lot": 3,
            "whose": {"ann · lot 1": "ann", "ann · rest": "ann", "c · rest": "c"},
        }
    plain = of_people(tmp_path)
    assert data_settings(plain.config, plain.contributions).keys() == {"fingerprint", "images", "resolution"}


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"lots": 1}, "contributions.lots: 1 is not accepted; "),
        ({"lots": True}, "contributions.lots: True is not accepted; "),
        ({"lots": 2.5}, "contributions.lots: 2.5 is not accepted; "),
        ({"identities": ["a"]}, "contributions.identities: ['a'] is not accepted; "),
        ({"identities": {"ann": "a"}}, "contributions.identities: 'a' is not accepted; a list"),
    ],
)
def test_identities_and_lots_that_no_study_can_have(tmp_path, section, said):
    with pytest.raises(UserError) as caught:
        of_people(tmp_path, **section)
    assert str(caught.value).startswith(f"{tmp_path / 'study.yaml'}: {said}")


def test_refused_when_the_images_are_read(tmp_path):
    assert refused(tmp_path, {**arrays(tmp_path), "identities": {"ann": []}}).startswith(
        "contributions: identities.ann: (); a list of at least one account"
    )
    assert refused(tmp_path, {**arrays(tmp_path), "identities": "people.yaml"}).startswith(
        f"contributions: identities: {tmp_path / 'people.yaml'}: no file there"
    )


def twins(folder, **section):
    """Ann and Ben with the same four pictures, Cyd with two others; one more picture of Ann's is held out."""
    for who, seeds in {"ann": range(4), "ben": range(4), "cyd": (4, 5)}.items():
        (folder / "images" / who).mkdir(parents=True)
        for seed in seeds:
            Image.fromarray(picture(seed)).save(folder / "images" / who / f"{seed}.png")
    return study(folder, {"source": "folders", "path": "images", **section})


def test_near_copies_are_split_and_the_record_says_so(tmp_path):
    found = twins(tmp_path, near_copies={"credit": "split"})
    assert found.contributions.counts.tolist() == [2, 2, 2]
    assert found.contributions.given == (4, 4, 2)
    data = data_settings(found.config, found.contributions)
    assert data["near_copies"] == {"credit": "split", "distance": 12, "excluded": 4}
    assert found.near_copies is found.contributions.near_copies


def test_without_the_section_near_copies_change_nothing_and_are_reported(tmp_path):
    found = twins(tmp_path)
    assert found.contributions.counts.tolist() == [4, 4, 2]
    assert "near_copies" not in data_settings(found.config, found.contributions)
    assert found.contributions.excluded == ()
    assert found.near_copies.credit is None
    assert [each.name for each in found.near_copies.copies] == [f"ben/{i}.png" for i in range(4)]


def test_statements_count_near_copies_by_reason(tmp_path):
    found = twins(tmp_path, near_copies={"credit": "split"}, holdout=0.2)
    works = given_works(found, found.contributions.givers)
    for name in ("ann", "ben"):
        assert works[name].given == 4
        assert works[name].excluded == {HELD_OUT: 1, OTHERS: 4 - 1 - len(found.contributions.works(name).images)}
    assert sum(each.excluded.get(OTHERS, 0) for each in works.values()) > 0


def test_dates_beside_the_study_file(tmp_path):
    rows = [f"{who}/{i}.png,202{year}-01-01" for who, year in (("ann", 1), ("ben", 0)) for i in range(4)]
    (tmp_path / "dates.csv").write_text("\n".join(["file_name,made", *rows]))
    found = twins(tmp_path, near_copies={"credit": "first", "dates": "dates.csv", "date": "made"})
    assert found.contributions.contributors == ("ben", "cyd")
    assert found.contributions.left_out == ("ann (4 images, all near-copies)",)
    assert tmp_path / "dates.csv" in [*_named_paths(found.config)]
    before = _about_images(found)
    (tmp_path / "dates.csv").write_text("file_name,made\n")
    assert _about_images(found) != before


def test_dates_in_the_metadata_of_an_imagefolder(tmp_path):
    for name, seed in (("a.png", 0), ("b.png", 0), ("c.png", 1)):
        Image.fromarray(picture(seed)).save(tmp_path / name)
    (tmp_path / "metadata.csv").write_text(
        "file_name,artist,date\na.png,Ann,2026-02-01\nb.png,Ben,2026-01-01\nc.png,Ann,\n"
    )
    section = {"source": "imagefolder", "path": ".", "contributor": "artist", "near_copies": {"credit": "first"}}
    assert [each.name for each in study(tmp_path, section).contributions.excluded] == ["a.png"]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({}, "near_copies.credit: missing; "),
        ({"credit": "last"}, "near_copies.credit: 'last' is not accepted; "),
        ({"credit": "split", "distance": 17}, "near_copies.distance: 17; 0 to 16 bits are accepted"),
        ({"credit": "split", "distance": 2.5}, "near_copies.distance: 2.5 is not accepted; "),
        (
            {"credit": "split", "dates": "x.csv"},
            "near_copies.dates: x.csv; dates are accepted with credit: first alone",
        ),
        (
            {"credit": "split", "dtes": "x.csv"},
            "near_copies.dtes: unknown key; accepted: credit, dates, date, distance, pairs",
        ),
    ],
)
def test_rules_that_no_study_can_have(tmp_path, section, said):
    with pytest.raises(UserError) as caught:
        study(tmp_path, {"source": "folders", "path": "images", "near_copies": section})
    assert str(caught.value).startswith(f"{tmp_path / 'study.yaml'}: contributions.{said}")
    assert "\n" not in str(caught.value)


def test_dates_that_are_missing_name_the_file_and_the_key(tmp_path):
    with pytest.raises(UserError) as caught:
        _ = twins(tmp_path, near_copies={"credit": "first"}).contributions
    assert str(caught.value).startswith(
        f"{tmp_path / 'study.yaml'}: contributions: near_copies.dates: missing; credit: first needs the images' dates"
    )


def test_pairs_that_a_person_found_join_those_that_are_found(tmp_path):
    (tmp_path / "pairs.csv").write_text("file_name,copy_of\ncyd/4.png,ann/1.png\nben/0.png,ann/0.png\n")
    found = twins(tmp_path, near_copies={"credit": "split", "pairs": "pairs.csv"})
    assert "cyd/4.png" in [each.name for each in found.near_copies.copies] + [
        each.original for each in found.near_copies.copies
    ]
    stated = [each for each in found.near_copies.copies if each.distance is None]
    assert [{each.name, each.original} for each in stated] == [{"cyd/4.png", "ann/1.png"}]
    assert all(each.distance == 0 for each in found.near_copies.copies if each not in stated)
    data = data_settings(found.config, found.contributions)
    assert data["near_copies"] == {"credit": "split", "distance": 12, "excluded": 5, "stated": 1}
    assert tmp_path / "pairs.csv" in [*_named_paths(found.config)]
    before = _about_images(found)
    (tmp_path / "pairs.csv").write_text("file_name,copy_of\n")
    assert _about_images(found) != before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no file there; a CSV or JSON lines file of pairs is accepted"),
        ("file_name\nann/0.png\n", ":2: no column 'copy_of'; there are: file_name"),
        ("file_name,copy_of\nann/0.png,x.png\n", ":2: copy_of 'x.png' is no training image of the study"),
        ("file_name,copy_of\n../x,ann/0.png\n", ":2: file_name '../x' leads out of the folder"),
        ("file_name,copy_of\nann/0.png,ann/0.png\n", ":2: 'ann/0.png' beside itself; two images are accepted"),
    ],
)
def test_pairs_that_no_rule_can_use(tmp_path, text, said):
    if text is not None:
        (tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(UserError) as caught:
        _ = twins(tmp_path, near_copies={"credit": "split", "pairs": "pairs.csv"}).contributions
    assert f"near_copies.pairs: {tmp_path / 'pairs.csv'}" in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
