"""``anchor`` with openssl's timestamp server: what it stamps is entered, and ``verify`` checks it ever after."""

import json
import re
import sqlite3
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from diffcredit.errors import DiffcreditError
from diffcredit.proofs.anchors import check_timestamp, document, imprint_of, read_certificates, request_for
from diffcredit.study.study import Study
from timestamp_server import OPENSSL, TimestampServer, stamped
from tiny_study import rows

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="no openssl on the PATH")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    return TimestampServer(tmp_path_factory.mktemp("authority") / "tsa")


@pytest.fixture
def other(tmp_path):
    return TimestampServer(tmp_path / "other")


@pytest.fixture(scope="module")
def url(server):
    with server.serving() as found:
        yield found


def requested(diffcredit, folder):
    diffcredit.printed("anchor", folder)
    return sorted((folder / "results" / "anchors").glob("*.tsq"))[-1]


def failed(diffcredit, *arguments):
    code, _, complaint = diffcredit(*arguments)
    assert (code, complaint.count("\n")) == (1, 1), complaint
    return complaint


def test_a_head_is_stamped_entered_and_verified(diffcredit, paying, server, url):
    before = rows(paying, "SELECT number, hash FROM chain ORDER BY number")
    request = requested(diffcredit, paying)
    number, head = before[-1]
    text = request.with_suffix(".json")
    assert json.loads(text.read_text()) == {
        "format": "diffcredit head 1",
        "study": "tiny",
        "head": head,
        "number": number,
    }
    assert rows(paying, "SELECT number, hash FROM chain ORDER BY number") == before
    response = stamped(url, request)
    # openssl, which knows nothing of us, agrees
    said = subprocess.run(
        [OPENSSL, "ts", "-verify", "-data", text, "-in", response, "-CAfile", server.root],
        capture_output=True,
        text=True,
    )
    assert "Verification: OK" in said.stdout, said.stderr
    said = diffcredit.printed("anchor", paying, "--check", response, "--ca", server.root)
    (time,) = re.findall(
        rf"The head {head} \(row {number}\) existed at (\S+), by the timestamp of CN=Stamps 1,O=Stamps", said
    )
    assert abs(datetime.fromisoformat(time) - datetime.now(UTC)) < timedelta(minutes=10)
    root = x509.load_pem_x509_certificate(server.root.read_bytes()).fingerprint(hashes.SHA256()).hex()
    assert root in said
    assert rows(paying, "SELECT kind, name FROM entries ORDER BY id")[-1] == ("anchor", head)
    verified = diffcredit.printed("verify", paying)
    assert said.strip() in verified
    # once is enough; the head is another one now, and can be stamped in turn
    diffcredit.printed("anchor", paying, "--check", response, "--ca", server.root)
    assert rows(paying, "SELECT count(*) FROM chain") == [(number + 1,)]
    second = requested(diffcredit, paying)
    assert second != request
    diffcredit.printed("anchor", paying, "--check", stamped(url, second), "--ca", server.root)
    assert diffcredit.printed("verify", paying).count("existed at") == 2


def test_what_is_not_the_response_is_refused(diffcredit, paying, server, url, other):
    request = requested(diffcredit, paying)
    response = stamped(url, request)
    good, again = response.read_bytes(), request.read_bytes()
    check = ("anchor", paying, "--check", response, "--ca", server.root)
    assert "does not lead to an authority that is trusted here" in failed(diffcredit, *check[:-1], other.root)
    assert "does not lead to an authority that is trusted here" in failed(diffcredit, *check[:-2])
    response.write_bytes(other.answer(again))
    assert "does not lead to an authority that is trusted here" in failed(diffcredit, *check)
    response.write_bytes(server.answer(request_for(request.with_suffix(".json").read_bytes())))
    assert "it answers another request" in failed(diffcredit, *check)
    response.write_bytes(server.answer(request_for(b"another text")))
    assert "is of none of the heads in" in diffcredit.refused(*check)
    for content in (b"", b"<html>busy</html>", good[:500], good + b"\0", good[:-1]):
        response.write_bytes(content)
        assert "no timestamp response" in failed(diffcredit, *check)
    refusal = bytes.fromhex("30053003020102")  # status 2: rejection
    response.write_bytes(refusal)
    assert "the authority gave no timestamp (status 2)" in failed(diffcredit, *check)
    response.write_bytes(bytes(1_000_001))
    assert "more than 1,000,000 bytes" in diffcredit.refused(*check)
    response.unlink()
    assert "cannot be read" in diffcredit.refused(*check)
    response.write_bytes(good)
    assert "has no certificate that can be read" in diffcredit.refused(*check[:-1], request)
    assert "--ca: is for checking a response" in diffcredit.refused("anchor", paying, "--ca", server.root)
    assert rows(paying, "SELECT count(*) FROM entries WHERE kind = 'anchor'") == [(0,)]
    assert "existed at" in diffcredit.printed(*check)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time", "2020-01-01T00:00:00+00:00"),
        ("authority", "CN=A better one"),
        ("head", "b0" * 32),
        ("number", 1),
        ("number", "1"),
        ("token", "AAAA"),
        ("token", "?"),
        ("token", None),
        ("certificates", []),
        ("certificates", "x"),
        ("format", 2),
    ],
)
def test_an_anchor_that_a_payer_enters_by_hand(diffcredit, paying, server, url, name, value):
    """The chain is right, and the timestamp is not what it is said to be."""
    response = stamped(url, requested(diffcredit, paying))
    diffcredit.printed("anchor", paying, "--check", response, "--ca", server.root)
    study = Study.load(paying)
    with study.ledger() as ledger:
        (entry,) = ledger.entries(study.name, "anchor")
        ledger.enter(study.name, replace(entry, content=entry.content | {name: value}), lambda known, evaluated: True)
    assert "an anchor in the ledger is not valid" in failed(diffcredit, "verify", paying)


def test_a_ledger_that_was_changed_is_neither_stamped_nor_believed(diffcredit, paying, server, url):
    response = stamped(url, requested(diffcredit, paying))
    with sqlite3.connect(paying / "results" / "ledger.db") as connection:
        connection.execute("UPDATE property_values SET value = value + 1 WHERE id = 3")
    assert "changed" in failed(diffcredit, "anchor", paying)
    assert "changed" in failed(diffcredit, "anchor", paying, "--check", response, "--ca", server.root)


def test_damaged_responses_are_refused_in_one_way(server):
    """Random bytes changed: a DiffcreditError, or a change that neither moves the time nor the text."""
    text = document("study", "b0" * 32, 7)
    good = server.answer(request_for(text))
    trusted, random = read_certificates(server.root), Random(0)
    stamp = check_timestamp(good, text, trusted)
    passed = 0
    for _ in range(1500):
        damaged = bytearray(good)
        for _ in range(random.choice([1, 1, 3])):
            damaged[random.randrange(len(good))] = random.randrange(256)
        try:
            imprint_of(bytes(damaged))
            found = check_timestamp(bytes(damaged), text, trusted)
        except DiffcreditError:
            continue
        assert found == stamp
        passed += 1
    assert 0 < passed < 500  # the root certificate is sent along, and its copy here counts
    with pytest.raises(DiffcreditError, match="it is of another text"):
        check_timestamp(good, document("study", "b0" * 32, 8), trusted)
    with pytest.raises(DiffcreditError, match="no root certificate was given"):
        check_timestamp(good, text, [])
