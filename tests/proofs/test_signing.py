"""Keys and signatures: what is signed, by whom, and every change noticed. openssl, which knows nothing of us, verifies
them too."""

import hashlib
import json
import os
import shutil
import stat
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.proofs.signing import (
    Signed,
    load_key,
    new_key,
    read_public_key,
    read_signature,
    sign,
    sign_file,
    verified,
    write_signature,
)

SIGNED = Signed("head", "harbours", "b0" * 32, time="2026-03-31T10:20:30+00:00")
OPENSSL = shutil.which("openssl")


@pytest.fixture
def key(tmp_path):
    new_key(tmp_path / "payer.key", "")
    return tmp_path / "payer.key"


def public(key):
    return key.with_name("payer.key.pub")


def test_the_example_of_the_standard():
    """RFC 8032, 7.1, test 2: the key that signs is the one that verifies."""
    key = Ed25519PrivateKey.from_private_bytes(
        bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    )
    made = sign(key, SIGNED)
    assert made["public_key"] == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    assert made["signature"] == key.sign(SIGNED.message).hex()
    assert verified(made, "here").signed == SIGNED
    raw = bytes.fromhex(made["public_key"])
    assert verified(made, "here").key.fingerprint == hashlib.sha256(raw).hexdigest()


def test_what_is_signed_names_its_format():
    assert json.loads(SIGNED.message) == {
        "format": "diffcredit signature 1",
        "kind": "head",
        "study": "harbours",
        "head": "b0" * 32,
        "sha256": "",
        "time": "2026-03-31T10:20:30+00:00",
    }


def leaves(value, at=()):
    """Every place in a JSON value that has no places below it."""
    if isinstance(value, dict | list):
        places = value.items() if isinstance(value, dict) else enumerate(value)
        return [leaf for name, part in places for leaf in leaves(part, (*at, name))]
    return [at]


def test_every_change_is_noticed(key):
    made = sign(load_key(key), SIGNED)
    for place in leaves(made):
        for change in (lambda text: text + "0", lambda text: "", lambda text: text[::-1] + "x", lambda text: 5):
            changed = json.loads(json.dumps(made))
            holder = changed
            for name in place[:-1]:
                holder = holder[name]
            holder[place[-1]] = change(holder[place[-1]])
            if changed == made:
                continue
            with pytest.raises(DiffcreditError, match=r"^here: (is no signature|the signature is not valid)"):
                verified(changed, "here")
    for changed in ({}, {**made, "extra": 1}, {**made, "signature": made["signature"].upper()}, {**made, "signed": []}):
        with pytest.raises(DiffcreditError, match=r"^here: is no signature"):
            verified(changed, "here")


def test_a_file_and_its_signature(key, tmp_path):
    file = tmp_path / "report.html"
    file.write_text("the report")
    place = sign_file(load_key(key), file, "report", "harbours", "b0" * 32)
    assert place.name == "report.html.sig"
    signed = read_signature(place, public(key))
    assert (signed.kind, signed.sha256) == ("report", hashlib.sha256(b"the report").hexdigest())
    file.write_text("the Report")
    with pytest.raises(DiffcreditError, match=r"report\.html: is not the file that was signed, or was changed since"):
        read_signature(place, public(key))
    file.unlink()
    with pytest.raises(UserError, match=r"report\.html\.sig: the file that it signs is not beside it"):
        read_signature(place, public(key))


def test_another_s_key(key, tmp_path):
    other = new_key(tmp_path / "other.key", "")
    place = write_signature(load_key(tmp_path / "other.key"), tmp_path / "head", SIGNED)
    with pytest.raises(DiffcreditError, match=rf"head\.sig: signed by another key \({other.fingerprint}\) than .*pub"):
        read_signature(place, public(key))


@pytest.mark.skipif(OPENSSL is None, reason="no openssl on the PATH")
def test_openssl_verifies_it(key, tmp_path):
    made = sign(load_key(key), SIGNED)
    (tmp_path / "message").write_bytes(SIGNED.message)
    (tmp_path / "signature").write_bytes(bytes.fromhex(made["signature"]))
    said = subprocess.run(
        [
            OPENSSL,
            *["pkeyutl", "-verify", "-pubin", "-rawin", "-in", "message", "-sigfile", "signature", "-inkey"],
            public(key),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "Signature Verified Successfully" in said.stdout, said.stderr


def test_files_of_keys(key, tmp_path, monkeypatch):
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    for place in (key, public(key)):
        with pytest.raises(UserError, match="already exists; a key is never overwritten"):
            new_key(key if place == key else tmp_path / "payer.key", "")
    with pytest.raises(UserError, match="is a private key, which is not to be handed on"):
        read_public_key(key)
    with pytest.raises(UserError, match="no private key can be read"):
        load_key(public(key))
    new_key(tmp_path / "locked.key", "örtlich")
    with pytest.raises(UserError, match="has a passphrase; give it in DIFFCREDIT_KEY_PASSPHRASE"):
        load_key(tmp_path / "locked.key")
    with pytest.raises(UserError, match="another passphrase, or a damaged file"):
        load_key(tmp_path / "locked.key", lambda: "wrong")
    assert load_key(tmp_path / "locked.key", lambda: "örtlich")
    monkeypatch.setenv("DIFFCREDIT_KEY_PASSPHRASE", "örtlich")
    assert load_key(tmp_path / "locked.key")
    assert load_key(key)  # one without a passphrase needs none


def test_files_that_are_no_keys_of_ours(tmp_path):
    curve = ec.generate_private_key(ec.SECP256R1())
    private = curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "curve").write_bytes(private)
    (tmp_path / "curve.pub").write_bytes(
        curve.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    for read in (load_key, read_public_key):
        for content in (b"", b"hello", b"\xff" * 50, b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"):
            (tmp_path / "file").write_bytes(content)
            with pytest.raises(UserError, match=r"file: no (private|public) key can be read"):
                read(tmp_path / "file")
        (tmp_path / "file").write_bytes(bytes(100_001))
        with pytest.raises(UserError, match="is no key: it has more than 100,000 bytes"):
            read(tmp_path / "file")
        with pytest.raises(UserError, match="cannot be read"):
            read(tmp_path / "missing")
    with pytest.raises(UserError, match="a key of another kind; Ed25519 is accepted"):
        load_key(tmp_path / "curve")
    with pytest.raises(UserError, match="a key of another kind; Ed25519 is accepted"):
        read_public_key(tmp_path / "curve.pub")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' is there twice"),
        ('{"a": NaN}', "NaN is no number of JSON"),
        ("[1]", r"a JSON object is expected"),
        ("[" * 100_000, "nested too deeply"),
        ("{", "is no JSON that can be read"),
        (b"\xff", "is no JSON that can be read"),
    ],
)
def test_files_that_are_no_signatures(content, said, key, tmp_path):
    file = tmp_path / "head.sig"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=said):
        read_signature(file, public(key))
    os.truncate(file, 100_000_001)
    with pytest.raises(UserError, match="more than 100 MB"):
        read_signature(file, public(key))
