"""Paying: what the ledger records, who pays first, what was interrupted, what was changed behind its back."""

import multiprocessing
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from threading import Barrier

import pytest
import yaml
from sqlalchemy import create_engine, text
from typer.testing import CliRunner

from diffcredit.cli import app
from diffcredit.errors import UserError
from diffcredit.ledger import Ledger
from diffcredit.payout import paying as steps
from diffcredit.payout.paying import recorded_payout
from diffcredit.payout.records import Payout
from diffcredit.study.study import Study
from diffcredit.util.artifacts import canonical_json
from paid_study import evaluated, published, stated
from tiny_study import changed, rows


def change(folder, changes):
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(changed(yaml.safe_load(file.read_text()), changes)))
    return file


@pytest.fixture
def ledgered(database, tmp_path):
    """The study file of a study whose ledger is in each kind of database in turn."""
    return evaluated(stated(tmp_path / "study", {"ledger": database}))


def paid_periods(file):
    study = Study.load(file)
    with study.ledger() as ledger:
        return [entry.name for entry in ledger.entries(study.name, "payout")]


def at_once(monkeypatch, file, periods):
    """Pay periods in as many threads, all of which have passed every check before the first one is recorded."""
    barrier, last = Barrier(len(periods)), steps._enter

    def enter(*arguments):
        barrier.wait(30)
        last(*arguments)

    def pay(period):
        try:
            return Study.load(file).payout(pool="100.00", period=period)
        except UserError as error:
            return str(error)

    with monkeypatch.context() as patched:
        patched.setattr(steps, "_enter", enter)
        with ThreadPoolExecutor(len(periods)) as payers:
            return [*payers.map(pay, periods)]


def test_one_of_those_who_pay_a_period_at_once_succeeds(ledgered, monkeypatch):
    found = at_once(monkeypatch, ledgered, ["a", "a", "a"])
    refused = [each for each in found if isinstance(each, str)]
    assert len(refused) == 2
    assert all("--period: 'a' was paid already" in each for each in refused)
    assert paid_periods(ledgered) == ["a"]
    study = Study.load(ledgered)
    with study.ledger() as ledger:
        assert ledger.audit(study.name).problems == ()
        assert len(ledger.entries(study.name, "policy")) == 1


def test_two_periods_at_once_do_not_carry_one_balance_twice(ledgered, monkeypatch):
    file = change(ledgered.parent, {"name": "other", "payout.minimum": 25})
    evaluated(file)
    Study.load(file).payout(pool="40.00", period="first")
    found = at_once(monkeypatch, file, ["a", "b"])
    (refused,) = (each for each in found if isinstance(each, str))
    (made,) = (each for each in found if isinstance(each, Payout))
    assert f"{made.period!r} was paid at the same time; run this payout again" in refused
    other = ({"a", "b"} - {made.period}).pop()
    again = Study.load(file).payout(pool="100.00", period=other)
    assert {row.contributor: row.opening for row in again.rows} == {row.contributor: row.carried for row in made.rows}


def pay_in_turn(file, barrier, results):
    """In a process of its own: pay when all others are about to record their payout too."""
    last = steps._enter

    def enter(*arguments):
        barrier.wait(30)
        last(*arguments)

    steps._enter = enter
    try:
        results.put(str(Study.load(file).payout(pool="100.00").pool))
    except UserError as error:
        results.put(str(error))


def test_two_processes(paying):
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(2), context.Queue()
    begun = [context.Process(target=pay_in_turn, args=(paying / "study.yaml", barrier, results)) for _ in range(2)]
    for process in begun:
        process.start()
    paid, refused = sorted((results.get(timeout=60) for _ in begun), key=len)
    for process in begun:
        process.join(60)
    assert paid == "100.00"
    assert "--period: 'study' was paid already" in refused
    assert paid_periods(paying) == ["study"]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemError])
def test_an_end_between_the_record_and_the_files(paying, monkeypatch, raised, tmp_path):
    """Nothing is paid twice, and the files are made from the record."""
    whole = shutil.copytree(paying, tmp_path / "whole")
    runner, results = CliRunner(), paying / "results"

    def stop(*_, **__):
        raise raised

    with monkeypatch.context() as patched:
        patched.setattr("diffcredit.report.payouts.write_payout", stop)
        ended = runner.invoke(app, ["payout", str(paying), "--pool", "100.00"])
    assert ended.exit_code == (130 if raised is KeyboardInterrupt else 1)
    assert not (results / "payouts.csv").exists()
    assert paid_periods(paying) == ["study"]
    again = runner.invoke(app, ["payout", str(paying), "--pool", "100.00"])
    assert "write that payout's pages again with diffcredit statements" in str(again.exception)
    assert runner.invoke(app, ["statements", str(paying)]).exit_code == 0
    assert paid_periods(paying) == ["study"]
    assert len([*(results / "statements").glob("*.html")]) == 4
    assert runner.invoke(app, ["payout", str(whole), "--pool", "100.00"]).exit_code == 0
    assert (results / "payouts.csv").read_bytes() == (whole / "results" / "payouts.csv").read_bytes()
    assert (results / "payout.html").is_file()


@pytest.mark.parametrize("step", ["certainty", "given_works", "_payout"])
def test_an_end_before_the_record(paying, monkeypatch, step):
    def stop(*_, **__):
        raise KeyboardInterrupt

    published(paying / "study.yaml")  # as a run does, or else the payout
    before = rows(paying, "SELECT count(*) FROM chain")
    with monkeypatch.context() as patched:
        patched.setattr(steps, step, stop)
        with pytest.raises(KeyboardInterrupt):
            Study.load(paying).payout(pool="100.00")
    assert rows(paying, "SELECT count(*) FROM chain") == before
    Study.load(paying).payout(pool="100.00")


@pytest.mark.parametrize("step", ["certainty", "given_works"])
def test_a_late_policy_is_not_fixed_by_a_payout_that_was_interrupted(tmp_path, monkeypatch, step):
    file = evaluated(stated(tmp_path, {"payout": None}))
    policy = {"property": "colourfulness", "fixed": "equal", "merit": "help", "r": 1, "currency": "EUR"}
    change(tmp_path, {"payout": policy})

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(steps, step, stop)
        with pytest.raises(KeyboardInterrupt):
            Study.load(file).payout(pool="100.00")
    assert rows(tmp_path, "SELECT kind FROM entries") == []
    change(tmp_path, {"payout.r": 0.5})
    assert Study.load(file).payout(pool="100.00").r == Decimal("0.5")


def test_the_record_is_all_that_was_paid(ledgered):
    made = Study.load(ledgered).payout(pool="100.00", period="2026-Q1")
    study = Study.load(ledgered)
    found = recorded_payout(study)
    assert found.payout == made
    with study.ledger() as ledger:
        assert found.head == ledger.head(study.name).hash
        assert made.policy_hash == ledger.entries(study.name, "policy")[0].content["hash"]
        assert ledger.audit(study.name, made.head).problems == ()  # the head before it is part of the chain
        (entry,) = ledger.entries(study.name, "payout")
        assert entry.entered == made.created
    assert sum(row.amount for row in made.rows) == made.pool == Decimal("100.00")


CHANGES = {
    "an amount": ("payout", '"amount":"36', '"amount":"96'),
    "an opening balance": ("payout", '"opening":"0', '"opening":"5'),
    "a name": ("payout", '"contributor":"ann"', '"contributor":"zoe"'),
    "the pool": ("payout", '"pool":"100', '"pool":"900'),
    "the time of the policy": ("payout", '"before_evaluations":true', '"before_evaluations":false'),
    "a policy": ("policy", '"r":"0.4"', '"r":"0.9"'),
    "a policy's hash": ("policy", '"hash":"', '"hash":"0'),
}


def run_sql(url, *statements):
    engine = create_engine(url)
    with engine.begin() as connection:
        counts = [connection.execute(text(statement)).rowcount for statement in statements]
    engine.dispose()
    return counts


def test_verify_finds_what_was_changed(ledgered, database):
    study = Study.load(ledgered)
    study.payout(pool="100.00")
    head = recorded_payout(study).head

    def verified():
        return CliRunner().invoke(app, ["verify", str(ledgered), "--head", head])

    assert "rows, all unchanged" in verified().output
    for name, (kind, old, new) in CHANGES.items():
        with Ledger.open(database) as ledger:
            (entry,) = ledger.entries("tiny", kind)
        stored = canonical_json(entry.content)
        assert old in stored, name
        for content in (stored.replace(old, new, 1), stored):
            quoted = content.replace("'", "''").replace(":", r"\:")
            assert run_sql(database, f"UPDATE entries SET content = '{quoted}' WHERE kind = '{kind}'") == [1]
            found = verified()
            if content != stored:
                assert found.exit_code == 1, name
                assert f"(entry '{entry.name}') is not as it was written" in found.output
                assert "the ledger was changed: 1 problems" in str(found.exception)
            else:
                assert found.exit_code == 0, name


@pytest.mark.parametrize(
    "statements",
    [
        ["DELETE FROM entries WHERE kind = 'payout'"],
        ["DELETE FROM chain WHERE kind = 'entry' AND number = (SELECT max(number) FROM chain)"],
        [
            "DELETE FROM chain WHERE kind = 'entry' AND number = (SELECT max(number) FROM chain)",
            "DELETE FROM entries WHERE kind = 'payout'",  # which the head on every statement reveals
        ],
        ["UPDATE entries SET name = 'other' WHERE kind = 'payout'"],
        ["UPDATE entries SET entered = '2020-01-01T00\\:00\\:00+00\\:00' WHERE kind = 'policy'"],
    ],
)
def test_verify_finds_what_was_removed(paying, statements):
    study = Study.load(paying)
    study.payout(pool="100.00")
    head = recorded_payout(study).head
    run_sql(f"sqlite:///{paying / 'results' / 'ledger.db'}", *statements)
    assert CliRunner().invoke(app, ["verify", str(paying), "--head", head]).exit_code == 1


@pytest.mark.parametrize("changes", [{"root": "0" * 64}, {"payout": "0" * 64}, {"leaves": 3}, None])
def test_verify_finds_a_proof_of_other_statements(paying, changes):
    """A payer enters a payout, and behind it the proof of statements that say something else, or none at all."""
    study = Study.load(paying)
    study.payout(pool="100.00")
    assert "1 payout, each with the proof" in CliRunner().invoke(app, ["verify", str(paying)]).output
    with study.ledger() as ledger:
        (entry,), (proof,) = ledger.entries(study.name, "payout"), ledger.entries(study.name, "proof")
        second = replace(entry, name="b", content=entry.content | {"period": "b"})
        other = [] if changes is None else [replace(proof, name="b", content=proof.content | changes)]
        ledger.enter(study.name, second, lambda known, evaluated: True, other)
    found = CliRunner().invoke(app, ["verify", str(paying)])
    assert found.exit_code == 1
    assert "the payout of b has no proof behind it in the ledger, or another one" in str(found.exception)


@pytest.mark.parametrize("version", [2, 3])
def test_a_ledger_of_an_earlier_schema_is_paid_from(tmp_path, version):
    file = evaluated(stated(tmp_path, {"payout": None}))
    path = tmp_path / "results" / "ledger.db"
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE entries")
        if version == 2:
            connection.execute("DROP TABLE chain")
            connection.execute("DROP TABLE claims")
        connection.execute("UPDATE schema_version SET version = ?", (version,))
    policy = {"property": "colourfulness", "fixed": "equal", "merit": "help", "r": 1, "currency": "EUR"}
    change(tmp_path, {"payout": policy})
    study = Study.load(file)
    said = "nothing was paid yet" if version == 3 else "is of an older schema without a chain"
    with pytest.raises(UserError, match=said):
        recorded_payout(study)
    study.ledger().close()  # as a run opens it
    made = study.payout(pool="100.00")
    assert not made.before_evaluations
    assert recorded_payout(study).payout == made
    with study.ledger() as ledger:
        assert ledger.audit(study.name, recorded_payout(study).head).problems == ()
    assert rows(tmp_path, "SELECT version FROM schema_version") == [(4,)]
