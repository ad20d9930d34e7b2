"""Signatures on what commands write: heads, reports, payouts, statements, archives; and what verifies them."""

import json
import sqlite3

import pytest

from diffcredit.proofs.signing import new_key


@pytest.fixture
def key(tmp_path):
    for name in ("payer.key", "other.key"):
        new_key(tmp_path / name, "")
    return tmp_path / "payer.key"


def public(key, name="payer.key.pub"):
    return key.with_name(name)


def failed(diffcredit, *arguments):
    code, _, complaint = diffcredit(*arguments)
    assert (code, complaint.count("\n")) == (1, 1)
    return complaint


def test_a_payout_and_its_statements(diffcredit, paying, key, monkeypatch):
    monkeypatch.setenv("DIFFCREDIT_KEY", str(key))
    said = diffcredit.printed("payout", paying, "--pool", "100.00")
    results = paying / "results"
    assert said.count("Signed: ") == 2
    assert f"Signed: {results / 'head.sig'}" in said
    diffcredit.printed("statements", paying)
    for file in (results / "statements").glob("*.json"):
        said = diffcredit.printed("check", file, "--key", public(key))
        assert f"which is that of {public(key)}" in said
    assert "and every row up to the head" in diffcredit.printed("verify", paying, "--signed-by", public(key))
    page = "--signature", results / "payout.html.sig"
    diffcredit.printed("verify", paying, "--signed-by", public(key), *page)
    # the ledger grows, and what was signed holds
    diffcredit.printed("payout", paying, "--pool", "100.00", "--period", "b", "--sign", public(key, "other.key"))
    assert "signed by another key" in failed(diffcredit, "verify", paying, "--signed-by", public(key))


def test_what_was_signed_is_found_again_as_the_ledger_grows(diffcredit, paying, key):
    diffcredit.printed("payout", paying, "--pool", "100.00", "--sign", key)
    results = paying / "results"
    kept = results / "kept.sig"
    (results / "head.sig").rename(kept)
    diffcredit.printed("payout", paying, "--pool", "100.00", "--period", "b")
    verify = ("verify", paying, "--signed-by", public(key))
    assert "as it was then" in diffcredit.printed(*verify, "--signature", kept)
    assert "payout.html: is not the file that was signed" in failed(
        diffcredit, *verify, "--signature", results / "payout.html.sig"
    )
    assert "head.sig: cannot be read" in diffcredit.refused(*verify)
    assert "--signature: needs the public key" in diffcredit.refused("verify", paying, "--signature", kept)
    # rows are cut off the end, and the chain is whole: only the signature knows
    with sqlite3.connect(results / "ledger.db") as connection:
        for _ in range(4):
            connection.execute("DELETE FROM chain WHERE number = (SELECT max(number) FROM chain)")
            connection.execute("DELETE FROM entries WHERE id = (SELECT max(id) FROM entries)")
    assert "all unchanged" in diffcredit.printed("verify", paying)
    assert "the head that was signed on" in failed(diffcredit, *verify, "--signature", kept)


def test_another_study_s_signature(diffcredit, paying, key):
    diffcredit.printed("payout", paying, "--pool", "100.00", "--sign", key)
    file = paying / "study.yaml"
    signature = json.loads((paying / "results" / "head.sig").read_text())
    signature["signed"]["study"] = "other"
    (paying / "other.sig").write_text(json.dumps(signature))
    verify = ("verify", file, "--signed-by", public(key), "--signature", paying / "other.sig")
    assert "the signature is not valid" in failed(diffcredit, *verify)


def test_a_report_and_an_archive(diffcredit, small, key, tmp_path):
    diffcredit.printed("report", small, "--sign", key, warned=True)
    verify = ("verify", small, "--signed-by", public(key))
    diffcredit.printed(*verify, "--signature", small / "results" / "report.html.sig")
    archive = tmp_path / "study.zip"
    diffcredit.printed("export", small, archive, "--sign", key)
    diffcredit.printed(*verify, "--signature", tmp_path / "study.zip.sig")
    assert "study.zip: signed on" in diffcredit.printed("import", archive, tmp_path / "a", "--signed-by", public(key))
    other = public(key, "other.key.pub")
    assert "signed by another key" in failed(diffcredit, "import", archive, tmp_path / "b", "--signed-by", other)
    # the payer's signature on the head alone, renamed, vouches for no file
    own = (tmp_path / "study.zip.sig").read_bytes()
    diffcredit.printed("report", small, "--sign", key, warned=True)
    (tmp_path / "study.zip.sig").write_bytes((small / "results" / "head.sig").read_bytes())
    assert "is of the kind head; archive is expected" in failed(
        diffcredit, "import", archive, tmp_path / "b", "--signed-by", public(key)
    )
    (tmp_path / "study.zip.sig").write_bytes(own)
    archive.write_bytes(archive.read_bytes() + b"\0")
    assert "is not the file that was signed" in failed(
        diffcredit, "import", archive, tmp_path / "b", "--signed-by", public(key)
    )
    assert not (tmp_path / "b").exists()


def test_a_key_that_cannot_be_read_is_refused_before_anything_is_done(diffcredit, paying, key):
    before = (paying / "results" / "ledger.db").read_bytes()
    for command in (["run"], ["report"], ["payout", "--pool", "1"], ["statements"], ["export", "study.zip"]):
        said = diffcredit.refused(command[0], paying, *command[1:], "--sign", public(key))
        assert "payer.key.pub: no private key can be read" in said
    assert (paying / "results" / "ledger.db").read_bytes() == before
