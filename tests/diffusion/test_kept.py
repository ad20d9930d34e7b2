from pathlib import Path

import numpy as np
import pytest

from diffcredit.contributions import Contributions
from diffcredit.diffusion import Training, checkpoints
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.kept import kept_model
from diffcredit.diffusion.training import train
from diffcredit.util.progress import silent

from . import tiny

SETTINGS = Training(steps=4, batch_size=3)


@pytest.fixture
def contributions() -> Contributions:
    return Contributions(
        images=tiny.images(4),
        owner=np.array([0, 0, 1, 1]),
        contributors=("a", "b"),
        names=("1", "2", "3", "4"),
        heldout=tiny.images(0),
    )


def never():
    raise AssertionError("a kept model is not made again")


def kept(folder: Path, contributions: Contributions, start=tiny.model, progress=silent):
    return kept_model(folder, DDPM.load, start, contributions, SETTINGS, seed=5, what="training it", progress=progress)


def test_is_trained_once_on_everything_and_found_again(tmp_path, contributions):
    expected = tiny.model()
    train(expected, expected.encode(contributions.images), SETTINGS, seed=5)
    folder = tmp_path / "models" / "base"
    for start in (tiny.model, never):
        assert kept(folder, contributions, start).fingerprint == expected.fingerprint
        assert [path.name for path in folder.parent.iterdir()] == ["base"]


def test_goes_on_where_it_was_cut_off(tmp_path, contributions, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", -1.0)
    whole = kept(tmp_path / "whole", contributions)

    def cut(what: str, done: int, total: int) -> None:
        if done == 3:
            raise RuntimeError("no power")

    with pytest.raises(RuntimeError, match="no power"):
        kept(tmp_path / "cut", contributions, progress=cut)
    assert not (tmp_path / "cut").exists()
    taken = []
    again = kept(tmp_path / "cut", contributions, progress=lambda what, done, total: taken.append((what, done, total)))
    assert taken == [("training it", 3, 4), ("training it", 4, 4)]
    assert again.fingerprint == whole.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut", "whole"]


def test_another_process_that_made_the_same_meanwhile(tmp_path, contributions):
    expected = kept(tmp_path / "alone", contributions)

    def other_process(what: str, done: int, total: int) -> None:
        if done == total and not (tmp_path / "base").exists():
            kept(tmp_path / "base", contributions)

    assert kept(tmp_path / "base", contributions, progress=other_process).fingerprint == expected.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "base"]
