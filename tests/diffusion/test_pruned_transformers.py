"""Transformers with pruned shapes, stored and read back."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from diffcredit.diffusion import networks
from diffcredit.errors import UserError
from diffcredit.retraining.pruning import prune, prune_transformer

from .tiny_transformers import CONFIGS, KINDS, build, call

DIT, SD3, FLUX_2 = "DiTTransformer2DModel", "SD3Transformer2DModel", "Flux2Transformer2DModel"


def stored(kind: str, depth: float | None = None) -> dict[str, Tensor]:
    share = 0.87 if kind.startswith("ZImage") else 0.65
    share -= 0 if depth is None or kind.startswith("ZImage") else 0.1
    return prune_transformer(build(kind), share, multiple=4, depth=depth).state_dict()


@pytest.mark.parametrize("depth", [None, 0.7])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_rebuilt_is_what_was_stored(kind, depth, tmp_path):
    share = 0.87 if kind.startswith("ZImage") else 0.6
    pruned = prune_transformer(build(kind), share, multiple=4, depth=depth)
    save_file(pruned.state_dict(), tmp_path / "model.safetensors")
    config = json.loads(json.dumps(CONFIGS[kind]))  # as a file has it
    state = torch.get_rng_state()
    rebuilt = networks.rebuild(config, load_file(tmp_path / "model.safetensors"), "model.safetensors", kind)
    assert torch.get_rng_state().equal(state)
    assert not rebuilt.training
    with torch.no_grad():
        assert call(rebuilt).equal(call(pruned))
        assert not call(rebuilt).allclose(call(build(kind)), atol=1e-2)
    assert all(tensor.equal(pruned.state_dict()[name]) for name, tensor in rebuilt.state_dict().items())
    assert all(parameter.requires_grad for parameter in rebuilt.parameters())
    assert rebuilt.to_json_string() == pruned.to_json_string()
    # it can be pruned again
    fewer = sum(parameter.numel() for parameter in rebuilt.parameters()) * 97 // 100
    assert call(prune_transformer(rebuilt, fewer, multiple=1)).isfinite().all()


def test_a_pruned_unet_is_rebuilt_too():
    config = {"sample_size": 8, "in_channels": 3, "out_channels": 3, **networks.PRESETS["tiny"]}
    inputs = {"sample": torch.randn(2, 3, 8, 8), "timestep": torch.tensor([3, 700])}
    pruned = prune(networks.build(config, 0), 0.5, inputs)
    rebuilt = networks.rebuild(config, pruned.state_dict(), "a file")
    with torch.no_grad():
        assert rebuilt(**inputs).sample.equal(pruned(**inputs).sample)


def without(tensors: dict[str, Tensor], name: str) -> None:
    del tensors[name]


def narrowed(tensors: dict[str, Tensor], name: str, by: int, dim: int = 0) -> None:
    tensors[name] = tensors[name].narrow(dim, 0, tensors[name].shape[dim] - by)


def widened(tensors: dict[str, Tensor], name: str) -> None:
    tensors[name] = torch.cat([tensors[name]] * 9)


BLOCK, SINGLE = "transformer_blocks.1", "single_transformer_blocks.1"
Q = f"{BLOCK}.attn1.to_q"


@pytest.mark.parametrize(
    ("kind", "damage", "message"),
    [
        (DIT, lambda t: without(t, f"{Q}.bias"), f"1 tensors are missing or unknown, such as '{Q}.bias'"),
        (DIT, lambda t: t.update(odd=torch.ones(3)), "1 tensors are missing or unknown, such as 'odd'"),
        (DIT, lambda t: widened(t, f"{Q}.weight"), rf"'{Q}.weight' has the shape .* at most \(32, 32\) fits"),
        (DIT, lambda t: narrowed(t, f"{Q}.weight", 1), rf"'{BLOCK}.attn1.* fit the other layers"),
        (DIT, lambda t: narrowed(t, f"{Q}.bias", 8), rf"'{Q}.bias' has the shape .* fits the other layers"),
        (DIT, lambda t: narrowed(t, f"{Q}.weight", 3, 1), r"fits? the other layers"),
        (DIT, lambda t: narrowed(t, f"{BLOCK}.ff.net.2.weight", 4, 1), r"fits? the other layers"),
        (DIT, lambda t: narrowed(t, f"{Q}.weight", len(t[f"{Q}.weight"])), r"has the shape \(0, 32\), where at most"),
        (FLUX_2, lambda t: narrowed(t, f"{SINGLE}.attn.to_qkv_mlp_proj.weight", 3), "fits? the other layers"),
        (
            FLUX_2,
            lambda t: narrowed(t, f"{SINGLE}.attn.to_out.weight", 8, 1),
            "attn' has 5 heads, which do not",
        ),
        (
            FLUX_2,
            lambda t: narrowed(t, f"{SINGLE}.attn.to_out.weight", 40, 1),
            "attn' has .* heads, which do not",
        ),
        (SD3, lambda t: narrowed(t, f"{BLOCK}.attn.add_k_proj.weight", 8), "fits? the other layers"),
        (SD3, lambda t: narrowed(t, "pos_embed.pos_embed", 8, 1), "fits? the other layers"),
    ],
)
def test_damaged_or_foreign_tensors_are_refused(kind, damage, message):
    tensors = stored(kind)
    damage(tensors)
    with pytest.raises(
        UserError, match=rf"^m.safetensors: not the weights of this architecture; .*{message}"
    ) as raised:
        networks.rebuild(CONFIGS[kind], tensors, "m.safetensors", kind)
    assert "\n" not in str(raised.value)


def test_weights_of_another_class_are_refused():
    with pytest.raises(UserError, match=r"^m: not the weights of this architecture; \d+ tensors are missing or"):
        networks.rebuild(CONFIGS[DIT], stored(FLUX_2), "m", DIT)


def test_an_unknown_class_is_refused():
    with pytest.raises(UserError, match="the network 'WanTransformer3DModel' is unknown; accepted: UNet2DModel, DiT"):
        networks.build({}, 0, "WanTransformer3DModel")
