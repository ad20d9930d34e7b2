"""The ledger in SQLite, and in a PostgreSQL server."""

import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from diffcredit.ledger import Ledger, NonDeterminism, Value

from .contract import LEDGER_CHECKS, RECIPE, STUDY, evaluation, register


@pytest.mark.parametrize("check", LEDGER_CHECKS)
def test_conformance(check, database):
    check(lambda: Ledger.open(database))


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    with Ledger.open(tmp_path_factory.mktemp("ledger") / "ledger.db") as opened:
        register(opened)
        yield opened


def test_numpy_numbers_are_recorded_as_numbers(tmp_path):
    item = replace(evaluation(), values=(Value("quality", np.float32(0.1), np.float64(0.2)),))
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        register(ledger)
        ledger.record(STUDY, RECIPE.name, item)
        assert not ledger.record(STUDY, RECIPE.name, item)
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        rows = connection.execute("SELECT value, standard_error FROM property_values").fetchall()
    assert rows == [(0.10000000149011612, 0.2)]


MORE = 0.5 + 2e-16


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        # a standard error that is unknown contradicts none
        ((0.5, None), (0.5, 0.1), ""),
        ((0.5, 0.1), (0.5, None), ""),
        ((0.5, None), (0.5, None), ""),
        ((0.5, 0.1), (0.5, 0.1), ""),
        ((0.5, 0.0), (0.5, -0.0), ""),
        ((0.5, None), (MORE, None), r"quality was 0\.5"),
        ((0.5, None), (MORE, 0.1), r"quality was 0\.5"),
        ((0.5, 0.1), (MORE, None), r"quality was 0\.5"),
        ((0.5, 0.1), (MORE, 0.1), r"quality was 0\.5"),
        ((0.5, 0.1), (0.5, 0.2), r"0\.5 ± 0\.1 and is 0\.5 ± 0\.2 now"),
    ],
)
def test_another_value_or_standard_error_contradicts(ledger, request, first, second, said):
    replicate = len(ledger.evaluations(STUDY, RECIPE.name))
    one, other = (
        replace(evaluation(), replicate=replicate, values=(Value("quality", *each),)) for each in (first, second)
    )
    assert ledger.record(STUDY, RECIPE.name, one)
    if said:
        with pytest.raises(NonDeterminism, match=said):
            ledger.record(STUDY, RECIPE.name, other)
    else:
        assert not ledger.record(STUDY, RECIPE.name, other)
    assert ledger.evaluations(STUDY, RECIPE.name)[-1] == one
