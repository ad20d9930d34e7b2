import io
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from diffcredit.cli.export import export, restore
from diffcredit.contributions import load_contributions
from diffcredit.errors import DiffcreditWarning
from diffcredit.execution.threads import limited_threads
from diffcredit.report.composing import compose, write_results
from diffcredit.report.cost import cost
from diffcredit.report.records import Given
from diffcredit.study.study import Study
from tiny_study import SMALL, files_below, images_of, run_here, write_study

from .made_up import Page


def report_of(folder, **options):
    with limited_threads(1):
        write_results(Study.load(folder), **options)
    return Page((folder / "results/report.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def emoji(_finished, tmp_path_factory):
    """The folder of the tiny study, with its report."""
    folder = shutil.copytree(_finished, tmp_path_factory.mktemp("emoji") / "study")
    report_of(folder)
    return folder


def test_the_report_of_a_study(emoji):
    page = Page((emoji / "results/report.html").read_text(encoding="utf-8"))
    names = load_contributions(source="openmoji").contributors
    for name in names:
        assert page.text.count(name) >= 3  # once for each property
    for words in ("Held-out loss", "Colourfulness", "Diversity", "Hasler–Süsstrunk M3", "nats", "16 px"):
        assert words in page.text
    samples = [picture for picture in page.all("img") if len(picture["alt"]) > 40]
    assert all(picture["src"].startswith("data:image/png;base64,") for picture in samples)
    base, everybody, without = (picture["alt"] for picture in samples)
    assert base.endswith("trained on all contributions, seeds 0 to 3.")
    assert re.search(r"coalition of all contributors.*F\(all\)", everybody)
    # the most helpful fifth of twelve, rounded: the two with the lowest credit for the loss, of which less is better
    credit = Study.load(emoji).credits()["heldout_loss"]
    first, second = (names[i] for i in sorted(range(12), key=lambda i: credit.values[i])[:2])
    assert f"The same retraining without {first}, {second}, who helped most with Held-out loss" in without
    for words in ("failed and are left out", "copying"):
        assert words not in page.text


def test_pictures_are_made_once_and_a_property_may_leave_the_study_file(emoji, tmp_path):
    """What was measured stays in the ledger, and in the report, under its plain name."""
    folder = shutil.copytree(emoji, tmp_path / "study")
    pictures = {name: (folder / name).stat().st_mtime_ns for name in files_below(folder) if "pictures-" in name}
    assert len(pictures) == 2
    write_study(folder, {"properties": ["colourfulness"]})
    page = report_of(folder, retrain=False)
    assert {name: (folder / name).stat().st_mtime_ns for name in pictures} == pictures
    for words in ("cluster_entropy", "Colourfulness", "Everybody"):
        assert words in page.text
    assert "Diversity" not in page.text


ODDITIES = '''
from diffcredit.retraining.fine_tune import FineTune

class Moody:
    name = "moody"
    calls = 0
    def measure(self, images):
        self.calls += 1
        if self.calls == 5:
            raise RuntimeError("not today")
        return float(images.mean())

class Never(Moody):
    name = "never"
    def measure(self, images):
        raise RuntimeError("never")

def warm(images, power: float = 1.0):
    """How red."""
    return float((images[..., 0] / 255.0).mean() ** power)
warm.bias = 'Hardly any.'

class Burning(FineTune):
    broken = False
    def models_for(self, coalitions, seeds):
        for coalition, seed in zip(coalitions, seeds):
            if self.broken and not coalition.all():
                raise RuntimeError("fire")
            yield from super().models_for(coalition[None], [seed])
'''


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A study with copied images, properties that fail or come twice, and a retraining that can be broken."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "report_oddities.py").write_text(ODDITIES)
    images_of(folder / "images", ["ada", "bob", "<i>cem<i>"])
    for index in range(2):
        (folder / f"images/bob/{index}.png").write_bytes((folder / f"images/ada/{index}.png").read_bytes())
    warm = {"name": "report_oddities:warm"}
    changes = {
        "contributions": {"path": "images", "resolution": 16},
        "properties": [warm, {**warm, "power": 2.0, "as": "squared"}, "report_oddities:Moody", "report_oddities:Never"],
        "retraining": {"method": "report_oddities:Burning", "steps": 1},
        "stop.evaluations": 8,
    }
    run_here(write_study(folder, changes))
    return folder


@pytest.mark.filterwarnings("ignore:never")
def test_pictures_that_are_not_there_are_left_out_where_nothing_may_be_retrained(odd):
    page = report_of(odd, retrain=False)
    assert "The base model" in page.text
    assert "Everybody" not in page.text
    assert not list((odd / "results/models").glob("pictures-*"))


@pytest.mark.filterwarnings("ignore:never")
def test_a_picture_that_cannot_be_made_does_not_prevent_the_report(odd, monkeypatch):
    monkeypatch.setattr(type(Study.load(odd).recipe.retraining), "broken", True)
    with pytest.warns(DiffcreditWarning, match=r"Without the top contributor: no picture \(fire\)"):
        page = report_of(odd)
    assert "Everybody" in page.text
    assert "Without the top contributor" not in page.text


def test_what_asks_for_care_is_noted(odd):
    with pytest.warns(DiffcreditWarning, match="never: no credits"):
        page = report_of(odd)
    assert "The same 2 images were given by ada, bob (such as ada/0.png, bob/0.png): copying" in page.text
    assert "<i>cem<i>" in page.text
    assert "moody: 1 evaluations failed and are left out; nothing was filled in." in page.text
    assert "never: no credits: there are too few values, 0. 10 are missing because measuring failed" in page.text
    # two settings of one property are distinguished
    # in short, as a tab, above its credits, among the endpoints, and for each of three contributors
    assert page.texts.count("Warm") == 4 + 3
    assert page.texts.count("squared") > 4  # the first one is not named so among the settings
    assert "Warm. How red. Bias: Hardly any." in page.text  # of the second
    assert "2.0" in page.texts[page.texts.index("power") :][:2]


@pytest.fixture(scope="module")
def painted(tmp_path_factory):
    """A study of two painters, whose originals are larger than what is trained on, and a third with an unreadable one;
    a third of everybody's images is held out."""
    folder = tmp_path_factory.mktemp("painted")
    for name, colour in (("ada", (250, 0, 0)), ("bob", (0, 250, 0)), ("cem", (0, 0, 250))):
        (folder / "images" / name).mkdir(parents=True)
        for index in range(6):
            half = Image.new("RGB", (128, 128), colour)
            half.paste((index, index, index), (0, 0, 64, 128))
            half.save(folder / f"images/{name}/{index}.png")
    (folder / "images/cem/0.png").write_bytes(b"")
    contributions = {"path": "images", "resolution": 16, "holdout": 1 / 3, "unreadable": "skip"}
    run_here(write_study(folder, SMALL | {"contributions": contributions}))
    return folder


def test_what_became_of_the_images_and_the_originals_are_shown(painted):
    study = Study.load(painted)
    with limited_threads(1):
        report = compose(study)
    assert (report.given["ada"], report.given["cem"].given) == (Given(6, 2), 6)
    assert sum(each.unreadable for each in report.given.values()) == 1
    assert sum(each.held_out for each in report.given.values()) == len(study.contributions.heldout)
    used = {name: each.used for name, each in report.given.items()}
    assert used == dict(zip(report.tables[0].contributors, report.tables[0].images, strict=True))
    held_out = len(study.contributions.heldout)
    assert report.images.startswith(f"3 contributors gave 18 images: {17 - held_out} were used, {held_out} held out, ")
    assert "and 1 could not be read" in report.images
    for name, colour in (("ada", 0), ("bob", 1), ("cem", 2)):
        assert len(report.thumbnails[name]) == min(4, used[name])
        for content in report.thumbnails[name]:
            pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"), dtype=int)
            assert pixels.shape == (96, 96, 3)
            # as sharp as the original: what is trained on has 16 pixels
            edge = pixels[:, :, colour].mean(axis=0)
            assert (edge[:46].max() < 40, edge[50:].min() > 200) == (True, True)
    gone = (painted / "images/ada/1.png").rename(painted / "gone.png")
    assert "ada/1.png" not in study.original_images([f"ada/{i}.png" for i in range(6)], 96)
    gone.rename(painted / "images/ada/1.png")


def test_the_cost_names_what_is_counted_and_what_was_not_recorded(finished):
    study = Study.load(finished)
    with study.ledger() as ledger:
        rows = {row.what: row for row in cost(study, ledger, trains_base=True)}
    base, preparation, endpoints, design = rows.values()
    assert (base.what, base.done) == ("training of the base model", None)
    assert base.total > 0
    assert preparation.total > 0
    assert {endpoints.done, design.done} == {2, 16}
    seconds = [evaluation.seconds for evaluation in study.evaluations("done")]
    assert design.total + endpoints.total == pytest.approx(sum(sum(each.values()) for each in seconds))
    shutil.rmtree(finished / "results/.locks")
    with study.ledger() as ledger:
        assert [row.total for row in cost(study, ledger, trains_base=True)][:2] == [None, None]
        assert cost(study, ledger, trains_base=False)[0].what != base.what


@pytest.mark.filterwarnings("ignore:.*not compared with the ledger. the images")
def test_an_auditor_without_the_images_reads_what_could_not_be_shown(painted, tmp_path):
    export(str(painted), tmp_path / "study.zip", with_models=False)
    restore(tmp_path / "study.zip", tmp_path / "audit")
    with pytest.warns(DiffcreditWarning, match=r"the report is without images: .*audit/images: does not exist"):
        write_results(Study.load(tmp_path / "audit"))
    page = Page((tmp_path / "audit/report.html").read_text(encoding="utf-8"))
    assert "The contributors’ images cannot be read here. So this report cannot show them" in page.text
    assert str(tmp_path) not in page.text
    assert "What the models generate" not in page.text
    assert not page.all("img")
    credits, theirs = Study.load(tmp_path / "audit").credits(), Study.load(painted).credits()
    assert {name: each.values.tolist() for name, each in credits.items()} == {
        name: each.values.tolist() for name, each in theirs.items()
    }
    for name in ("ada", "bob", "cem"):
        assert name in page.text
