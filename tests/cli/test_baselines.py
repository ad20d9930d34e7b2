"""``diffcredit baselines`` and ``diffcredit explain`` on a finished study."""

import csv
import json
import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from scipy.stats import spearmanr

from diffcredit.baselines import BASELINES
from diffcredit.study.study import Study
from tiny_study import images_of, write_study

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
    from diffcredit.baselines.study import kept_baselines
    from diffcredit.report.baselines import compared, study_helpfulness

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


def test_two_settings_of_one_method_are_two_rows(finished, diffcredit):
    settings = ["clusters=2", "clusters=3"]
    methods = [f"{{name: cluster_distance, {setting.replace('=', ': ')}}}" for setting in settings]
    code, out, err = diffcredit("baselines", finished, *asked(*methods), warned=True)
    assert code == 0, err
    rows, page = table(finished), (finished / "results" / "report.html").read_text(encoding="utf-8")
    contributors = len(Study.load(finished).contributions.contributors)
    for setting in settings:
        assert sum(row["options"] == setting for row in rows) == 2 * contributors  # mean and max
        for how in ("mean", "max"):
            name = f"cluster_distance ({how}, {setting})"
            assert page.count(name) == 2  # beside the credits, and where the methods agree with each other
        assert f"{setting})" in out
    assert len(rows) == 4 * contributors


def test_trak_of_two_models(tmp_path, diffcredit):
    images_of(tmp_path / "images", ["ada", "bob", "cem"])
    contributions = {"path": "images", "resolution": 16}
    file = write_study(tmp_path, {"contributions": contributions, "properties": [{"name": "colourfulness"}]})
    trak = "{name: trak, time_steps: 1, dimensions: 16, models: 2}"
    code, out, err = diffcredit("baselines", file, *asked(trak), warned=True)
    assert code == 0, err
    assert "training replicate 1 of the base model" in out
    assert "lambda[1]" in out
    rows = table(tmp_path)
    assert [row["contributor"] for row in rows] == ["ada", "bob", "cem"] * 2
    assert {row["options"] for row in rows} == {"dimensions=16, models=2, time_steps=1"}
    code, _, err = diffcredit("baselines", file, *asked("{name: trak, models: 0}"))
    assert (code, "--method.models: 0 is not accepted" in err) == (2, True), err


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
    from diffcredit.util.plugins import build

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


def test_two_settings_of_a_method_explain_side_by_side(finished, diffcredit, tmp_path):
    few = ("{name: trak, lam: 1, time_steps: 1, dimensions: 4}", "{name: trak, lam: 2, time_steps: 1, dimensions: 4}")
    sheet = tmp_path / "sheet.html"
    code, _, err = diffcredit("explain", finished, 0, *asked(*few), "--output", sheet, warned=True)
    assert code == 0, err
    assert all(f"lam={lam}.0" in sheet.read_text(encoding="utf-8") for lam in (1, 2))


def header_of(side):
    """A PNG whose header promises so many pixels a side, and nothing more."""
    header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = [struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))]
    for kind in (b"IDAT", b"IEND"):
        parts.append(struct.pack(">I", 0) + kind + struct.pack(">I", zlib.crc32(kind)))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.filterwarnings("error::PIL.Image.DecompressionBombWarning")
def test_a_large_picture_is_refused_in_one_line(tmp_path, diffcredit):
    """Pillow warns of such, and raises only from twice as many pixels on."""
    file, picture = write_study(tmp_path), tmp_path / "large.png"
    picture.write_bytes(header_of(11_000))
    code, _, err = diffcredit("explain", file, picture, *asked("pixel_similarity"))
    said = f"{picture}: 11000 x 11000 pixels; at most 64 megapixels are accepted"
    assert (code, err) == (2, f"error: PICTURE: {said}; an image file or a seed is expected\n")


def test_a_mistake_in_the_study_is_told_once(tmp_path, diffcredit):
    file = write_study(tmp_path, {"properties": [{"name": "colorfulness"}]})
    for methods in ([], asked("image_count")):
        code, _, err = diffcredit("baselines", file, *methods)
        assert (code, err.count(str(file)), err.count("\n")) == (2, 1, 1), err
        assert err.startswith(f"error: {file}: properties.0: 'colorfulness' is unknown")


def test_a_picture_that_cannot_be_read_says_so_before_a_model_is_trained(tmp_path, diffcredit):
    file = write_study(tmp_path)
    Image.new("RGB", (64, 64), "red").save(tmp_path / "whole.bmp")
    pictures = {
        "bomb.png": header_of(30_000),
        "none.png": header_of(16),
        "text.png": b"hello",
        "cut.bmp": (tmp_path / "whole.bmp").read_bytes()[:900],
    }
    for name, content in pictures.items():
        (tmp_path / name).write_bytes(content)
        code, out, err = diffcredit("explain", file, tmp_path / name, *asked("pixel_similarity"))
        assert code == 2
        assert err.startswith(f"error: PICTURE: {tmp_path / name}: ")
        assert err.count("\n") == 1
        assert "training" not in out
    code, out, err = diffcredit("explain", file, 99, *asked("pixel_similarity"))
    assert (code, "training" in out) == (2, False)
    code, out, err = diffcredit("explain", file, 0, *asked("pixel_similarity"), "--output", tmp_path)
    assert (code, err) == (2, f"error: --output: {tmp_path} is a folder; a file is expected\n")


def test_names_of_pictures_and_images_are_data(tmp_path, diffcredit):
    images = images_of(tmp_path / "images", ["ann", "bob"], 2)
    evil = images / "ann" / "\x1b[31mred\n.png"
    Image.fromarray(np.full((16, 16, 3), 9, np.uint8)).save(evil)
    changes = {"contributions": {"path": "images", "resolution": 16}, "properties": [{"name": "colourfulness"}]}
    file = write_study(tmp_path, changes)
    for name in ("绘画.png", "图片.png"):
        Image.open(evil).save(tmp_path / name)
        code, out, err = diffcredit("explain", file, tmp_path / name, *asked("pixel_similarity"), warned=True)
        assert code == 0, err
        assert "red" in out
        assert "\x1b" not in out
        assert (tmp_path / "results" / f"explain-{name[:2]}.html").exists()


def test_a_generated_image_is_named_by_its_seed(finished, diffcredit, tmp_path):
    sheet = tmp_path / "sheet.html"
    code, _, err = diffcredit("explain", finished, 2, *asked("pixel_similarity"), "--output", sheet, warned=True)
    assert (code, sheet.exists()) == (0, True), err
    code, _, err = diffcredit("explain", finished, 99, *asked("pixel_similarity"))
    assert (code, err) == (2, "error: PICTURE: seed 99; the study's images have the seeds 0 to 3\n")
    code, _, err = diffcredit("explain", finished, 2, *asked("image_count"))
    assert (code, "does not score single images" in err) == (2, True)
    code, _, err = diffcredit("explain", finished, "nowhere.png", *asked("pixel_similarity"))
    assert code == 2
    assert "nowhere.png" in err


def test_before_any_evaluation_there_is_nothing_to_compare_with(tmp_path, diffcredit):
    file = write_study(tmp_path, {"properties": [{"name": "colourfulness"}]})
    code, out, err = diffcredit("baselines", file, *asked("image_count"), warned=True)
    assert code == 0, err
    assert "rank correlation" not in out
    assert (tmp_path / "results" / "baselines.csv").exists()
