"""Against what torch-fidelity, pytorch-fid and torchvision compute with the same weights of the same images."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from diffcredit.errors import UserError
from diffcredit.features import inception
from diffcredit.features.extractors import make_extractor
from diffcredit.features.inception import InceptionNetwork, InceptionV3
from diffcredit.features.weights import PublishedWeights, file_hash
from features.inception_reference import SIZES, images, seeded_state, summary

REFERENCE = json.loads(Path(__file__).with_name("inception_reference.json").read_text(encoding="utf-8"))
VARIANTS = ("fid", "torchvision")


def state_of(variant: str) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.asarray(t)) for name, t in seeded_state(REFERENCE[variant]["shapes"]).items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """The weights of the reference, as torch and as safetensors write them."""
    folder = tmp_path_factory.mktemp("weights")
    torch.save(state_of("fid"), folder / "fid.pth")
    save_file(state_of("torchvision"), folder / "torchvision.safetensors")
    return {"fid": folder / "fid.pth", "torchvision": folder / "torchvision.safetensors"}


@pytest.fixture(scope="module")
def extractors(files) -> dict[str, InceptionV3]:
    made = {}
    for variant in VARIANTS:
        made[variant] = InceptionV3(variant=variant, weights=str(files[variant]), published=False)
        made[variant].load("cpu")
    return made


def assert_alike(array, reference, what: str) -> None:
    ours = summary(array, len(reference["entries"]))
    assert ours["shape"] == reference["shape"], what
    for part in ("mean", "std", "entries"):
        close = {"rtol": 1e-4, "atol": 2e-5 * reference["std"]}
        np.testing.assert_allclose(ours[part], reference[part], **close, err_msg=f"{what}: {part}")


@pytest.mark.parametrize(("variant", "name"), [("fid", "one of 64 px"), ("torchvision", "one of 64 px")])
def test_layer_by_layer(variant, name, extractors):
    extractor, reference = extractors[variant], REFERENCE[variant]["images"][name]
    count, size = SIZES[name]
    seen = {}
    network = extractor._network
    hooks = [
        network.get_submodule(layer).register_forward_hook(
            lambda module, inputs, output, layer=layer: seen.__setitem__(layer, output.numpy().copy())
        )
        for layer in reference["layers"]
    ]
    features = extractor.extract(images(name, count, size, size))
    for hook in hooks:
        hook.remove()
    assert len(seen) == 16
    for layer, expected in reference["layers"].items():
        assert_alike(seen[layer], expected, layer)
    assert_alike(features.vectors, reference["vectors"], "vectors")
    assert_alike(features.logits, reference["logits"], "logits")
    assert features.vectors.shape == (count, extractor.dimensions)
    assert features.logits.shape == (count, extractor.classes)
    assert features.vectors.dtype == features.logits.dtype == np.float32


@pytest.mark.parametrize("variant", VARIANTS)
def test_names_and_parameters_are_those_of_the_reference(variant):
    with torch.device("meta"):
        network = InceptionNetwork(variant)
    assert sum(parameter.numel() for parameter in network.parameters()) == REFERENCE[variant]["parameters"]
    shapes = REFERENCE[variant]["shapes"]
    expected = {name: shape for name, shape in shapes.items() if not name.startswith("AuxLogits.")}
    assert {name: list(tensor.shape) for name, tensor in network.state_dict().items()} == expected
    assert (len(shapes) > len(expected)) == (variant == "torchvision")


def test_identity_tells_weights_and_resizing_but_no_path(files, extractors):
    for variant in VARIANTS:
        identity = extractors[variant].identity()
        assert identity["weights"] == file_hash(files[variant], "")
        assert identity["resize"].startswith("299 px, bilinear, ")
        assert str(files[variant].parent) not in json.dumps(identity)
    assert extractors["fid"].identity()["resize"] != extractors["torchvision"].identity()["resize"]


def test_weights_come_from_torch_s_cache(files, extractors, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    published = PublishedWeights(files["fid"].as_uri(), file_hash(files["fid"], ""), "")
    monkeypatch.setitem(inception.PUBLISHED, "fid", published)
    extractor = InceptionV3()
    extractor.load("cpu")
    assert published.cached.is_relative_to(tmp_path)
    assert published.cached.exists()
    assert extractor.identity() == extractors["fid"].identity()


def test_other_weights_must_be_said_to_be_others(files):
    with pytest.raises(UserError, match=r"features\.weights: .*SHA-256.*6726825d.*say features\.published: false"):
        InceptionV3(weights=str(files["fid"])).load("cpu")
    with pytest.raises(UserError, match=r"features\.published: false, and no file"):
        make_extractor({"name": "inception_v3", "published": False})


def test_nvidia_s_program_is_refused(tmp_path):
    file = tmp_path / "inception-2015-12-05.pt"
    torch.jit.save(torch.jit.trace(torch.nn.Identity(), torch.ones(1)), file)
    with pytest.raises(UserError, match="holds more than tensors; named tensors are accepted"):
        InceptionV3(weights=str(file), published=False).load("cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ["fid", "torchvision"])
def test_a_gpu_sees_the_same(variant, files, extractors):
    on_gpu = InceptionV3(variant=variant, weights=str(files[variant]), published=False)
    on_gpu.load("cuda")
    some = images("gpu", 2, 64, 64)
    here, there = extractors[variant].extract(some), on_gpu.extract(some)
    np.testing.assert_allclose(there.vectors, here.vectors, rtol=1e-3, atol=1e-3 * here.vectors.std())
    np.testing.assert_allclose(there.logits, here.logits, rtol=1e-3, atol=1e-3 * here.logits.std())
