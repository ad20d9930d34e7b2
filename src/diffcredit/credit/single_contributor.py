"""Leave-one-out and add-one-in: what a contributor adds to all others, or to nobody."""

import numpy as np

from diffcredit.credit.credits import Credits, endpoint_influence
from diffcredit.credit.table import GameTable
from diffcredit.errors import UserError

# An error names at most this many missing contributors.
NAMED = 5


def leave_one_out(table: GameTable, confidence: float) -> Credits:
    """Estimate F(N) − F(N∖{i}). See `_differences`."""
    return _differences(table, "leave-one-out", confidence)


def add_one_in(table: GameTable, confidence: float) -> Credits:
    """Estimate F({i}) − F(∅). See `_differences`."""
    return _differences(table, "add-one-in", confidence)


def _differences(table: GameTable, method: str, confidence: float) -> Credits:
    """Subtract the endpoint from each contributor's coalition, or the reverse; coalitions of other sizes are not used.

    Replicates are averaged. Their noise is taken to be the same for these coalitions and the endpoint and pooled, which
    gives the interval (Student's t). The endpoint's error is common to all credits. Without replicates the noise is not
    known and intervals are infinite.
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
