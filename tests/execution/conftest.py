import pytest

from diffcredit.execution import time_limits


@pytest.fixture
def impatient(monkeypatch):
    """A worker that takes longer than two seconds for an evaluation counts as hung once another has finished."""
    monkeypatch.setattr(time_limits, "LEAST", 2.0)
