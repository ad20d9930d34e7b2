import re
import shutil

import pytest

from diffcredit.contributions import load_contributions
from diffcredit.errors import DiffcreditWarning
from diffcredit.execution.threads import limited_threads
from diffcredit.report.composing import write_results
from diffcredit.study.study import Study
from tiny_study import files_below, images_of, run_here, write_study

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
    assert page.texts.count("Warm") == 4  # in short, as a tab, above its credits and among the endpoints
    assert page.texts.count("squared") > 4  # the first one is not named so among the settings
    assert "Warm. How red. Bias: Hardly any." in page.text  # of the second
    assert "2.0" in page.texts[page.texts.index("power") :][:2]
