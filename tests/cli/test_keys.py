"""``keys new`` and ``keys show``."""

import re


def test_a_key_is_made_and_shown(diffcredit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = diffcredit.printed("keys", "new")
    (fingerprint,) = re.findall(r"Fingerprint: ([0-9a-f]{64})", said)
    assert {file.name for file in tmp_path.iterdir()} == {"diffcredit.key", "diffcredit.key.pub"}
    shown = diffcredit.printed("keys", "show", "diffcredit.key")
    assert fingerprint in shown
    assert (tmp_path / "diffcredit.key.pub").read_text().strip() in shown
    assert "PRIVATE" not in shown
    assert shown == diffcredit.printed("keys", "show", "diffcredit.key.pub")
    assert "diffcredit.key: already exists" in diffcredit.refused("keys", "new")
    assert "elsewhere: cannot be read (No such file or directory)" in diffcredit.refused("keys", "show", "elsewhere")


def test_a_passphrase_from_the_environment(diffcredit, tmp_path, monkeypatch):
    monkeypatch.setenv("DIFFCREDIT_KEY_PASSPHRASE", "a word")
    assert "the private key, encrypted" in diffcredit.printed("keys", "new", tmp_path / "a.key")
    assert b"ENCRYPTED" in (tmp_path / "a.key").read_bytes()
    assert "Fingerprint" in diffcredit.printed("keys", "show", tmp_path / "a.key")
    monkeypatch.delenv("DIFFCREDIT_KEY_PASSPHRASE")
    said = diffcredit.refused("keys", "show", tmp_path / "a.key")
    assert "has a passphrase; give it in DIFFCREDIT_KEY_PASSPHRASE" in said
