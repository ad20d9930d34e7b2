"""diffcredit: how much each data contributor of a diffusion model is worth to a property of it.

The public API. Names are loaded on first use, so that ``import diffcredit`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diffcredit.coalitions import make_design
    from diffcredit.contributions import Contributions, load_contributions
    from diffcredit.credit import Credits, estimate
    from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError
    from diffcredit.execution import InProcess, LocalWorkers, RayWorkers
    from diffcredit.ledger import Ledger
    from diffcredit.properties import Property
    from diffcredit.study.study import Study

_HOMES = {
    "Contributions": "contributions",
    "Credits": "credit",
    "DiffcreditError": "errors",
    "DiffcreditWarning": "errors",
    "InProcess": "execution",
    "Ledger": "ledger",
    "LocalWorkers": "execution",
    "Property": "properties",
    "RayWorkers": "execution",
    "Study": "study",
    "UserError": "errors",
    "estimate": "credit",
    "load_contributions": "contributions",
    "make_design": "coalitions",
}

__all__ = [
    "Contributions",
    "Credits",
    "DiffcreditError",
    "DiffcreditWarning",
    "InProcess",
    "Ledger",
    "LocalWorkers",
    "Property",
    "RayWorkers",
    "Study",
    "UserError",
    "estimate",
    "load_contributions",
    "make_design",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'diffcredit' has no attribute {name!r}")
    return getattr(import_module(f"diffcredit.{_HOMES[name]}"), name)
