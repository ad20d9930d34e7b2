import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from diffcredit.diffusion.first_stage import TAESD, first_stage

from . import tiny, tiny_pipelines
from .tiny_pipelines import pictures


@pytest.fixture(scope="module")
def theirs():
    return tiny_pipelines.autoencoder_tiny()


@pytest.fixture(scope="module")
def folder(theirs, tmp_path_factory) -> Path:
    return tiny_pipelines.taesd_pair(tmp_path_factory.mktemp("taesd"), theirs)


def test_the_authors_layout_is_diffusers_autoencoder_tiny(theirs, folder):
    stage = first_stage(str(folder))
    images = pictures(3)
    x = torch.from_numpy(images.astype(np.float32) / 127.5 - 1).permute(0, 3, 1, 2)
    z = 4 * torch.randn(3, 4, 8, 8, generator=torch.Generator().manual_seed(0))  # beyond the soft limit too
    with torch.no_grad():
        torch.testing.assert_close(stage.encode(images, "cpu"), theirs.encode(x).latents)
        expected = ((theirs.decode(z).sample.clamp(-1, 1) + 1) * 127.5).permute(0, 2, 3, 1).numpy()
    decoded = stage.decode(z)
    assert decoded.std() > 1
    assert np.abs(decoded - expected).max() <= 0.5 + 1e-3
    assert (stage.channels, stage.factor) == (4, 2)


def pooled(tensors: dict[str, torch.Tensor], place: int, width: int) -> dict[str, torch.Tensor]:
    """The same with a pooling branch in the block at ``place``."""
    generator = torch.Generator().manual_seed(place)
    wide = 4 * width
    return tensors | {
        f"{place}.pool.0.weight": torch.randn(wide, width, 1, 1, generator=generator),
        f"{place}.pool.1.weight": torch.randn(wide, generator=generator),
        f"{place}.pool.1.bias": torch.randn(wide, generator=generator),
        f"{place}.pool.3.weight": torch.randn(width, wide, 1, 1, generator=generator) / wide,
    }


def test_the_pooling_branch_is_its_formula(theirs):
    encoder, decoder = tiny_pipelines.taesd_layout(theirs)
    decoder = pooled(decoder, 3, 8)
    model = TAESD(encoder, decoder).eval()
    x = torch.randn(2, 8, 6, 6, generator=torch.Generator().manual_seed(1))
    own = {name.removeprefix("3."): tensor for name, tensor in decoder.items() if name.startswith("3.")}

    wide = torch.einsum("oi,nihw->nohw", own["pool.0.weight"][:, :, 0, 0], x)
    groups = wide.reshape(2, 4, -1)
    mean, variance = groups.mean(dim=2, keepdim=True), groups.var(dim=2, keepdim=True, unbiased=False)
    normal = ((groups - mean) / (variance + 1e-5).sqrt()).reshape(wide.shape)
    activated = torch.relu(normal * own["pool.1.weight"][:, None, None] + own["pool.1.bias"][:, None, None])
    y = x + torch.einsum("oi,nihw->nohw", own["pool.3.weight"][:, :, 0, 0], activated)
    h = y
    for index in (0, 2, 4):
        h = F.conv2d(h, own[f"conv.{index}.weight"], own[f"conv.{index}.bias"], padding=1)
        h = torch.relu(h) if index < 4 else h
    with torch.no_grad():
        torch.testing.assert_close(model.decoder[3](x), torch.relu(y + h), rtol=1e-4, atol=1e-5)
        plain = TAESD(*tiny_pipelines.taesd_layout(theirs)).eval()
        assert not torch.allclose(model.decoder[3](x), plain.decoder[3](x), atol=0.1)


def test_the_fingerprint_is_that_of_both_files(theirs, folder, tmp_path):
    def fingerprint(part: str) -> str:
        changed = copy.deepcopy(theirs)
        if part:
            next(changed.get_submodule(part).parameters()).data += 1e-3
        return first_stage(str(tiny_pipelines.taesd_pair(tmp_path / f"changed {part}", changed))).fingerprint

    same, one, other = (fingerprint(part) for part in ("", "encoder", "decoder"))
    assert same == first_stage(str(folder)).fingerprint
    assert len({same, one, other}) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"encoder.layers.0.weight": torch.zeros(1)}, "not the weights of a tiny autoencoder"),
        ({"0.weight": 3}, "not the weights of a tiny autoencoder"),
        ({"0.weight": torch.zeros(2, 2)}, "not the weights of a tiny autoencoder"),
        ({"0.bias": torch.zeros(2)}, "not the weights of a tiny autoencoder"),
        ([1, 2], "not the weights of a tiny autoencoder"),
        ({"0.weight": Path("a class that is no tensor, which would run code")}, "not readable weights"),
        (None, "not readable weights"),  # truncated
    ],
)
def test_other_weights_are_named(theirs, tmp_path, content, message):
    tiny_pipelines.taesd_pair(tmp_path, theirs)
    file = tmp_path / "tae_encoder.pth"
    if content is None:
        file.write_bytes(file.read_bytes()[:-50])
    else:
        torch.save(content, file)
    tiny.refused(rf"tae_encoder\.pth: {message}", first_stage, str(tmp_path))


def test_two_pairs_are_refused(theirs, tmp_path):
    tiny_pipelines.taesd_pair(tmp_path, theirs)
    for part in ("encoder", "decoder"):
        (tmp_path / f"other_{part}.pth").touch()
    tiny.refused("holds 2 pairs", first_stage, str(tmp_path))
