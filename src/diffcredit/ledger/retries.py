"""Waiting for a database server that does not answer."""

import logging
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from diffcredit.errors import DiffcreditError
from diffcredit.ledger.database import Database
from diffcredit.util.events import event

PATIENCE = 120.0  # seconds for which a server may be away
PAUSE = 0.5  # seconds between two attempts


class _UsesDatabase(Protocol):
    _database: Database


_Self = TypeVar("_Self", bound=_UsesDatabase)
_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")


def retry_while_away(
    method: Callable[Concatenate[_Self, _Rest], _Result],
) -> Callable[Concatenate[_Self, _Rest], _Result]:
    """Repeat a method of one transaction while its server is away, for instance because it restarts.

    Repeating is safe: the transaction was undone, or it was committed and the repetition finds it done. An error of a
    database file, such as a full disk, is raised at once.
    """

    @wraps(method)
    def repeated(self: _Self, *arguments: _Rest.args, **named: _Rest.kwargs) -> Any:
        database = self._database
        began, away = time.monotonic(), False
        end = began + (0.0 if database.is_file else PATIENCE)
        while True:
            try:
                result = method(self, *arguments, **named)
            except DBAPIError as error:
                # a session that the server has ended may show as an error of any class
                if not (error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)):
                    raise
                reason = " ".join(str(error.orig).split())
                if time.monotonic() >= end:
                    raise DiffcreditError(f"{database.name}: {reason}") from error
                if not away:
                    away = True
                    event("ledger away", level=logging.WARNING, ledger=database.name, error=reason)
                time.sleep(PAUSE)
            else:
                if away:
                    event("ledger back", ledger=database.name, seconds=round(time.monotonic() - began, 3))
                return result

    return repeated
