"""``diffcredit baselines`` and ``diffcredit explain`` on a small study."""

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
from tiny_study import images_of, write_small, write_study

PICTURE = "nowhere.png"
QUICK = ("image_count", "random_ranking", "training_property", "pixel_similarity")


def table(folder):
    with (folder / "results" / "baselines.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def asked(*names):
    return [part for name in names for part in ("--method", name)]


def test_the_table_the_file_and_the_report(small, diffcredit):
    out = diffcredit.printed("baselines", small, *asked(*QUICK), warned=True)
    for name in ("image_count", "pixel_similarity (mean)", "pixel_similarity (max)"):
        assert name in out
    rows = table(small)
    study = Study.load(small)
    names = study.contributions.contributors
    counts = {row["contributor"]: float(row["credit"]) for row in rows if row["method"] == "image_count"}
    assert counts == dict(zip(names, study.contributions.counts.astype(float), strict=True))
    page = (small / "results" / "report.html").read_text(encoding="utf-8")
    assert 'id="baselines"' in page
    assert "pixel_similarity (max)" in page
    assert "How far the methods agree with each other" in page
    # the printed correlation is scipy's, of the credits that the study reports
    credits = study.credits()["colourfulness"].values
    shown = next(line for line in out.splitlines() if line.split()[:2] == ["pixel_similarity", "(max)"]).split()
    found = {row["contributor"]: float(row["credit"]) for row in rows if row["aggregation"] == "max"}
    assert f"{spearmanr(credits, [found[name] for name in names]).statistic:+.2f}" in shown


def test_what_was_computed_is_found_again(small, diffcredit, monkeypatch):
    assert diffcredit("baselines", small, *asked("pixel_similarity"), warned=True)[0] == 0
    before = table(small)
    from diffcredit.baselines.similarity import PixelSimilarity

    def never(*_):
        raise AssertionError("it is kept")

    monkeypatch.setattr(PixelSimilarity, "scores", never)
    assert diffcredit("baselines", small, *asked("pixel_similarity"), warned=True)[0] == 0
    assert table(small) == before
    assert diffcredit("baselines", small, *asked("image_count"), warned=True)[0] == 0
    assert {row["method"] for row in table(small)} == {"pixel_similarity", "image_count"}  # none is lost
    kept = [json.loads(file.read_text()) for file in (small / "results" / "baselines").glob("pixel_sim*.json")]
    assert len(kept) == 1
    assert {row["how"] for row in kept[0]["rows"]} == {"mean", "max"}


def test_two_settings_of_one_method_are_two_rows(small, diffcredit):
    """By the models that were trained, two of them here."""
    settings = ["models=2", "lam=1.0, models=2"]
    methods = [
        "{name: trak, time_steps: 1, dimensions: 16, models: 2}",
        "{name: trak, time_steps: 1, dimensions: 16, models: 2, lam: 1}",
    ]
    out = diffcredit.printed("baselines", small, *asked(*methods), warned=True)
    assert "training replicate 1 of the base model" in out
    assert "lambda[1]" in out
    rows, page = table(small), (small / "results" / "report.html").read_text(encoding="utf-8")
    for setting in settings:
        setting = f"dimensions=16, {setting}, time_steps=1"
        assert [row["contributor"] for row in rows if row["options"] == setting] == ["ada", "bob", "cem"] * 2
        for how in ("sum", "mean"):
            name = f"trak ({how}, {setting})"
            assert page.count(name) == 2  # beside the credits, and where the methods agree with each other
    assert len(rows) == 4 * 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("track", "--method: 'track' is unknown; accepted: image_count"),
        ("{dimensions: 5}", "--method: '{dimensions: 5}' is not accepted; a name"),
        ("{name: image_count, size: 5}", "--method.size: unknown; image_count accepts no options"),
        ("{name: trak, models: 0}", "--method.models: 0 is not accepted"),
        ("argparse:Namespace", "has neither scores(evidence) nor credits(evidence)"),
    ],
)
def test_refused(text, said, tmp_path, diffcredit):
    code, _, err = diffcredit("baselines", write_study(tmp_path), "--method", text)
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


def test_a_copy_of_a_training_image_is_explained_by_it(small, diffcredit, tmp_path):
    study = Study.load(small)
    row = 13
    file = tmp_path / "odd name.png"
    Image.fromarray(study.contributions.images[row]).save(file)
    few = [f"{{name: trak, lam: {lam}, time_steps: 1, dimensions: 4}}" for lam in (1, 2)]
    out = diffcredit.printed("explain", small, file, *asked("pixel_similarity", *few), warned=True)
    first = next(line for line in out.splitlines() if line.strip().startswith("pixel_similarity"))
    assert study.contributions.contributors[study.contributions.owner[row]] in first
    assert study.contributions.names[row] in " ".join(out.split())
    page = (small / "results" / "explain-odd-name.html").read_text(encoding="utf-8")
    assert page.count("<li>") == 3 * 8
    assert page.count("data:image/png") == 3 * 8 + 1
    assert study.contributions.names[row] in page
    assert all(f"lam={lam}.0" in page for lam in (1, 2))  # two settings of a method, side by side


def header_of(side):
    """A PNG whose header promises so many pixels a side, and nothing more."""
    header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = [struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))]
    for kind in (b"IDAT", b"IEND"):
        parts.append(struct.pack(">I", 0) + kind + struct.pack(">I", zlib.crc32(kind)))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.filterwarnings("error::PIL.Image.DecompressionBombWarning")
def test_a_picture_that_cannot_be_read_says_so_before_a_model_is_trained(tmp_path, diffcredit):
    """Of a large one Pillow warns, and raises only from twice as many pixels on."""
    file = write_study(tmp_path)
    Image.new("RGB", (64, 64), "red").save(tmp_path / "whole.bmp")
    large = "11000 x 11000 pixels; at most 64 megapixels are accepted; an image file or a seed is expected\n"
    pictures = {
        "large.png": (header_of(11_000), large),
        "bomb.png": (header_of(30_000), ""),
        "none.png": (header_of(16), ""),
        "text.png": (b"hello", ""),
        "cut.bmp": ((tmp_path / "whole.bmp").read_bytes()[:900], ""),
    }
    for name, (content, said) in pictures.items():
        (tmp_path / name).write_bytes(content)
        code, out, err = diffcredit("explain", file, tmp_path / name, *asked("pixel_similarity"))
        assert (code, err.count("\n"), "training" in out) == (2, 1, False)
        assert err.startswith(f"error: PICTURE: {tmp_path / name}: {said}")
    said = diffcredit.refused("explain", file, 99, *asked("pixel_similarity"))
    assert said == "error: PICTURE: seed 99; the study's images have the seeds 0 to 3\n"
    assert "training" not in out
    said = diffcredit.refused("explain", file, 0, *asked("pixel_similarity"), "--output", tmp_path)
    assert said == f"error: --output: {tmp_path} is a folder; a file is expected\n"


def test_names_of_pictures_and_images_are_data(tmp_path, diffcredit):
    images = images_of(tmp_path / "images", ["ann", "bob"], 2)
    evil = images / "ann" / "\x1b[31mred\n.png"
    Image.fromarray(np.full((16, 16, 3), 9, np.uint8)).save(evil)
    changes = {"contributions": {"path": "images", "resolution": 16}, "properties": [{"name": "colourfulness"}]}
    file = write_study(tmp_path, changes)
    for name in ("绘画.png", "图片.png"):
        Image.open(evil).save(tmp_path / name)
        out = diffcredit.printed("explain", file, tmp_path / name, *asked("pixel_similarity"), warned=True)
        assert "red" in out
        assert "\x1b" not in out
        assert (tmp_path / "results" / f"explain-{name[:2]}.html").exists()


def test_a_generated_image_is_named_by_its_seed(small, diffcredit, tmp_path):
    sheet = tmp_path / "sheet.html"
    code, _, err = diffcredit("explain", small, 2, *asked("pixel_similarity"), "--output", sheet, warned=True)
    assert (code, sheet.exists()) == (0, True), err
    for picture, method, said in ((2, "image_count", "does not score single"), (PICTURE, "trak", PICTURE)):
        code, _, err = diffcredit("explain", small, picture, *asked(method))
        assert (code, said in err) == (2, True)


def test_before_any_evaluation_there_is_nothing_to_compare_with(tmp_path, diffcredit):
    file = write_small(tmp_path)
    out = diffcredit.printed("baselines", file, *asked("image_count"), warned=True)
    assert "rank correlation" not in out
    assert (tmp_path / "results" / "baselines.csv").exists()
