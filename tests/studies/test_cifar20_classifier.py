"""The classifier of studies/cifar20-h200, on images whose classes are told by their colours."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from diffcredit.errors import UserError
from diffcredit.features.extractors import Extractors

FOLDER = Path(__file__).parents[2] / "studies" / "cifar20-h200"
OPTION = "classifier:Cifar20Classifier"


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import classifier
    import train_classifier

    yield classifier, train_classifier
    for name in ("classifier", "train_classifier", "try_training"):
        sys.modules.pop(name, None)


def coloured(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy images (count, 8, 8, 3) of twenty colours, and which."""
    random = np.random.default_rng(seed)
    colours = np.stack(np.meshgrid(*[[30, 128, 225]] * 3), axis=-1).reshape(-1, 3)[:20]  # far from each other
    labels = np.arange(count) % 20
    noise = random.integers(-20, 21, (count, 8, 8, 3))
    return np.clip(colours[labels][:, None, None] + noise, 0, 255).astype(np.uint8), labels


@pytest.mark.slow
def test_it_learns_and_the_study_sees_what_it_learnt(modules, tmp_path, monkeypatch):
    classifier, training = modules
    images, labels = coloured(1200, 1)
    weights, file = tmp_path / "classifier.safetensors", tmp_path / "images.npz"
    split = np.arange(1200) >= 1000
    np.savez(file, images=images, labels=labels, split=split, class_names=np.array([f"colour {k}" for k in range(20)]))
    for module in modules:
        monkeypatch.setattr(module, "WEIGHTS", weights)
    monkeypatch.setattr(sys, "argv", ["train_classifier.py", str(file), "--epochs", "4", "--batch", "50"])
    training.main()
    extractors = Extractors(device="cpu", beside=FOLDER)
    features = extractors.extract(OPTION, images[split])
    assert features.vectors.shape == (200, classifier.Cifar20Classifier.dimensions)
    assert (features.logits.argmax(1) == labels[split]).mean() > 0.9
    alone = extractors.extract(OPTION, images[split][:3])
    assert np.allclose(alone.vectors, features.vectors[:3], atol=1e-3)
    assert extractors.identity(OPTION)["weights"]


def test_without_weights_it_says_which_file_it_needs(modules, tmp_path, monkeypatch):
    monkeypatch.setattr(modules[0], "WEIGHTS", tmp_path / "classifier.safetensors")
    with pytest.raises(UserError, match=r"classifier\.safetensors"):
        Extractors(device="cpu", beside=FOLDER).identity(OPTION)


def test_images_are_moved_and_mirrored_but_not_changed(modules):
    _, training = modules
    images = torch.arange(2 * 3 * 6 * 6.0).reshape(2, 3, 6, 6)
    padded = torch.nn.functional.pad(images, (4, 4, 4, 4), mode="replicate")
    found = training.moved(images.repeat(20, 1, 1, 1), torch.Generator().manual_seed(0))
    for place, image in enumerate(found):
        windows = padded[place % 2].unfold(1, 6, 1).unfold(2, 6, 1).permute(1, 2, 0, 3, 4).reshape(-1, 3, 6, 6)
        assert (windows == image).all(dim=(1, 2, 3)).any() or (windows == image.flip(2)).all(dim=(1, 2, 3)).any()
    assert len({tuple(image.flatten().tolist()) for image in found}) > 10


def test_what_images_are_worth(modules, monkeypatch):
    import try_training

    monkeypatch.setattr(try_training, "ROWS", 2)
    known, _ = coloured(400, 1)
    same, paler = (try_training.worth(images, known, "cpu") for images in (known, known // 2))
    assert abs(same["fid"]) < 1e-3 * paler["fid"]
    assert paler["colourfulness"] == pytest.approx(same["colourfulness"] / 2, rel=0.02)
    assert sum(same["of each class"]) == 400
    assert 1 <= same["inception score"] <= 20
    assert try_training.picture(known).size == (16 * 8, 2 * 8)
    assert np.asarray(try_training.picture(known))[8:16, 16:24].tolist() == known[16 + 2].tolist()
