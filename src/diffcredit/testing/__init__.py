"""Games with known credits and conformance checks, for our tests and for those of plug-ins.

Checks that need more than numpy are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from diffcredit.testing.designs import ConformanceError, check_design
from diffcredit.testing.games import (
    additive,
    airport,
    all_coalitions,
    brute_force_shapley,
    learning,
    noisy,
    random_game,
    unanimity,
    weighted_voting,
)

if TYPE_CHECKING:
    from diffcredit.testing.conformance import check_property, check_retraining
    from diffcredit.testing.denoisers import check_denoiser

__all__ = [
    "ConformanceError",
    "additive",
    "airport",
    "all_coalitions",
    "brute_force_shapley",
    "check_denoiser",
    "check_design",
    "check_property",
    "check_retraining",
    "learning",
    "noisy",
    "random_game",
    "unanimity",
    "weighted_voting",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'diffcredit.testing' has no attribute {name!r}")
    room = "denoisers" if name == "check_denoiser" else "conformance"
    return getattr(import_module(f"diffcredit.testing.{room}"), name)
