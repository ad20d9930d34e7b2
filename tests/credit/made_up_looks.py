"""Made-up credits and looks at them: only what stopping rules read."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from diffcredit.credit.stopping import Look


def credits(values: Any = (0.0, 1.0), error: Any = 1.0, width: Any = 1.0, correlation: float | None = 0.5) -> Any:
    """Credits with one standard error and one width of interval for all, or one for each."""
    values = np.asarray(values, dtype=float)
    half = np.broadcast_to(np.asarray(width, dtype=float) / 2, values.shape)
    return SimpleNamespace(
        values=values,
        low=values - half,
        high=values + half,
        standard_error=np.broadcast_to(np.asarray(error, dtype=float), values.shape),
        diagnostics={}
        if correlation is None
        else {"predicted_correlation": correlation, "assured_correlation": correlation},
    )


def look(
    evaluations: int,
    credits: dict[str, Any] | None = None,
    *,
    worker: float = 0.0,
    elapsed: float = 0.0,
    lower: tuple[str, ...] = (),
    properties: tuple[str, ...] = (),
) -> Look:
    """A look; properties that have no credits are named in ``properties``, those where lower is better in ``lower``."""
    names = [*(credits or {}), *properties]
    return Look(evaluations, worker, elapsed, credits, {name: name not in lower for name in names})
