"""What one contributor adds at the end, or at the beginning: leave-one-out and add-one-in."""

import numpy as np

from diffcredit.credit.credits import Credits, endpoint_influence
from diffcredit.credit.table import GameTable
from diffcredit.errors import UserError

# An error names this many missing contributors.
NAMED = 5


def leave_one_out(table: GameTable, confidence: float) -> Credits:
    """F(N) − F(N∖{i}). See :func:`_differences`."""
    return _differences(table, "leave-one-out", confidence)


def add_one_in(table: GameTable, confidence: float) -> Credits:
    """F({i}) − F(∅). See :func:`_differences`."""
    return _differences(table, "add-one-in", confidence)


def _differences(table: GameTable, method: str, confidence: float) -> Credits:
    """Each contributor's coalition against the endpoint; coalitions of other sizes are not looked at.

    The mean over replicates; their noise is taken as the same for these coalitions and their endpoint and pooled from
    all their replicates, which gives the interval (Student's t). The endpoint's own error is shared by all credits.
    Without any replicate the noise is not known, and the intervals are infinite: an exactly known endpoint says
    nothing about the noise of the others.
    """
    n, removed = table.n, method == "leave-one-out"
    rows = np.flatnonzero(table.sizes == (n - 1 if removed else 1))
    who = np.argmax(table.coalitions[rows] != removed, axis=1)
    missing = np.setdiff1d(np.arange(n), who)
    if len(missing):
        named = ", ".join(map(str, missing[:NAMED]))
        others = f" and {len(missing) - NAMED} others" if len(missing) > NAMED else ""
        raise UserError(
            f"{table.evaluations} evaluations of {n} contributors: {method} needs {len(missing)} more, of the "
            f"coalitions {'without' if removed else 'of only'} contributor {named}{others} (counted from 0)"
        )
    row = rows[np.argsort(who)]  # (n,): the row of contributor i
    endpoint = table.full if removed else table.empty
    degrees = int((table.replicates[row] - 1).sum()) + len(endpoint) - 1
    scatter = float(table.scatter[row].sum() + ((endpoint - endpoint.mean()) ** 2).sum())
    known = degrees > 0
    noise = scatter / degrees if known else 0.0
    sign = -1.0 if removed else 1.0
    # One column a coalition: the noises of different coalitions are independent.
    influence = np.zeros((n, len(table.values) + 2))
    influence[np.arange(n), row] = sign * np.sqrt(noise / table.replicates[row])
    column = 1 if removed else 0
    # n times: the difference itself, where other methods share it out.
    influence[:, -2 + column] = n * endpoint_influence(table, noise)[:, column]
    values = sign * (table.values[row] - endpoint.mean())
    return Credits.of(
        table,
        method,
        values,
        influence if known else np.full_like(influence, np.inf),
        confidence=confidence,
        degrees=degrees if known else 1,
        diagnostics={"sigma": noise**0.5 if known else np.inf, "sum": float(values.sum())},
    )
