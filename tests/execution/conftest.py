import logging
from collections import Counter
from collections.abc import Callable

import pytest

from diffcredit.execution import pool


@pytest.fixture
def impatient(monkeypatch):
    """A worker that takes longer than a second for an evaluation counts as hung once another has finished."""
    monkeypatch.setattr(pool, "LEAST", 1.0)


@pytest.fixture
def told(caplog) -> Callable[[], Counter[str]]:
    """How often each kind of event was told."""
    caplog.set_level(logging.INFO, "diffcredit")
    return lambda: Counter(record.getMessage() for record in caplog.records)
