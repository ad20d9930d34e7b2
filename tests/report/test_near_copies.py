"""The page of near-copies: who has what, what was done, escaping, and its limits."""

import shutil

import numpy as np
from PIL import Image

from contributions.near_copies_made import picture
from diffcredit.cli.near_copies import tell_near_copies
from diffcredit.contributions import NearCopies, NearCopy
from diffcredit.contributions.near_copies import looks, rules
from diffcredit.report.near_copies import MOST, PAGE, near_copies_in_words, render_near_copies, write_near_copies
from diffcredit.study.study import Study
from tiny_study import write_study

from .made_up import Page

HOSTILE = "<script>alert('\"&amp;')</script>\u202e.png"


def copy(name="b/1.png", giver="Ben", original="a/1.png", original_giver="Ann", distance=4, mirrored=False, done=""):
    return NearCopy(name, giver, original, original_giver, distance, mirrored, done)


def found(*copies, heldout=(), credit=None):
    return NearCopies(credit, 12, copies, tuple(heldout))


def text_of(made, pictures=None):
    return " ".join(Page(render_near_copies("mine", made, pictures or {}, 16)).text.split())


def test_the_page_says_who_how_alike_and_what_was_done():
    made = found(
        copy(done=rules.EARLIER),
        copy("a/2.png", "Ann", "a/1.png", "Ann", 0, done=rules.OWN),
        heldout=[copy("h/1.png", rules.NOBODY, mirrored=True, distance=2)],
        credit="first",
    )
    text = text_of(made)
    for said in (
        "2 images are near-copies of another. Of each group, the image with the earliest date counts.",
        "Between contributors 1",
        "Of one contributor 1",
        "Held out and trained on 1",
        f"4 of 64 bits differ. The right one: {rules.EARLIER}.",
        f"alike in all 64 bits. The right one: {rules.OWN}.",
        "2 of 64 bits differ, mirrored.",
        "not to be read here",
    ):
        assert said in text, said


def test_the_console_says_how_many_of_whom():
    made = found(copy(), copy(giver="Ann"), copy("c"), heldout=[copy()])
    assert near_copies_in_words(made) == [
        "3 images are near-copies of others, and count like all images: 2 of somebody else’s image, 1 of a "
        "contributor’s own",
        "1 held-out images are near-copies of training images: there, memorising counts as learning",
    ]
    assert near_copies_in_words(found(copy(), credit="split"))[0].startswith(
        "1 near-copies are left out by the rule split"
    )
    assert near_copies_in_words(found()) == []


def test_hostile_names_stay_text():
    giver = HOSTILE.replace("\u202e", "")  # which no contributor's name may have
    page = render_near_copies(HOSTILE, found(copy(HOSTILE, giver, HOSTILE, giver)), {HOSTILE: b"x"}, 16)
    assert "<script" not in page
    assert "\u202e" not in page.partition("<main>")[2]
    read = Page(page)
    assert not read.all("script")
    assert {image["alt"] for image in read.all("img")} == {HOSTILE.replace("\u202e", "\\u202e")}
    assert "default-src 'none'; img-src data:; style-src 'sha256-" in page.replace("&#39;", "'")


def test_only_so_many_pairs_are_shown():
    page = Page(render_near_copies("mine", found(*(copy(f"{i}.png") for i in range(MOST + 7))), {}, 16))
    assert len(page.all("figure")) == 2 * MOST
    assert "And 7 more, not shown." in " ".join(page.text.split())


def a_study(folder, **section):
    """Ann's image twice by Ben, one of these under a hostile name, and others."""
    random = np.random.default_rng(0)
    for number, name in enumerate(("ann/a.png", "ann/b.png", "ben/c.png", "cyd/d.png")):
        coarse = Image.fromarray(random.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        file = folder / "images" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((96, 96), Image.Resampling.BICUBIC).save(file)
        if number == 0:
            (folder / "images/ben").mkdir()
            coarse.resize((64, 64), Image.Resampling.BICUBIC).save(folder / "images/ben/<b>&'\".png")
    return Study.load(write_study(folder, {"contributions": {"path": "images", "resolution": 16, **section}}))


def test_the_page_of_a_study(tmp_path, capsys):
    study = a_study(tmp_path)
    tell_near_copies(study)
    place = study.folder / PAGE
    assert capsys.readouterr().out == (
        "1 images are near-copies of others, and count like all images: 1 of somebody else’s image, 0 of a "
        f"contributor’s own: see {place}\n"
    )
    page = Page(place.read_text(encoding="utf-8"))
    assert [image["alt"] for image in page.all("img")] == ["ann/a.png", "ben/<b>&'\".png"]
    assert not page.all("b")


def test_images_left_out_are_shown_all_the_same(tmp_path):
    study = a_study(tmp_path, near_copies={"credit": "split"})
    write_near_copies(study)
    page = Page((study.folder / PAGE).read_text(encoding="utf-8"))
    assert len(page.all("img")) == 2
    shutil.rmtree(tmp_path / "images/ben")
    (tmp_path / "images/ben").mkdir()
    (tmp_path / "images/ben/x.png").write_bytes((tmp_path / "images/ann/b.png").read_bytes())
    write_near_copies(study)
    assert len(Page((study.folder / PAGE).read_text(encoding="utf-8")).all("img")) >= 1


SHAPES = """
import numpy as np
from diffcredit.features import Features

class Shapes:
    \"\"\"How far pixels are from grey: the same for a picture and its negative.\"\"\"
    batch_size, dimensions = 8, 3 * 16 * 16
    loaded = False

    def load(self, device):
        self.loaded = True

    def identity(self):
        return {"shapes": 1}

    def extract(self, images):
        assert self.loaded
        return Features(np.abs(images.reshape(len(images), -1).astype(np.float32) - 127.5))
"""


def test_a_negative_is_no_near_copy_and_stands_out(tmp_path, capsys):
    (tmp_path / "shapes.py").write_text(SHAPES)
    for number, name in enumerate(f"{who}/{i}.png" for who in ("ann", "ben", "cyd") for i in range(4)):
        pixels = picture(number)
        if name in ("ben/0.png", "cyd/1.png"):
            pixels = 255 - picture(0 if name == "ben/0.png" else number - 1)  # of Ann's, and of Cyd's own
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "images" / name)
    changes = {
        "contributions": {"path": "images", "resolution": 16},
        "properties": [{"name": "colourfulness"}, {"name": "nearest_distance", "features": "shapes:Shapes"}],
    }
    study = Study.load(write_study(tmp_path, changes))
    tell_near_copies(study)
    page = study.folder / PAGE
    assert capsys.readouterr().out == (
        f"1 pair of images by different contributors stands out as alike by Shapes, and may be copies: see {page}\n"
    )
    read = Page(page.read_text(encoding="utf-8"))
    assert [image["alt"] for image in read.all("img")] == ["ann/0.png", "ben/0.png", "cyd/0.png", "cyd/1.png"]
    text = " ".join(read.text.split())
    assert "Perhaps copies, by Shapes 1" in text
    assert "Perhaps the same work, by Shapes 1" in text
    assert "they stand out by 1.00." in text
    assert study.near_copies.copies == ()
    tell_near_copies(study, write=False)  # `plan` does not wait for features
    assert capsys.readouterr().out == ""
    (tmp_path / "pairs.csv").write_text("file_name,copy_of\nben/0.png,ann/0.png\n")
    changes["contributions"]["near_copies"] = {"credit": "split", "pairs": "pairs.csv"}
    judged = Study.load(write_study(tmp_path, changes))
    tell_near_copies(judged)
    text = " ".join(Page(page.read_text(encoding="utf-8")).text.split())
    assert "a pair that the study's file names. The right one: left out as near-copies" in text
    assert "Perhaps copies" not in text


def test_an_extractor_that_is_missing_hides_no_near_copies(tmp_path, capsys):
    study = a_study(tmp_path)
    broken = [{"name": "nearest_distance", "features": "no_such_module:Extractor"}]
    file = write_study(tmp_path, {"contributions": {"path": "images", "resolution": 16}, "properties": broken})
    tell_near_copies(Study.load(file))
    told = capsys.readouterr()
    assert told.out.startswith("1 images are near-copies of others")
    assert "look-alikes were not searched" in " ".join(told.err.split())
    assert (study.folder / PAGE).exists()


def test_a_page_that_is_out_of_date_goes(tmp_path):
    study = a_study(tmp_path)
    assert write_near_copies(study) == study.folder / PAGE
    shutil.rmtree(tmp_path / "images/ben")
    again = Study.load(tmp_path / "study.yaml")
    assert write_near_copies(again) is None
    assert not (study.folder / PAGE).exists()


def test_without_the_package_nothing_is_said_and_a_rule_is_refused(tmp_path, monkeypatch, capsys):
    def missing(name):
        raise ImportError(name)

    study = a_study(tmp_path)
    monkeypatch.setattr(looks, "import_module", missing)
    tell_near_copies(study)
    assert capsys.readouterr().out == ""
    assert not (study.folder / PAGE).exists()


def test_a_search_that_fails_is_only_a_warning(tmp_path, monkeypatch, capsys):
    from diffcredit.contributions.near_copies import finding

    monkeypatch.setattr(finding, "MOST_PAIRS", 0)
    monkeypatch.setattr(finding, "SEARCH", "another")
    tell_near_copies(a_study(tmp_path))
    told = capsys.readouterr()
    assert told.out == ""
    assert "near-copies were not searched" in " ".join(told.err.split())
