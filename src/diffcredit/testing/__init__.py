"""Games with known credits and conformance checks, for our tests and for those of plug-ins.

Names are loaded on first use, so that torch is imported only by checks that need it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diffcredit.testing.conformance import ConformanceError
    from diffcredit.testing.designs import check_design
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
    from diffcredit.testing.ledgers import LEDGER_CHECKS
    from diffcredit.testing.properties import check_property
    from diffcredit.testing.retrainings import check_retraining

_HOMES = {
    "ConformanceError": "conformance",
    "LEDGER_CHECKS": "ledgers",
    "additive": "games",
    "airport": "games",
    "all_coalitions": "games",
    "brute_force_shapley": "games",
    "check_design": "designs",
    "check_property": "properties",
    "check_retraining": "retrainings",
    "learning": "games",
    "noisy": "games",
    "random_game": "games",
    "unanimity": "games",
    "weighted_voting": "games",
}

__all__ = [
    "LEDGER_CHECKS",
    "ConformanceError",
    "additive",
    "airport",
    "all_coalitions",
    "brute_force_shapley",
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
    if name not in _HOMES:
        raise AttributeError(f"module 'diffcredit.testing' has no attribute {name!r}")
    return getattr(import_module(f"diffcredit.testing.{_HOMES[name]}"), name)
