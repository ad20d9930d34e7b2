"""A study: contributions, model, retraining, properties and design put together, from its file to its credits.
``Study`` is imported on first use: reading a study file takes only :mod:`diffcredit.study.config`, which loads fast."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diffcredit.study.study import Study

__all__ = ["Study"]


def __getattr__(name: str) -> Any:
    if name != "Study":
        raise AttributeError(f"module 'diffcredit.study' has no attribute {name!r}")
    from diffcredit.study.study import Study

    return Study
