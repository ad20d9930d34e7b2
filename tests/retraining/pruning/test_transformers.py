import copy

import pytest
import torch
from torch import Tensor, nn

from diffcredit.diffusion.networks import parameter_count
from diffcredit.diffusion.transformer_sites import TRANSFORMERS
from diffcredit.errors import UserError
from diffcredit.retraining.pruning import prune_transformer
from diffusion.tiny_transformers import CONFIGS, HEADS, KINDS, SIZE, WIDTH, build, call

DIT, FLUX_2 = "DiTTransformer2DModel", "Flux2Transformer2DModel"
SHARES = {"ZImageTransformer2DModel": 0.87}
"""How far a tiny network can shrink in width: the embedding of time has most of Z-Image's parameters."""


def share_of(kind: str) -> float:
    return SHARES.get(kind, 0.65)


def output(network: nn.Module) -> Tensor:
    with torch.no_grad():
        return call(network)


def same(one: nn.Module, other: nn.Module) -> bool:
    """Whether two networks do the same, in double precision; Z-Image's norms and rotations are in single."""
    rounding = 4e-7 if type(one).__name__.startswith("ZImage") else 1e-14
    expected = output(other.double())
    return bool((output(one.double()) - expected).norm() <= rounding * expected.norm())


def layers(network: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in network.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}


def kept(smaller: Tensor, original: Tensor) -> list[int]:
    """Which numbers of a row are left, all of which are different."""
    assert len(set(original.flatten().tolist())) == original.numel()
    places = {value: place for place, value in enumerate(original.flatten().tolist())}
    return [places[value] for value in smaller.flatten().tolist()]


def silenced(network: nn.Module, pruned: nn.Module) -> nn.Module:
    """A copy of ``network`` in which nobody hears the heads and units that were removed: the columns of the layers that
    read them are zero."""
    network, small = copy.deepcopy(network), layers(pruned)
    for name, layer in layers(network).items():
        if layer.weight.shape[1] != small[name].weight.shape[1]:
            columns = kept(small[name].weight.detach()[0], layer.weight.detach()[0])
            gone = sorted(set(range(layer.weight.shape[1])) - set(columns))
            with torch.no_grad():
                layer.weight[:, gone] = 0
    return network


# Heads and units


@pytest.mark.parametrize("kind", KINDS)
def test_removing_is_silencing(kind):
    network = build(kind)
    pruned = prune_transformer(network, share_of(kind), multiple=4)
    assert same(pruned, silenced(network, pruned))
    assert not output(network).allclose(output(silenced(network, pruned.float())), rtol=0, atol=1e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_share_is_reached_with_equal_widths_everywhere(kind):
    network = build(kind)
    share = share_of(kind)
    pruned = prune_transformer(network, share, multiple=4)
    assert parameter_count(pruned) == pytest.approx(share * parameter_count(network), rel=0.02)
    heads, units = set(), set()
    for name, module in pruned.named_modules():
        if hasattr(module, "heads"):
            heads.add((name.endswith("attn2") and kind.startswith("Sana"), module.heads))
            assert module.inner_dim % module.heads == 0
        if name.endswith(("net.2", "linear_out", "w2", "conv_point")):
            units.add(module.weight.shape[1])
    assert len(heads) == (2 if kind.startswith("Sana") else 1)
    assert max(count for _, count in heads) < HEADS
    assert len(units) == 1
    assert units.pop() % 4 == 0


@pytest.mark.parametrize("share", [0.95, 0.8, 0.65])
def test_heads_and_units_keep_similar_shares(share):
    block = prune_transformer(build(DIT), share, multiple=2).transformer_blocks[1]
    assert block.attn1.heads / HEADS == pytest.approx(block.ff.net[2].in_features / (4 * WIDTH), abs=0.2)


def block_norms(block: nn.Module) -> tuple[Tensor, Tensor]:
    """The ℓ2 norms of DiT's heads and units, summed up by hand."""
    attention, mlp = block.attn1, block.ff.net
    heads = torch.zeros(HEADS)
    for head in range(HEADS):
        own = slice(head * SIZE, (head + 1) * SIZE)
        for layer in (attention.to_q, attention.to_k, attention.to_v):
            heads[head] += layer.weight[own].square().sum()
        heads[head] += attention.to_out[0].weight[:, own].square().sum()
    units = mlp[0].proj.weight.square().sum(dim=1) + mlp[2].weight.square().sum(dim=0)
    return heads.sqrt(), units.sqrt()


@torch.no_grad()
def test_the_largest_heads_and_units_stay():
    network = build(DIT)
    pruned = prune_transformer(network, 0.6, multiple=1)
    for before, after in zip(network.transformer_blocks, pruned.transformer_blocks, strict=True):
        heads, units = block_norms(before)
        count = after.attn1.heads
        assert 0 < count < HEADS
        places = [head * SIZE + k for head in sorted(heads.topk(count).indices.tolist()) for k in range(SIZE)]
        assert after.attn1.to_v.weight.equal(before.attn1.to_v.weight[places])
        assert after.attn1.to_q.bias.equal(before.attn1.to_q.bias[places])
        assert after.attn1.to_out[0].weight.equal(before.attn1.to_out[0].weight[:, places])
        assert after.attn1.to_out[0].bias.equal(before.attn1.to_out[0].bias)
        rows = units.topk(after.ff.net[2].in_features).indices.sort().values
        assert after.ff.net[0].proj.bias.equal(before.ff.net[0].proj.bias[rows])
        assert after.ff.net[2].weight.equal(before.ff.net[2].weight[:, rows])


def test_taylor_keeps_what_the_loss_needs_in_fused_layers():
    """FLUX.2's single blocks: queries, keys, values, gates and units are rows of one layer."""
    network = build(FLUX_2)
    call(network).square().mean().backward()
    pruned = prune_transformer(network, 0.65, "taylor", multiple=1)
    for before, after in zip(network.single_transformer_blocks, pruned.single_transformer_blocks, strict=True):
        into, out = before.attn.to_qkv_mlp_proj.weight, before.attn.to_out.weight
        rows, columns = ((w * w.grad).abs().sum(dim=d) for w, d in ((into, 1), (out, 0)))
        hidden = 3 * WIDTH
        heads = rows[:hidden].view(3, HEADS, SIZE).sum(dim=(0, 2)) + columns[:WIDTH].view(HEADS, SIZE).sum(dim=1)
        units = rows[hidden:].view(2, hidden).sum(dim=0) + columns[WIDTH:]
        count, left = after.attn.heads, after.attn.mlp_hidden_dim
        assert (count, left) < (HEADS, hidden)
        own = [head * SIZE + k for head in sorted(heads.topk(count).indices.tolist()) for k in range(SIZE)]
        more = [WIDTH + unit for unit in sorted(units.topk(left).indices.tolist())]
        assert after.attn.to_out.weight.equal(out[:, own + more])
        places = [part * WIDTH + k for part in range(3) for k in own]
        places += [part + unit for part in (2 * WIDTH, 2 * WIDTH + hidden) for unit in more]
        assert after.attn.to_qkv_mlp_proj.weight.equal(into[places])


@pytest.mark.parametrize("importance", ["magnitude", "random"])
def test_the_same_seed_removes_the_same(importance):
    network = build(DIT)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    state = torch.get_rng_state()
    one, again, other = (
        prune_transformer(network, 0.4, importance, seed, multiple=4, depth=0.5).state_dict() for seed in (1, 1, 2)
    )
    assert torch.get_rng_state().equal(state)
    assert all(network.state_dict()[name].equal(tensor) for name, tensor in before.items())
    assert all(one[name].equal(again[name]) for name in one)
    assert all(one[name].equal(other[name]) for name in one) == (importance == "magnitude")


def test_norms_over_all_heads_keep_all_heads():
    """Sana 1.5: without a head, the others' queries would be scaled differently."""
    network = build("SanaTransformer2DModel", qk_norm="rms_norm_across_heads")
    pruned = prune_transformer(network, 0.75, multiple=4)
    assert {block.attn1.heads for block in pruned.transformer_blocks} == {HEADS}
    assert same(pruned, silenced(network, pruned))


@pytest.mark.parametrize("activation", ["geglu", "swiglu", "gelu"])
def test_gated_units_lose_their_gates(activation):
    network = build(DIT, activation_fn=activation)
    pruned = prune_transformer(network, 0.65, multiple=4)
    assert pruned.transformer_blocks[0].ff.net[2].in_features < 4 * WIDTH
    assert same(pruned, silenced(network, pruned))


@pytest.mark.parametrize("kind", KINDS)
def test_a_pruned_network_trains(kind):
    pruned = prune_transformer(build(kind), share_of(kind) - 0.1 * (kind not in SHARES), multiple=4, depth=0.7).train()
    state, losses = torch.get_rng_state(), []
    optimizer = torch.optim.SGD(pruned.parameters(), lr=1e-3)
    for _ in range(2):
        torch.manual_seed(0)  # DiT drops labels in training
        loss = (call(pruned) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    torch.set_rng_state(state)
    assert torch.tensor(losses).isfinite().all()
    assert losses[1] < losses[0]


# Blocks


def without_blocks(network: nn.Module, depth: float, **changes) -> nn.Module:
    """Prune nothing but blocks: ask for the parameters of a network that was built with fewer."""
    kind = type(network).__name__
    keys = [stack.key for stack in TRANSFORMERS[kind] if stack.key is not None]
    fewer = build(kind, **{key: max(1, round(depth * CONFIGS[kind][key])) for key in keys}, **changes)
    return prune_transformer(network, parameter_count(fewer), depth=depth)


ONE_ATTENTION = {"dual_attention_layers": ()}


def changes_of(kind: str) -> dict[str, tuple[int, ...]]:
    return ONE_ATTENTION if kind.startswith("SD3") else {}


@pytest.mark.parametrize("kind", KINDS)
def test_without_blocks_it_is_a_plain_model_of_diffusers(kind):
    network = build(kind, **changes_of(kind))
    pruned = without_blocks(network, 0.6, **changes_of(kind))
    reloaded = type(network).from_config(pruned.config).eval()
    reloaded.load_state_dict(pruned.state_dict(), strict=True)
    for stack in TRANSFORMERS[kind]:
        count = len(network.get_submodule(stack.path))
        expected = round(0.6 * count) if stack.key else count
        assert len(reloaded.get_submodule(stack.path)) == expected
        assert stack.key is None or network.config[stack.key] == count
    assert output(reloaded).equal(output(pruned))


def test_a_second_attention_stays_with_its_block():
    """SD3.5: the config lists the blocks with two attentions, whose numbers change."""
    network = build("SD3Transformer2DModel", dual_attention_layers=(0, 2))
    with torch.no_grad():
        for place in (0, 1):
            for parameter in network.transformer_blocks[place].parameters():
                parameter *= 1e-3
    pruned = without_blocks(network, 0.5, dual_attention_layers=(0,))
    assert pruned.config["dual_attention_layers"] == (0,)
    reloaded = type(network).from_config(pruned.config).eval()
    reloaded.load_state_dict(pruned.state_dict(), strict=True)
    with torch.no_grad():
        network.transformer_blocks = network.transformer_blocks[2:]
    assert output(reloaded).equal(output(network))


@pytest.mark.parametrize("kind", [DIT, "SD3Transformer2DModel"])
def test_blocks_that_do_nothing_and_are_faint_go_first(kind):
    network = build(kind, **changes_of(kind))
    with torch.no_grad():
        for place in (1, 2):
            block = network.transformer_blocks[place]
            for name, parameter in block.named_parameters():
                # closed gates: the block hands on what it was given
                parameter *= 0 if name.startswith(("norm1.linear", "norm1_context.linear")) else 1e-3
    pruned = without_blocks(network, 0.5, **changes_of(kind))
    assert len(pruned.transformer_blocks) == 2
    assert output(pruned).equal(output(network))


@pytest.mark.parametrize(("kind", "place"), [(DIT, 0), ("SD3Transformer2DModel", -1)])
def test_blocks_that_others_rely_on_never_go(kind, place):
    """DiT's first embeds time and label for the last layer; SD3's last has no outputs for the text."""
    network = build(kind, **changes_of(kind))
    with torch.no_grad():
        for parameter in network.transformer_blocks[place].parameters():
            parameter *= 1e-3
    pruned = without_blocks(network, 0.25, **changes_of(kind))
    (left,) = pruned.transformer_blocks
    expected = network.transformer_blocks[place].state_dict()
    assert all(tensor.equal(expected[name]) for name, tensor in left.state_dict().items())


def test_what_is_left_without_blocks_is_pruned_to_the_count():
    network = build(DIT)
    pruned = prune_transformer(network, 0.4, multiple=4, depth=0.5)
    assert len(pruned.transformer_blocks) == 2
    assert pruned.transformer_blocks[0].attn1.heads < HEADS
    assert parameter_count(pruned) == pytest.approx(0.4 * parameter_count(network), rel=0.02)
    assert same(pruned, silenced(without_blocks(network, 0.5), pruned))


# Refusals


@pytest.mark.parametrize(
    ("parameters", "depth", "message"),
    [
        (0, None, "0 is not accepted; a share between 0 and 1, or a count up to the model's 117,360 parameters, is"),
        (1.5, None, "1.5 is not accepted"),
        (0.1, None, r"11,736 .* would leave a layer empty; the nearest .*\); depth removes whole blocks"),
        (0.9, 0.5, r"105,624 .* cannot be reached within 2%; the nearest .*\); depth leaves no more"),
    ],
)
def test_what_cannot_be_is_refused(parameters, depth, message):
    with pytest.raises(UserError, match=rf"^parameters: {message}") as raised:
        prune_transformer(build(DIT), parameters, depth=depth)
    assert "\n" not in str(raised.value)


def test_every_class_is_tried():
    assert CONFIGS.keys() == TRANSFORMERS.keys()
