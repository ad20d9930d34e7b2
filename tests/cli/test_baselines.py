"""``diffcredit baselines`` and ``diffcredit explain`` on a finished study."""

import csv
import json

import pytest
from PIL import Image
from scipy.stats import spearmanr

from diffcredit.baselines import BASELINES
from diffcredit.study import Study
from tiny_study import write_study

QUICK = ("image_count", "random_ranking", "training_property", "pixel_similarity")


def table(folder):
    with (folder / "results" / "baselines.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def asked(*names):
    return [part for name in names for part in ("--method", name)]


def test_the_table_the_file_and_the_report(finished, diffcredit):
    code, out, err = diffcredit("baselines", finished, *asked(*QUICK), warned=True)
    assert code == 0, err
    for name in ("image_count", "pixel_similarity (mean)", "pixel_similarity (max)"):
        assert name in out
    rows = table(finished)
    study = Study.load(finished)
    names = study.contributions.contributors
    counts = {row["contributor"]: float(row["credit"]) for row in rows if row["method"] == "image_count"}
    assert counts == dict(zip(names, study.contributions.counts.astype(float), strict=True))
    page = (finished / "results" / "report.html").read_text(encoding="utf-8")
    assert 'id="baselines"' in page
    assert "pixel_similarity (max)" in page
    assert "How far the methods agree with each other" in page
    # the printed correlation is scipy's, of the credits that the study reports
    credits = study.credits()["colourfulness"].values
    shown = next(line for line in out.splitlines() if line.split()[:1] == ["image_count"]).split()
    expected = spearmanr(credits, [counts[name] for name in names]).statistic
    assert f"{expected:+.2f}" in shown


def test_a_property_that_is_better_low_turns_only_what_measures_it(finished, diffcredit):
    from diffcredit.report.baselines import compared, study_helpfulness
    from diffcredit.study_baselines import kept_baselines

    assert diffcredit("baselines", finished, *asked("image_count", "training_property"), warned=True)[0] == 0
    study = Study.load(finished)
    rows = {row.name: row for row in compared(kept_baselines(study), study_helpfulness(study))}
    loss = study.credits()["heldout_loss"].values
    expected = spearmanr(-loss, study.contributions.counts).statistic  # a lower loss is better
    assert rows["image_count"].correlations["heldout_loss"] == pytest.approx(expected)
    assert rows["training_property"].correlations["heldout_loss"] is None  # no images measure it
    assert set(rows["training_property"].correlations) == {"heldout_loss", "colourfulness", "cluster_entropy"}


def test_what_was_computed_is_found_again(finished, diffcredit, monkeypatch):
    assert diffcredit("baselines", finished, *asked("pixel_similarity"), warned=True)[0] == 0
    before = table(finished)
    from diffcredit.baselines.similarity import PixelSimilarity

    def never(*_):
        raise AssertionError("it is kept")

    monkeypatch.setattr(PixelSimilarity, "scores", never)
    assert diffcredit("baselines", finished, *asked("pixel_similarity"), warned=True)[0] == 0
    assert table(finished) == before
    assert diffcredit("baselines", finished, *asked("image_count"), warned=True)[0] == 0
    assert {row["method"] for row in table(finished)} == {"pixel_similarity", "image_count"}  # none is lost
    kept = [json.loads(file.read_text()) for file in (finished / "results" / "baselines").glob("pixel_sim*.json")]
    assert len(kept) == 1
    assert {row["how"] for row in kept[0]["rows"]} == {"mean", "max"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("track", "--method: 'track' is unknown; accepted: image_count"),
        ("{dimensions: 5}", "--method: '{dimensions: 5}' is not accepted; a name"),
        ("{name: image_count, size: 5}", "--method.size: unknown; image_count accepts no options"),
        ("argparse:Namespace", "has neither scores(evidence) nor credits(evidence)"),
    ],
)
def test_refused(text, said, finished, diffcredit):
    code, _, err = diffcredit("baselines", finished, "--method", text)
    assert (code, said in err) == (2, True), err
    assert err.count("\n") == 1


def test_every_name_leads_to_a_method_with_words():
    from diffcredit.plugins import build

    for name in BASELINES:
        baseline = build(name, {}, BASELINES, where="--method", beside=None)
        assert baseline.name == name
        assert baseline.title
        assert hasattr(baseline, "credits") != hasattr(baseline, "scores")
        if hasattr(baseline, "scores"):
            assert set(baseline.aggregations) <= {"sum", "mean", "max"}


def test_a_copy_of_a_training_image_is_explained_by_it(finished, diffcredit, tmp_path):
    study = Study.load(finished)
    row = 77
    file = tmp_path / "odd name.png"
    Image.fromarray(study.contributions.images[row]).save(file)
    code, out, err = diffcredit("explain", finished, file, *asked("pixel_similarity"), warned=True)
    assert code == 0, err
    first = next(line for line in out.splitlines() if line.strip().startswith("pixel_similarity"))
    assert study.contributions.contributors[study.contributions.owner[row]] in first
    assert study.contributions.names[row] in " ".join(out.split())
    page = (finished / "results" / "explain-odd-name.html").read_text(encoding="utf-8")
    assert page.count("<li>") == 8
    assert page.count("data:image/png") == 9
    assert study.contributions.names[row] in page


def test_a_generated_image_is_named_by_its_seed(finished, diffcredit, tmp_path):
    sheet = tmp_path / "sheet.html"
    code, _, err = diffcredit("explain", finished, 2, *asked("pixel_similarity"), "--output", sheet, warned=True)
    assert (code, sheet.exists()) == (0, True), err
    code, _, err = diffcredit("explain", finished, 99, *asked("pixel_similarity"))
    assert (code, err) == (2, "error: PICTURE: seed 99; those of the study's images are 0 to 3\n")
    code, _, err = diffcredit("explain", finished, 2, *asked("image_count"))
    assert (code, "scores no images one by one" in err) == (2, True)
    code, _, err = diffcredit("explain", finished, "nowhere.png", *asked("pixel_similarity"))
    assert code == 2
    assert "nowhere.png" in err


def test_before_any_evaluation_there_is_nothing_to_compare_with(tmp_path, diffcredit):
    file = write_study(tmp_path, {"properties": [{"name": "colourfulness"}]})
    code, out, err = diffcredit("baselines", file, *asked("image_count"), warned=True)
    assert code == 0, err
    assert "rank correlation" not in out
    assert (tmp_path / "results" / "baselines.csv").exists()
