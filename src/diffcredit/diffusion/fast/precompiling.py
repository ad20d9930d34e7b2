"""Compile a network's kernels in parallel: its first step would compile them one after another, for a minute."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, Node
from torch.fx.node import map_arg

AT_ONCE = 8  # each needs memory for its tensors


def precompile_kernels(graph: Graph) -> None:
    """Call each distinct operator of ours in ``graph`` once, on uninitialised tensors; results are ignored."""
    calls: dict[str, Node] = {}
    for node in graph.nodes:
        if isinstance(node.target, OpOverload) and node.target.namespace == "diffcredit":
            calls.setdefault(str([node.target, map_arg(node.args, _look)]), node)
    with ThreadPoolExecutor(min(AT_ONCE, os.cpu_count() or 1)) as pool:
        list(pool.map(_call, calls.values()))


def _look(node: Node) -> Any:
    tensor = node.meta["val"]
    return tensor.shape, tensor.stride(), tensor.dtype


def _call(node: Node) -> None:
    target: Any = node.target
    first: Any = node.args[0]
    device = first.meta["val"].device
    there = torch.cuda.device(device) if device.type == "cuda" else nullcontext()  # a thread has its own current device
    with suppress(torch.OutOfMemoryError), there:
        target(*map_arg(node.args, _whatever))  # if memory runs out, it is compiled when first used


def _whatever(node: Node) -> Any:
    like: Tensor = node.meta["val"]
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
