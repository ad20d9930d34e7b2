"""Simplify a trace: leave out divisions by one, and let kernels compute the sums beside them."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

_aten: Any = torch.ops.aten
# By name: on the CPU nothing registers these operators, and a network without stacked convolutions only the first.
NORM_SLOPES, CONVOLVE_BACK = "diffcredit.norm_slopes.default", "diffcredit.convolve_back.default"
_VIEWS = {
    _aten.transpose.int,
    _aten.view.default,
    _aten._unsafe_view.default,
    _aten.squeeze.dim,
    _aten.unsqueeze.default,
}


def leave_out_divisions_by_one(graph: Graph) -> None:
    """Remove divisions by one from ``graph``: diffusers' blocks end with one, which would copy the images."""
    for node in [node for node in graph.nodes if node.target is _aten.div.Tensor and node.args[1] == 1.0]:
        if node.args[0].meta["val"].dtype == node.meta["val"].dtype:  # dividing integers changes the dtype
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def add_in_kernels(graph: Graph) -> None:
    """Let the kernels of norms and convolutions add the gradient from the other use of images that were used twice, in
    ``graph``, so that it need not be read and written once more."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    for kernel in list(graph.nodes):
        if str(kernel.target) == NORM_SLOPES:
            results = [_result(kernel, place) for place in range(1 if kernel.args[2] is None else 2)]
            _add(graph, kernel, 9, [_sum_of(result, order[kernel], order) for result in results])
        elif str(kernel.target) == CONVOLVE_BACK:
            _add(graph, kernel, 3, [_sum_of(kernel, order[kernel], order)])


@dataclass(frozen=True)
class _Sum:
    """The sum ``total`` of a kernel's result, after ``views``, and ``added``."""

    views: list[Node]
    added: Node
    total: Node


def _result(kernel: Node, place: int) -> Node | None:
    return next((user for user in kernel.users if user.target is operator.getitem and user.args[1] == place), None)


def _sum_of(result: Node | None, made: int, order: dict[Node, int]) -> _Sum | None:
    """Return the sum that is the only use of ``result``, if its other term is computed before it is ``made``."""
    views: list[Node] = []
    last = result
    while last is not None and len(last.users) == 1:
        user = next(iter(last.users))
        if user.target in _VIEWS:
            views.append(user)
            last = user
            continue
        if user.target is not _aten.add.Tensor or user.kwargs:
            return None
        added = user.args[1] if user.args[0] is last else user.args[0]
        if isinstance(added, Node) and added is not last and order.get(added, made) < made and _alike(last, added):
            return _Sum(views, added, user)
        return None
    return None


def _alike(one: Node, other: Node) -> bool:
    mine, theirs = one.meta["val"], other.meta["val"]
    return mine.shape == theirs.shape and mine.dtype == theirs.dtype and mine.stride() == theirs.stride()


def _add(graph: Graph, kernel: Node, place: int, sums: Sequence[_Sum | None]) -> None:
    """If each result of ``kernel`` has a sum, pass the other terms as arguments from ``place`` on; drop the sums."""
    found = [each for each in sums if each is not None]
    if len(found) < len(sums):
        return
    given = list(kernel.args)
    with graph.inserting_before(kernel):
        given[place : place + len(found)] = [_unseen(graph, each) for each in found]
    kernel.args = tuple(given)
    for each in found:
        each.total.replace_all_uses_with(each.views[-1] if each.views else _own(each))
        graph.erase_node(each.total)


def _own(each: _Sum) -> Any:
    """Return the kernel's result itself."""
    return each.total.args[1] if each.total.args[0] is each.added else each.total.args[0]


def _unseen(graph: Graph, each: _Sum) -> Node:
    """Return the other term, viewed in the shape of the kernel's result before its views."""
    node = each.added
    for view in reversed(each.views):
        if view.target is _aten.transpose.int:
            target, how = _aten.transpose.int, view.args[1:]
        else:
            before: Any = view.args[0]
            target, how = _aten.view.default, (list(before.meta["val"].shape),)
        value = target(node.meta["val"], *how)
        node = graph.call_function(target, (node, *how))
        node.meta["val"] = value
    return node
