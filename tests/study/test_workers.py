"""What a node that sees none of a study's files is sent."""

from pathlib import Path
from typing import Any

from diffcredit.study.study import Study
from tiny_study import write_study


def sent(folder: Path, changes: dict[str, Any]) -> dict[str, list[str]]:
    """By root, what of it, relative to ``folder``."""
    files = Study.load(write_study(folder, changes)).recipe.worker_files()
    assert files.folder == folder / "results"
    return {
        root.relative_to(folder).as_posix(): sorted(path.relative_to(folder).as_posix() for path in paths)
        for root, paths in files.roots.items()
    }


def made(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_of_a_study_of_bundled_images_only_what_it_made(tmp_path):
    made(tmp_path, "other.py")
    assert sent(tmp_path, {}) == {".": ["study.yaml"], "results": ["results/models"]}


def test_images_models_weights_and_plug_ins(tmp_path):
    made(
        tmp_path,
        "images/metadata.csv",
        "heldout/1.png",
        "pipeline/model_index.json",
        "weights.pt",
        "extract.py",
        "ours/1.png",
    )
    made(tmp_path, "mine/__init__.py", "helper.py", "others/__init__.py", "ours/1.png")
    changes = {
        "contributions": {"path": "images/metadata.csv", "holdout": "heldout", "resolution": 16, "house": "ours"},
        "model.pretrained": "pipeline",
        "properties": [
            {"name": "mine.properties:Warmth"},
            {"name": "fid", "features": {"name": "extract:Extractor", "weights": "weights.pt"}},
        ],
    }
    assert sent(tmp_path, changes) == {
        ".": ["extract.py", "helper.py", "mine", "study.yaml"],
        "results": ["results/models"],
        "images": ["images"],
        "heldout": ["heldout"],
        "ours": ["ours"],
        "pipeline": ["pipeline"],
        "weights.pt": ["weights.pt"],
    }


def test_a_study_file_among_its_images(tmp_path):
    assert sent(tmp_path, {"contributions": {"path": ".", "resolution": 16}})["."] == [".", "study.yaml"]
