"""A server that is away is waited for, and the log says so."""

from types import SimpleNamespace

import pytest
from sqlalchemy.exc import OperationalError

from diffcredit.errors import DiffcreditError
from diffcredit.ledger import retries


class Answering:
    """Answers after so many failures."""

    def __init__(self, kind, failures):
        self._database = SimpleNamespace(is_file=kind == "sqlite", name="ledger")
        self.failures = failures

    @retries.retry_while_away
    def ask(self):
        self.failures -= 1
        if self.failures >= 0:
            raise OperationalError("SELECT", {}, Exception("connection\nrefused"))
        return "answer"


def test_waiting_is_told_once(monkeypatch, caplog):
    monkeypatch.setattr(retries, "PAUSE", 0.0)
    caplog.set_level("INFO", logger="diffcredit")
    assert Answering("postgresql", 0).ask() == "answer"
    assert caplog.records == []
    assert Answering("postgresql", 3).ask() == "answer"
    away, back = caplog.records
    assert (away.getMessage(), away.levelname, away.fields["error"]) == ("ledger away", "WARNING", "connection refused")
    assert (back.getMessage(), back.levelname) == ("ledger back", "INFO")


def test_a_file_is_not_waited_for(caplog):
    with pytest.raises(DiffcreditError, match="ledger: connection refused"):
        Answering("sqlite", 1).ask()
    assert caplog.records == []
