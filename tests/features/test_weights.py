import hashlib
import socket
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from diffcredit.errors import UserError
from diffcredit.features.weights import PublishedWeights, file_hash, folder_hash, load_state, read_state

KEY = "features.weights"


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """Where torch keeps what it downloaded, in a home of its own."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "hub" / "checkpoints"


@pytest.fixture
def online(tmp_path) -> Path:
    """A file that a URL leads to."""
    file = tmp_path / "web" / "some weights.pth"
    file.parent.mkdir()
    torch.save({"weight": torch.arange(6.0)}, file)
    return file


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_downloads_once_and_verifies(cache, online):
    published = PublishedWeights(online.as_uri(), sha256(online)[:8], "CC0-1.0")
    file = published.file(KEY)
    assert file == cache / "some weights.pth"
    assert file.read_bytes() == online.read_bytes()
    online.unlink()
    assert published.file(KEY) == file
    assert [path.name for path in cache.iterdir()] == ["some weights.pth"]


def test_a_missing_file_says_what_to_put_where(cache, tmp_path):
    published = PublishedWeights((tmp_path / "nowhere.pth").as_uri(), "0123abcd", "CC0-1.0")
    with pytest.raises(UserError) as error:
        published.file(KEY)
    message = str(error.value)
    assert message.startswith("features.weights: nowhere.pth is not here and cannot be downloaded")
    assert f"download {published.url} and put it at {cache / 'nowhere.pth'}" in message
    assert "\n" not in message
    assert list(cache.iterdir()) == []


def test_a_server_that_says_nothing_is_given_up(cache, monkeypatch):
    monkeypatch.setattr("diffcredit.features.weights.SILENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/weights.pth"
        with pytest.raises(UserError, match=r"weights.pth is not here and cannot be downloaded .*timed out"):
            PublishedWeights(url, "0123abcd", "CC0-1.0").file(KEY)
    assert socket.getdefaulttimeout() is None


def test_another_file_is_refused(cache, online):
    published = PublishedWeights(online.as_uri(), sha256(online), "CC0-1.0")
    file = published.file(KEY)
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(UserError, match=rf"{sha256(file)[:16]}.*{published.sha256[:16]}.*download it again") as error:
        published.file(KEY)
    assert str(file) in str(error.value)
    with pytest.raises(UserError, match=rf"from {published.url}, or pay"):
        published.verify(file, KEY, ", or pay")


def test_hashes_of_files(online, tmp_path):
    assert file_hash(online, KEY) == sha256(online)
    with pytest.raises(UserError, match=r"features\.weights: .*nothing: No such file"):
        file_hash(tmp_path / "nothing", KEY)
    with pytest.raises(UserError, match="Is a directory"):
        file_hash(tmp_path, KEY)


def test_hashes_of_folders(tmp_path):
    def folder(name: str, files: dict[str, str]) -> str:
        for file, text in files.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return folder_hash(tmp_path / name, KEY)

    files = {"config.json": "{}", "deep/model.bin": "weights"}
    same = folder("a", files)
    assert folder("b", dict(reversed(files.items()))) == same
    assert folder("c", {**files, ".cache/time": "now", "deep/.lock": ""}) == same
    assert folder("d", {"config.json": "{}", "model.bin": "weights"}) != same
    assert folder("e", {**files, "config.json": "{ }"}) != same
    assert folder("f", {**files, "more": ""}) != same
    (tmp_path / "g").mkdir()
    for missing in ("g", "h"):
        with pytest.raises(UserError, match="no files; a folder of weights is expected"):
            folder_hash(tmp_path / missing, KEY)


def test_reads_torch_checkpoints_and_safetensors(tmp_path):
    state = {"a": torch.arange(4)}
    save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "a.pth")
    torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for file in tmp_path.iterdir():
        assert read_state(file, KEY)["a"].tolist() == [0, 1, 2, 3]


class Trap:
    """What makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple:
        return Path.mkdir, (self.folder,)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_with_code_is_refused_and_not_run(tmp_path, legacy):
    file, sprung = tmp_path / "weights.pth", tmp_path / "sprung"
    torch.save({"weight": torch.ones(1), "trap": Trap(sprung)}, file, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(UserError, match=r"weights\.pth .*holds more than tensors") as error:
        read_state(file, KEY)
    assert "\n" not in str(error.value)
    assert "weights_only" not in str(error.value)
    assert not sprung.exists()
    torch.load(file, weights_only=False)  # so that the check above could have failed
    assert sprung.exists()


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("kept", [0.0, 0.9])
def test_truncated_files_are_named(tmp_path, suffix, kept):
    file = tmp_path / f"weights{suffix}"
    tensors = {"a": torch.randn(1000), "b": torch.randn(10)}
    save_file(tensors, file) if suffix == ".safetensors" else torch.save(tensors, file)
    content = file.read_bytes()
    file.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(UserError, match=rf"features\.weights: .*weights\{suffix} ") as error:
        read_state(file, KEY)
    assert "\n" not in str(error.value)


def test_only_named_tensors_are_weights(tmp_path):
    file = tmp_path / "weights.pth"
    for content, kind in ((torch.ones(2), "Tensor"), ({"epoch": 3}, "dict"), ([torch.ones(1)], "list")):
        torch.save(content, file)
        with pytest.raises(UserError, match=f"holds {kind}; named tensors are expected"):
            read_state(file, KEY)
    with pytest.raises(UserError, match=r"nothing\.pth: no such file"):
        read_state(tmp_path / "nothing.pth", KEY)


def test_a_network_gets_its_weights():
    source = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).eval()
    source[1].running_mean.fill_(0.5)
    state = {name: tensor for name, tensor in source.state_dict().items() if not name.endswith("tracked")}
    with torch.device("meta"):
        network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).eval()
    load_state(network, state, Path("some.pth"), KEY)
    x = torch.randn(4, 2)
    assert torch.equal(network(x), source(x))


def test_another_architecture_is_named():
    network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    others = {f"{i}.weight": torch.ones(1, 3) for i in range(1, 4)}
    for state, why in (
        (others, "it misses 0.weight, 0.bias, 1.bias; it has unknown 2.weight, 3.weight"),
        ({"1.weight": torch.ones(1)}, "size mismatch for 1.weight: "),
    ):
        with pytest.raises(UserError, match=rf"^{KEY}: some.pth is of another network than Sequential: {why}"):
            load_state(network, state, Path("some.pth"), KEY)
