import re
from html.parser import HTMLParser

import pytest

from diffcredit.cli.report import write_results
from diffcredit.contributions import load_contributions
from diffcredit.errors import DiffcreditWarning
from diffcredit.execution.threads import limited_threads
from diffcredit.study.study import Study
from tiny_study import files_below, images_of, run_here, write_study


class Page(HTMLParser):
    """The texts of a page by tag, its pictures and their words."""

    def __init__(self, html):
        super().__init__()
        self.open, self.texts, self.pictures = [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        if tag == "img":
            self.pictures.append(dict(attributes))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style") and data.strip():
            self.texts.append(" ".join(data.split()))

    @property
    def text(self):
        return " ".join(self.texts)


def report_of(folder):
    with limited_threads(1):
        write_results(Study.load(folder))
    return Page((folder / "results/report.html").read_text(encoding="utf-8"))


SMALL = {
    "contributions": {"path": "images", "resolution": 16},
    "properties": ["colourfulness"],
    "retraining": {"method": "fine_tune", "steps": 1},
    "stop.evaluations": 8,
}


def test_the_report_of_a_study(finished):
    page = report_of(finished)
    for name in load_contributions(source="openmoji").contributors:
        assert page.text.count(name) >= 3  # once for each property
    for words in ("Held-out loss", "Colourfulness", "Diversity", "Hasler–Süsstrunk M3", "nats"):
        assert words in page.text
    samples = [picture for picture in page.pictures if len(picture["alt"]) > 40]
    base, everybody, without = (picture["alt"] for picture in samples)
    assert base.endswith("trained on all contributions, seeds 0 to 3.")
    assert re.search(r"coalition of all contributors.*F\(all\)", everybody)
    assert "The same retraining without " in without
    assert all(picture["src"].startswith("data:image/png;base64,") for picture in samples)
    assert "16 px" in page.text
    assert "failed and are left out" not in page.text
    assert "copying" not in page.text


def test_without_the_top_contributors_means_the_most_helpful(finished):
    """A fifth of twelve, rounded: the two with the lowest credit for the loss, of which less is better."""
    credit = Study.load(finished).credits()["heldout_loss"]
    names = load_contributions(source="openmoji").contributors
    best = sorted(range(12), key=lambda i: credit.values[i])[:2]
    page = report_of(finished)
    (caption,) = {picture["alt"] for picture in page.pictures if "same retraining without" in picture["alt"]}
    assert f"without {names[best[0]]}, {names[best[1]]}, who helped most with Held-out loss" in caption


def test_pictures_are_made_once(finished):
    report_of(finished)
    pictures = {name for name in files_below(finished) if "pictures-" in name}
    times = {name: (finished / name).stat().st_mtime_ns for name in pictures}
    assert len(times) == 2
    report_of(finished)
    assert {name: (finished / name).stat().st_mtime_ns for name in pictures} == times


def test_copied_images_are_noted(tmp_path):
    images_of(tmp_path / "images", ["ada", "bob", "<i>cem<i>"])
    for index in range(2):
        (tmp_path / f"images/bob/{index}.png").write_bytes((tmp_path / f"images/ada/{index}.png").read_bytes())
    run_here(write_study(tmp_path, SMALL))
    page = report_of(tmp_path)
    assert "The same 2 images were given by ada, bob (such as ada/0.png, bob/0.png): copying" in page.text
    assert "<i>cem<i>" in page.text


MOODY = """
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
"""


def test_failures_are_noted(tmp_path):
    (tmp_path / "moody_for_reports.py").write_text(MOODY)
    images_of(tmp_path / "images", ["ada", "bob", "cem"])
    sections = ["moody_for_reports:Moody", "moody_for_reports:Never"]
    run_here(write_study(tmp_path, {**SMALL, "properties": sections}))
    with pytest.warns(DiffcreditWarning, match="never: no credits"):
        page = report_of(tmp_path)
    assert "moody: 1 evaluations failed and are left out; nothing was filled in." in page.text
    assert "never: no credits: there are too few values, 0. 10 are missing because measuring failed" in page.text


BURNING = """
from diffcredit.retraining.fine_tune import FineTune
class Burning(FineTune):
    broken = False
    def models_for(self, coalitions, seeds):
        for coalition, seed in zip(coalitions, seeds):
            if self.broken and not coalition.all():
                raise RuntimeError("fire")
            yield from super().models_for(coalition[None], [seed])
"""


def test_a_picture_that_cannot_be_made_does_not_cost_the_report(tmp_path):
    (tmp_path / "burning_for_reports.py").write_text(BURNING)
    images_of(tmp_path / "images", ["ada", "bob", "cem"])
    method = {"method": "burning_for_reports:Burning", "steps": 1}
    file = write_study(tmp_path, {**SMALL, "retraining": method})
    run_here(file)
    study = Study.load(file)
    type(study.retraining).broken = True
    with pytest.warns(DiffcreditWarning, match=r"Without the top contributor: no picture \(fire\)"):
        write_results(study)
    page = Page((tmp_path / "results/report.html").read_text(encoding="utf-8"))
    assert "Everybody" in page.text
    assert "Without the top contributor" not in page.text


def test_pictures_that_are_not_kept_are_left_out_where_nothing_may_be_retrained(tmp_path):
    images_of(tmp_path / "images", ["ada", "bob", "cem"])
    file = write_study(tmp_path, SMALL)
    run_here(file)
    kept = report_of(tmp_path).text
    study = Study.load(file)
    write_results(study, retrain=False)
    assert Page((tmp_path / "results/report.html").read_text(encoding="utf-8")).text.count("Everybody") == kept.count(
        "Everybody"
    )
    for pictures in (tmp_path / "results/models").glob("pictures-*"):
        pictures.unlink()
    write_results(study, retrain=False)
    page = Page((tmp_path / "results/report.html").read_text(encoding="utf-8"))
    assert "The base model" in page.text
    assert "Everybody" not in page.text
    assert not list((tmp_path / "results/models").glob("pictures-*"))


def test_a_property_that_left_the_study_file(finished):
    """What was measured stays in the ledger, and in the report, under its plain name."""
    write_study(finished, {"properties": ["colourfulness"]})
    page = report_of(finished)
    assert "cluster_entropy" in page.text
    assert "Diversity" not in page.text
    assert "Colourfulness" in page.text


def test_two_settings_of_one_property_are_told_apart(tmp_path):
    images_of(tmp_path / "images", ["ada", "bob", "cem"])
    (tmp_path / "redness.py").write_text(
        "def warm(images, power: float = 1.0):\n"
        '    """How red."""\n'
        "    return float((images[..., 0] / 255.0).mean() ** power)\n"
        "warm.bias = 'Hardly any.'\n"
    )
    sections = [{"name": "redness:warm"}, {"name": "redness:warm", "power": 2.0, "as": "squared"}]
    run_here(write_study(tmp_path, {**SMALL, "properties": sections}))
    page = report_of(tmp_path)
    assert page.texts.count("Warm") == 4  # in short, as a tab, above its credits and among the endpoints
    assert page.texts.count("squared") > 4  # and what the first one is not, among the settings
    assert "Warm. How red. Bias: Hardly any." in page.text  # of the second
    assert "2.0" in page.texts[page.texts.index("power") :][:2]
