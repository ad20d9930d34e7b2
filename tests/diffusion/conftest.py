"""Folders of tiny pretrained models, written once; tests that change one copy it."""

from pathlib import Path

import pytest

from diffcredit.diffusion.session import Session

from . import tiny_pipelines


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """A new process's session, of all threads."""
    new = Session()
    monkeypatch.setattr("diffcredit.diffusion.session._session", new)
    return new


@pytest.fixture(scope="session")
def ddpm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_pipelines.ddpm_pipeline(tmp_path_factory.mktemp("ddpm") / "pipeline")


@pytest.fixture(scope="session")
def ldm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_pipelines.ldm_pipeline(tmp_path_factory.mktemp("ldm") / "pipeline")


@pytest.fixture(scope="session")
def kl_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kl") / "autoencoder"
    tiny_pipelines.autoencoder_kl(scaling_factor=0.4, shift_factor=0.1).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def sd_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_pipelines.stable_diffusion(tmp_path_factory.mktemp("sd") / "pipeline")
