from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny CLIP, as transformers saves it."""
    pytest.importorskip("transformers")
    from . import tiny_vision_models as tiny

    return tiny.clip(tmp_path_factory.mktemp("clip"))
