"""What a study's properties need is checked before anything is trained, and refused where it has changed."""

import shutil

import pytest

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.study.study import Study
from tiny_study import images_of, recorded_values, run_here, write_small

PLUG_INS = '''
from dataclasses import dataclass

import numpy as np

from diffcredit.features import Features


class Bright:
    """The mean of each channel; two classes."""

    label, batch_size, dimensions, classes = "bright", 4, 3, 2

    def load(self, device):
        pass

    def identity(self):
        return {"weights": ""}

    def extract(self, images):
        vectors = images.mean(axis=(1, 2)).astype(np.float32)
        return Features(vectors, vectors[:, :2])


class Reading(Bright):
    def embed_texts(self, texts):
        return np.ones((len(texts), 3), np.float32)


class Blind(Bright):
    def extract(self, images):
        raise OSError("dark")


class Vague(Bright):
    def identity(self):
        return {"weights": np.arange(3)}


class Mean:
    def measure(self, images):
        return float(images.mean())


class Picky(Mean):
    def check(self, contributions, images):
        1 / 0


class Unfit(Mean):
    def fit(self, context):
        1 / 0

    def restore(self, state):
        pass


class Forgetful(Unfit):
    def fit(self, context):
        return {"median": np.zeros(1)}

    def restore(self, state):
        self.mean = state["mean"]


@dataclass
class Weighed(Mean):
    weights: str
'''


@pytest.fixture
def write(tmp_path):
    """Writes the study with these properties."""
    images_of(tmp_path, ["few"], each=3)
    (tmp_path / "plug_ins.py").write_text(PLUG_INS)
    return lambda *properties: write_small(tmp_path, {"properties": list(properties), "stop.evaluations": 1})


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            {"name": "fid", "features": {"name": "pixels", "size": 1}, "reference": "few"},
            "reference: 3 images in '{folder}/few' for features of 3 dimensions; fid needs at least 4",
        ),
        (
            {"name": "kid", "features": "layout", "reference": "nowhere"},
            "reference: '{folder}/nowhere' is neither contributions nor heldout nor",
        ),
        (
            {"name": "class_share", "classes": 2, "features": "plug_ins:Bright"},
            "class_share.classes: 2 is no class; accepted: an index of 0 to 1",
        ),
        (
            {"name": "class_coverage", "classes": ["cat"], "features": "plug_ins:Bright"},
            "class_coverage.classes: 'cat' is a label, and the extractor has none",
        ),
        ({"name": "clip_similarity", "features": "layout"}, "clip_similarity.features: 'layout' embeds no texts"),
        (
            {"name": "clip_similarity", "features": "plug_ins:Reading"},
            "clip_similarity.prompt: missing, and the model follows no prompts",
        ),
        (
            {"name": "kid", "features": "plug_ins:Blind"},
            "features: plug_ins:Blind: extract(images) raised OSError: dark (",
        ),
        ({"name": "kid", "features": "plug_ins:Vague"}, "features: plug_ins:Vague: identity(), which is to be JSON, "),
        ("plug_ins:Picky", "Picky: its check raised ZeroDivisionError: division by zero (plug_ins.py, line "),
    ],
)
def test_what_a_property_cannot_do_with_shows_before_anything_is_trained(tmp_path, write, section, said):
    file = write(section)
    with pytest.raises(DiffcreditError) as raised:
        run_here(file)
    assert str(raised.value).startswith(f"{file}: properties.0: {said.format(folder=tmp_path)}")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Unfit", "fit(context) raised ZeroDivisionError: division by zero (plug_ins.py, line "),
        ("Forgetful", "restore(state) raised KeyError: 'mean' (plug_ins.py, line "),
    ],
)
def test_whatever_a_plug_in_raises_is_one_line(write, name, said):
    file = write(f"plug_ins:{name}")
    with pytest.raises(DiffcreditError) as raised:
        run_here(file)
    assert str(raised.value).startswith(f"{file}: properties.0: {name}: {said}")


def test_a_path_starts_from_the_study_file_and_not_from_the_working_directory(tmp_path, write, monkeypatch):
    file = write({"name": "kid", "features": "layout", "reference": "elsewhere"})
    (tmp_path / "working").mkdir()
    shutil.copytree(tmp_path / "few", tmp_path / "working/elsewhere")
    monkeypatch.chdir(tmp_path / "working")
    with pytest.raises(UserError, match=f"reference: '{tmp_path}/elsewhere' is neither"):
        run_here(file)


def test_a_reference_is_known_by_its_images(tmp_path, write):
    kid = {"name": "kid", "features": "layout"}
    run_here(write({**kid, "reference": "few"}))
    before = recorded_values(tmp_path)
    shutil.copytree(tmp_path / "few", tmp_path / "moved/few")
    assert run_here(write({**kid, "reference": "moved/few"})) == []
    images_of(tmp_path, ["other"], each=4)
    shutil.copy(tmp_path / "other/3.png", tmp_path / "few/0.png")
    with pytest.raises(UserError, match=r"property 'kid' has another fitted state than before .* restore what it was"):
        run_here(write({**kid, "reference": "few"}))
    run_here(write({**kid, "reference": "few", "as": "kid again"}))
    assert recorded_values(tmp_path).items() >= before.items()


def test_a_file_of_a_plug_in_is_known_by_its_content(tmp_path, write):
    weighed = {"name": "plug_ins:Weighed", "weights": "own.bin"}
    (tmp_path / "own.bin").write_bytes(b"1")
    run_here(write(weighed))
    (tmp_path / "own.bin").rename(tmp_path / "moved.bin")
    assert run_here(write({**weighed, "weights": "moved.bin"})) == []
    (tmp_path / "moved.bin").write_bytes(b"2")
    with pytest.raises(UserError, match="property 'Weighed' changed: weights"):
        run_here(write({**weighed, "weights": "moved.bin"}))


def test_a_worker_that_starts_anew_refuses_a_property_that_has_changed_meanwhile(tmp_path, write):
    file = write({"name": "kid", "features": "layout", "reference": "few"})
    run_here(file)
    Study.load(file).recipe.evaluator()
    images_of(tmp_path, ["other"], each=4)
    shutil.copy(tmp_path / "other/3.png", tmp_path / "few/0.png")
    with pytest.raises(UserError, match="property 'kid' differs from the ledger's: a file that it names"):
        Study.load(file).recipe.evaluator()
