"""Values that are differences of evaluations: the exact Shapley value, leave-one-out and add-one-in."""

from math import comb

import numpy as np

from diffcredit.coalitions import encode
from diffcredit.coalitions.designs import LARGEST
from diffcredit.credit.credits import Credits, endpoint_influence
from diffcredit.credit.table import GameTable
from diffcredit.errors import UserError

NAMED = 5  # at most so many missing contributors are named in an error


def exact(table: GameTable, confidence: float) -> Credits:
    """Compute φ_i = Σ_{S∋i} F(S)/(n·C(n−1, |S|−1)) − Σ_{S∌i} F(S)/(n·C(n−1, |S|)) over all 2ⁿ coalitions.

    Replicates are averaged, and their pooled variance gives the interval, which without replicates has no width.
    """
    n = table.n
    if n > LARGEST:
        raise UserError(f"exact: {n} contributors; at most {LARGEST} (2^{LARGEST} coalitions)")
    table.require(2**n - 2, f"exact (all 2^{n} − 2 coalitions, {_missing_coalition(table)} among those missing)")
    joined = np.array([0.0] + [1 / (n * comb(n - 1, size - 1)) for size in range(1, n)])
    left = np.array([1 / (n * comb(n - 1, size)) for size in range(n)])
    slopes = np.where(table.coalitions, joined[table.sizes][:, None], -left[table.sizes][:, None]).T
    degrees = table.evaluations - len(table.values) + sum(len(e) - 1 for e in (table.empty, table.full))
    spread = table.scatter.sum() + sum(((e - e.mean()) ** 2).sum() for e in (table.empty, table.full))
    noise = float(spread / degrees) if degrees else 0.0
    return Credits.of(
        table,
        "exact",
        slopes @ table.values + table.level,
        np.hstack([slopes * np.sqrt(noise / table.replicates), endpoint_influence(table, noise)]),
        confidence=confidence,
        degrees=degrees or np.inf,
        diagnostics={"sigma": noise**0.5},
    )


def _missing_coalition(table: GameTable) -> str:
    codes = set((table.coalitions @ (1 << np.arange(table.n))).tolist())
    missing = next((code for code in range(1, 2**table.n - 1) if code not in codes), 0)
    return encode(missing >> np.arange(table.n) & 1)


def one_by_one(table: GameTable, confidence: float, method: str) -> Credits:
    """Estimate F(N) − F(N∖{i}), what a contributor adds to all others (``leave-one-out``), or F({i}) − F(∅), what it
    adds to nobody (``add-one-in``). Coalitions of other sizes are not used.

    Replicates are averaged. Their pooled noise, taken to be the endpoint's too, gives the interval (Student's t);
    without replicates it is infinite. The endpoint's error is common to all credits.
    """
    n, removed = table.n, method == "leave-one-out"
    rows = np.flatnonzero(table.sizes == (n - 1 if removed else 1))
    who = np.argmax(table.coalitions[rows] != removed, axis=1)
    missing = np.setdiff1d(np.arange(n), who)
    if len(missing):
        named = ", ".join(table.names[i] for i in missing[:NAMED])
        others = f" and {len(missing) - NAMED} others" if len(missing) > NAMED else ""
        raise UserError(
            f"{table.evaluations} evaluations of {n} contributors: {method} needs {len(missing)} more, of the "
            f"coalitions {'without' if removed else 'of only'} contributor {named}{others}"
        )
    row = rows[np.argsort(who)]  # (n,): the row of contributor i
    endpoint = table.full if removed else table.empty
    degrees = int((table.replicates[row] - 1).sum()) + len(endpoint) - 1
    scatter = float(table.scatter[row].sum() + ((endpoint - endpoint.mean()) ** 2).sum())
    known = degrees > 0
    noise = scatter / degrees if known else 0.0
    sign = -1.0 if removed else 1.0
    # One column per coalition, since the noises of different coalitions are independent.
    influence = np.zeros((n, len(table.values) + 2))
    influence[np.arange(n), row] = sign * np.sqrt(noise / table.replicates[row])
    column = 1 if removed else 0
    # n times, since the endpoint's error enters in full and not through the level.
    influence[:, -2 + column] = n * endpoint_influence(table, noise)[:, column]
    values = sign * (table.values[row] - endpoint.mean())
    return Credits.of(
        table,
        method,
        values,
        influence,
        confidence=confidence,
        degrees=degrees if known else None,
        diagnostics={"sigma": noise**0.5 if known else np.inf, "sum": float(values.sum())},
    )
