"""Claims where clocks jump."""

import pytest

from diffcredit.execution.holders import is_gone
from diffcredit.ledger import Ledger, claims

from .contract import RECIPE, STUDY, register

TASK = STUDY, RECIPE.name, "0110", 0
DAY = 86_400.0


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger.db") as opened:
        register(opened)
        yield opened


@pytest.fixture
def clock(monkeypatch):
    """This machine's clock, which the test sets."""
    now = [1.8e9]
    monkeypatch.setattr(claims.time, "time", lambda: now[0])
    return now


def test_a_claim_holds_as_long_as_was_said(ledger, clock):
    first = ledger.claim(*TASK, "a", 60)
    clock[0] += 59
    assert ledger.claim(*TASK, "b", 60) is None
    assert ledger.renew([first], 60) == [first]
    clock[0] += 59
    assert ledger.claim(*TASK, "b", 60) is None
    clock[0] += DAY
    second = ledger.claim(*TASK, "b", 60)
    assert second.token > first.token
    assert ledger.renew([first, second], 60) == [second]


def test_a_clock_put_back_locks_nothing_up(ledger, clock):
    assert ledger.claim(*TASK, "a", 60)
    clock[0] -= DAY
    other = ledger.claim(*TASK, "b", 60)
    assert other
    assert ledger.claim(*TASK, "a", 60) is None
    assert ledger.renew([other], 60) == [other]


def test_no_claim_is_longer_than_the_longest(ledger, clock):
    assert ledger.claim(*TASK, "a", 10 * DAY)
    clock[0] += claims.LONGEST_LEASE - 1
    assert ledger.claim(*TASK, "b", 60) is None
    clock[0] += 2
    assert ledger.claim(*TASK, "b", 60)


def test_the_clock_of_a_server_counts(postgres, clock):
    """However wrong this machine's clock is."""
    with Ledger.open(postgres) as opened:
        register(opened)
        assert opened.claim(*TASK, "a", 60)
        clock[0] += DAY
        assert opened.claim(*TASK, "b", 60) is None


def test_taking_over_is_told_and_giving_back_is_not(ledger, clock, caplog):
    caplog.set_level("INFO", logger="diffcredit")
    first = ledger.claim(*TASK, "a", 60)
    ledger.release([first])
    ledger.claim(*TASK, "b", 60)
    assert caplog.records == []
    clock[0] += 61
    ledger.claim(*TASK, "c", 60)
    ledger.claim(*TASK, "d", 60, lambda holder: holder == "c")
    assert [(each.getMessage(), each.fields["before"], each.fields["holder"]) for each in caplog.records] == [
        ("claim taken over", "b", "c"),
        ("claim taken over", "c", "d"),
    ]


@pytest.mark.parametrize(
    "damage",
    [
        "expires = 'soon'",
        "expires = x'00'",
        "expires = 9e999",
        "holder = x'ff00'",
        "holder = char(27) || '[2J' || char(10)",
        "holder = 'a:99999999999999999999999:b'",
        "holder = ''",
        "token = 'first'",
        "token = 9223372036854775807",
        "token = -1",
    ],
)
def test_a_damaged_claim_holds_nobody_up_and_ends_no_command(ledger, damage):
    """Claims are no part of the record: a damaged one is worth nothing."""
    assert ledger.claim(*TASK, "a:1:x", 60)
    with ledger._database.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE claims SET {damage}")
    assert all(isinstance(each.holder, str) for each in ledger.claims(STUDY))
    now = claims.time.time()
    taken = ledger.claim(*TASK, "b:2:x", 60, is_gone) or ledger.claim(*TASK, "b:2:x", 60, lambda _: True)
    assert ledger.renew([taken], 60) == [taken]
    (current,) = ledger.claims(STUDY)
    assert current.holder == "b:2:x"
    assert 0 < current.seconds_left <= 61 + claims.time.time() - now
    ledger.release([taken])
    assert ledger.claims(STUDY) == []
