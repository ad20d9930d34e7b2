"""What ``diffcredit plan`` says of memory, before a model is loaded."""

from pathlib import Path

import pytest
import torch

from diffcredit.cli.memory import in_words, print_memory
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.memory.estimate import Need
from diffcredit.diffusion.pipeline import pipeline
from diffcredit.study import memory as study_memory
from diffcredit.study.memory import Memory, available_bytes
from diffcredit.study.study import Study
from diffusion import tiny_text_pipelines
from diffusion.tiny_pipelines import captioned_folder
from tiny_study import write_study

GIB = 2**30
CAPTIONS = {"ann": ["a cat", "a dog", "a cat"], "bob": ["a red house", "a cat"], "cem": ["a bee", "two bees"]}


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Of an adapter on a pipeline in bf16."""
    tiny_text_pipelines.stable_diffusion_3(tmp_path / "sd3", version="3.5")
    captioned_folder(tmp_path / "pictures", CAPTIONS)
    return write_study(
        tmp_path,
        {
            "contributions": {"path": "pictures", "resolution": 16, "source": "imagefolder"},
            "model": {"family": "lora", "pretrained": str(tmp_path / "sd3"), "rank": 2, "train": {"steps": 2}},
            "retraining": {"method": "fine_tune", "steps": 1},
            "sampling": {"images": 4, "steps": 2},
            "properties": [{"name": "colourfulness"}],
        },
    )


def test_it_is_said_before_the_network_and_the_text_encoders_are_read(study, monkeypatch):
    for module in ("pipeline", "texts"):
        monkeypatch.setattr(f"diffcredit.diffusion.{module}.load_pretrained", None)
    found = Study.load(study).memory()
    assert found.device == "cpu"
    assert [need.stage.partition(",")[0] for need in found.needs] == [
        *("encoding texts", "encoding images", "a step of training", "a step of sampling", "decoding images")
    ]
    assert found.peak == max(need.total for need in found.needs)
    assert (found.too_large, found.remedies, found.host) == ((), (), 0)
    training = found.needs[2]
    bytes_of_a_text = 272 * 32 * 2 + 20 * 2
    assert training.parts["conditions"] == 5 * bytes_of_a_text  # distinct captions
    assert training.parts["encoded images"] == 2 * 7 * 4 * 4 * 8 * 8  # and mirrored, of 4 channels


def test_text_encoders_are_read_once_for_a_study(study, monkeypatch):
    first = Study.load(study).prepared
    images, folder = first.generated_images(), first.cache.folder
    assert [file.name.partition("-")[0] for file in folder.glob("conditions-*.safetensors")] == ["conditions"] * 2
    assert {file.suffix for file in folder.iterdir()} >= {".safetensors"}
    pipeline.cache_clear()  # another process
    monkeypatch.setattr("diffcredit.diffusion.texts.TextEncoders._load", None)
    second = Study.load(study).prepared
    assert (generate(second.base, second.config.sampling) == images).all()
    start = second.start()
    captions = second.contributions.captions
    assert start.conditions(captions, len(captions))[0]["encoder_hidden_states"].shape == (5, 272, 32)


def test_what_does_not_fit_is_warned_of_with_what_helps(diffcredit, study, monkeypatch):
    whole = Study.load(study).memory()
    training = whole.needs[2]
    monkeypatch.setattr(study_memory, "available_bytes", lambda device: training.total - 1)
    code, _, complaints = diffcredit("plan", study)
    warned = [line for line in complaints.splitlines() if "a step of training" in line]
    assert code == 0
    assert len(warned) == 1
    assert warned[0].startswith("warning: a step of training, 64 images at once needs about ")
    assert "; with model.train.gradient_checkpointing: true about " in warned[0]
    monkeypatch.setattr(study_memory, "available_bytes", lambda device: 1)
    found = Study.load(study).memory()
    assert found.remedies[-1] == "model.base: 8bit"
    assert len(found.too_large) == 5


def test_large_models_have_a_table(capsys):
    needs = (
        Need("encoding texts", {"base": 22 * GIB, "text encoders": 9 * GIB}),
        Need("a step of training, 4 images at once", {"base": 22 * GIB, "activations": 30 * GIB, "gradients": 0}),
        Need("a step of sampling, 8 images at once", {"base": 22 * GIB}, "activations, which depend on numbers"),
    )
    print_memory(Memory("cuda:0", needs, 24 * GIB, 23 * GIB, 16 * GIB, ("model.base: 8bit",), 41 * GIB))
    seen = capsys.readouterr()
    words = " ".join(seen.out.split())
    assert "encoding texts 31.0 GiB base 22.0 GiB, text encoders 9.0 GiB" in words
    assert "gradients" not in seen.out
    assert "Not counted for a step of sampling, 8 images at once: activations, which depend on numbers." in seen.out
    lines = seen.err.splitlines()
    assert lines[0] == "warning: 23.0 GiB pass through the host's memory, of which 16.0 GiB are available"
    assert lines[1].endswith("31.0 GiB; 24.0 GiB are available; model.base: bf16 or 8bit needs less")
    assert lines[2].endswith("with model.base: 8bit about 41.0 GiB, still too much")
    assert len(lines) == 3


def test_memory_that_is_available(tmp_path, monkeypatch):
    found = available_bytes(torch.device("cpu"))
    assert found is None or 2**20 < found < 2**50
    monkeypatch.setattr(study_memory, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("100\n")
    free = available_bytes(torch.device("cpu"))
    (tmp_path / "memory.max").write_text("1000100\n")
    assert available_bytes(torch.device("cpu")) == 1_000_000 != free


def test_sizes_in_words():
    assert [in_words(size) for size in (0, 3 * 2**19, GIB, 1500 * GIB)] == [
        "0.0 MiB",
        "1.5 MiB",
        "1.0 GiB",
        "1,500.0 GiB",
    ]
