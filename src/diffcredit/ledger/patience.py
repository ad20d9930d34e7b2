"""What becomes of a database that does not answer."""

import logging
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from diffcredit.errors import DiffcreditError
from diffcredit.util.events import event

PATIENCE = 120.0  # seconds for which a server may be away
PAUSE = 0.5  # seconds between two attempts


class _Stored(Protocol):
    _engine: Engine
    _name: str


_Self = TypeVar("_Self", bound=_Stored)
_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")


def persistent(method: Callable[Concatenate[_Self, _Rest], _Result]) -> Callable[Concatenate[_Self, _Rest], _Result]:
    """Repeats a transaction while its server is away, as when it is restarted: whatever was done of it is undone, or
    done already and found so. What a file refuses (a full disk) is an error at once."""

    @wraps(method)
    def repeated(self: _Self, *arguments: _Rest.args, **named: _Rest.kwargs) -> Any:
        began, away = time.monotonic(), False
        end = began + (0.0 if self._engine.dialect.name == "sqlite" else PATIENCE)
        while True:
            try:
                result = method(self, *arguments, **named)
            except DBAPIError as error:
                # a session that the server has ended may show as an error of any class
                if not (error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)):
                    raise
                reason = " ".join(str(error.orig).split())
                if time.monotonic() >= end:
                    raise DiffcreditError(f"{self._name}: {reason}") from error
                if not away:
                    away = True
                    event("ledger away", level=logging.WARNING, ledger=self._name, error=reason)
                time.sleep(PAUSE)
            else:
                if away:
                    event("ledger back", ledger=self._name, seconds=round(time.monotonic() - began, 3))
                return result

    return repeated
