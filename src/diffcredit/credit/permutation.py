"""The Shapley value from permutations, which are found among the coalitions.

The table's coalitions with ∅ and N are nodes of a graph with an edge S → S∪{i} if both are there, and every path from ∅
to N is a permutation. A unit flow runs from ∅ to N; φ_i = Σ flow(S → S∪{i}) · (F(S∪{i}) − F(S)) sum to F(N) − F(∅).

Each of k permutations sends 1/k along its path, so replicates/k passes through every coalition. If permutations share
prefixes, more than one flow does that; the most even one is found by scaling edges in turn to the flow of their two
coalitions (Sinkhorn). Without shared prefixes the credits are the mean marginal contributions. If the coalitions were
drawn regardless of who is who, E flow(S → S∪{i}) is 1/((n−|S|)·C(n,|S|)), the Shapley weight: the credits are unbiased,
and exact if all coalitions are given once.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from diffcredit.credit.credits import Credits, endpoint_influence
from diffcredit.credit.table import GameTable, IntArray
from diffcredit.errors import UserError
from diffcredit.util.arrays import BoolArray, FloatArray

# Scaling stops if the flow through every coalition is right to this relative error, or after this many rounds.
FLOW_TOLERANCE, SCALINGS = 1e-10, 100


def permutation(table: GameTable, confidence: float) -> Credits:
    """Estimate Shapley values as mean marginal contributions over the permutations in the table.

    Interval: the marginal contributions of one contributor count as k independent draws (Student's t), k the smallest
    number of evaluations used at any size, plus the errors of F(∅) and F(N). Infinite for a single permutation. Too
    narrow for 5 to 20 of them if F(∅) is far from all other values: a contributor that never came first does not
    show that step.
    """
    edges = _flow(table)
    n, k = table.n, edges.permutations
    credits = _sums(edges.contributor, edges.flow * edges.difference, n)
    known = k > 1
    influence = _influence(table, edges, credits) if known else np.full((n, n + 4), np.inf)
    return Credits.of(
        table,
        "permutation",
        credits,
        influence,
        confidence=confidence,
        degrees=k - 1 if known else 1,
        diagnostics={"permutations": float(k), "evaluations_used": float(edges.used)},
    )


def _influence(table: GameTable, edges: "_Edges", credits: FloatArray) -> FloatArray:
    """Return (n, n + 4): one column per contributor, since errors of different ones are only weakly correlated; then
    what F(∅) and F(N) add beyond the nth part that is in every credit; then that part."""
    n, k = table.n, edges.permutations
    errors = np.diag(np.sqrt(edges.squares_about(credits, edges.contributor) / (k - 1)))
    means = _sums(edges.size, edges.flow * edges.difference, n)
    # A difference has two noisy values, or one if the other is an endpoint: 2(n − 1) in n steps.
    noise = float(edges.squares_about(means, edges.size).sum()) / (2 * (n - 1)) * k / (k - 1)
    shared = endpoint_influence(table, noise)
    return np.hstack([errors, shared * (n * edges.endpoint_flow - 1), shared])


@dataclass(frozen=True, eq=False)
class _Edges:
    """The graph's edges that lie on a path from ∅ to N.

    (e,) each: size |S|, 0..n−1; contributor, who joins; flow; difference F(S∪{i}) − F(S) of the means over replicates;
    scatter, the mean square of the replicates about these means. endpoint_flow (n, 2): each contributor's flow out of ∅
    and into N. permutations: the smallest number of evaluations on paths at any size; used: their total number.
    """

    size: IntArray
    contributor: IntArray
    flow: FloatArray
    difference: FloatArray
    scatter: FloatArray
    endpoint_flow: FloatArray
    permutations: int
    used: int

    def squares_about(self, means: FloatArray, group: IntArray) -> FloatArray:
        """Return (n,): the mean over permutations of (difference − its group's mean)², for groups 0..n−1 of edges."""
        squares = (self.difference - means[group]) ** 2 + self.scatter
        return _sums(group, self.flow * squares, len(means))


def _flow(table: GameTable) -> _Edges:
    n, r = table.n, table.replicates.astype(np.float64)
    levels = [np.flatnonzero(table.sizes == size) for size in range(1, n)]
    steps = _successors(table, levels)
    alive = _on_paths(table, levels, steps)
    levels = [level[alive[level]] for level in levels]
    first, last, spread = levels[0], levels[-1], table.scatter / r
    node = r[first] / r[first].sum()
    contributors, flows = [np.argmax(table.coalitions[first], axis=1)], [node]
    differences, scatters = [table.values[first] - table.empty.mean()], [spread[first]]
    for lower, upper, (source, target, contributor) in zip(levels[:-1], levels[1:], steps, strict=True):
        kept = alive[source] & alive[target]
        source, target = source[kept], target[kept]
        a, b = np.searchsorted(lower, source), np.searchsorted(upper, target)
        flow = node[a] * _split(a, b, r[lower] / r[lower].sum(), r[upper] / r[upper].sum())
        node = _sums(b, flow, len(upper))
        contributors.append(contributor[kept])
        flows.append(flow)
        differences.append(table.values[target] - table.values[source])
        scatters.append(spread[target] + spread[source])
    contributors.append(np.argmin(table.coalitions[last], axis=1))
    flows.append(node)
    differences.append(table.full.mean() - table.values[last])
    scatters.append(spread[last])
    return _Edges(
        size=np.repeat(np.arange(n), [len(edges) for edges in flows]),
        contributor=np.concatenate(contributors),
        flow=np.concatenate(flows),
        difference=np.concatenate(differences),
        scatter=np.concatenate(scatters),
        endpoint_flow=np.stack([_sums(contributors[end], flows[end], n) for end in (0, -1)], axis=1),
        permutations=min(int(table.replicates[level].sum()) for level in levels),
        used=int(table.replicates[alive].sum()),
    )


def _split(a: IntArray, b: IntArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Return (e,): the part of the flow out of each source a that each edge a → b takes, so that with ``lower`` leaving
    the sources the flow into each b is ``upper``, as nearly as the edges allow."""
    flow = lower[a]
    for _ in range(SCALINGS):
        flow = flow * (upper / _sums(b, flow, len(upper)))[b]
        leaving = _sums(a, flow, len(lower))
        flow = flow * (lower / leaving)[a]
        if np.abs(leaving / lower - 1).max() < FLOW_TOLERANCE:
            break
    return flow / lower[a]


def _sums(group: IntArray, values: FloatArray, count: int) -> FloatArray:
    """Return (count,): values (e,) summed within groups 0..count−1."""
    return np.bincount(group, values, count).astype(np.float64)


def _successors(table: GameTable, levels: list[IntArray]) -> list[tuple[IntArray, IntArray, IntArray]]:
    """Return, for each size 1..n−2, the edges to the next size: rows of S, rows of S∪{i}, and i.

    A coalition's key is the sum of its members' random keys; two coalitions share one with probability 2⁻⁶⁴.
    """
    members = np.random.Generator(np.random.PCG64(0)).integers(0, 2**64, table.n, dtype=np.uint64)
    keys = table.coalitions @ members
    steps = []
    for lower, upper in pairwise(levels):
        wanted, order = keys[lower, None] + members, np.argsort(keys[upper])
        source, contributor = np.nonzero(np.isin(wanted, keys[upper]))
        target = order[np.searchsorted(keys[upper], wanted[source, contributor], sorter=order)]
        steps.append((lower[source], upper[target], contributor))
    return steps


def _on_paths(table: GameTable, levels: list[IntArray], steps: list[tuple[IntArray, IntArray, IntArray]]) -> BoolArray:
    """Return (m,): whether each coalition lies on a path from ∅ to N. Raise UserError if there is no such path."""
    below, above = (np.zeros(len(table.values), dtype=np.bool_) for _ in range(2))
    below[levels[0]] = True
    above[levels[-1]] = True
    for source, target, _ in steps:
        below[target[below[source]]] = True
    for source, target, _ in reversed(steps):
        above[source[above[target]]] = True
    alive = below & above
    if not alive.any():
        n = table.n
        longest = max(table.sizes[below].max(initial=0), n - table.sizes[above].min(initial=n))
        raise UserError(
            f"{table.evaluations} evaluations of {n} contributors: permutation needs all {n - 1} prefixes of at least "
            f"one permutation, {n - 1 - int(longest)} more"
        )
    return alive
