"""Ed25519 keys and signatures (RFC 8032).

A signature says: the holder of this key vouches for this head of this study's ledger, and for this file. What is signed
is the canonical JSON of a :class:`Signed`, which begins with the format's name, so that a signature made for anything
else never passes for one of these. Signatures stand in files of their own, ``FILE.sig`` beside ``FILE``; that of a
statement stands in the statement.
"""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.proofs.documents import read_document
from diffcredit.util.artifacts import canonical_json, write_text

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
        load_pem_public_key,
    )
except ModuleNotFoundError as error:  # a contributor may have installed diffcredit without what it depends on
    raise UserError("this needs the package cryptography; pip install cryptography") from error

FORMAT = "diffcredit signature 1"
PASSPHRASE = "DIFFCREDIT_KEY_PASSPHRASE"
LARGEST = 100_000  # bytes of a key's file
HEAD = "head"
KINDS = (HEAD, "report", "statement", "archive")
ENDING, PUBLIC = ".sig", ".pub"


@dataclass(frozen=True)
class Signed:
    """What a signature vouches for: a ``head`` of a study's ledger, and for every ``kind`` but ``head`` a file that
    belongs to it, by its ``sha256`` (empty for a head). ``time`` is the signer's word, ISO 8601 in UTC."""

    kind: str
    study: str
    head: str
    sha256: str = ""
    time: str = ""

    def __post_init__(self) -> None:
        if not all(isinstance(getattr(self, field.name), str) for field in fields(self)):
            raise TypeError("kind, study, head, sha256 and time are texts")
        if self.kind not in KINDS or (self.kind == HEAD) != (not self.sha256):
            raise ValueError("a file's signature has its SHA-256, and a head's has none")

    @property
    def message(self) -> bytes:
        """The bytes that are signed."""
        return canonical_json({"format": FORMAT, **asdict(self)}).encode()


@dataclass(frozen=True)
class PublicKey:
    """A public key, by its 32 bytes."""

    raw: bytes

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the key: short enough to be read out."""
        return hashlib.sha256(self.raw).hexdigest()

    @classmethod
    def of(cls, key: Ed25519PrivateKey) -> Self:
        return cls(key.public_key().public_bytes_raw())


@dataclass(frozen=True)
class Signature:
    """A signature that was found to be valid: what it vouches for, and by which key."""

    signed: Signed
    key: PublicKey


def now() -> str:
    """Return the time for a signature."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sign(key: Ed25519PrivateKey, signed: Signed) -> dict[str, Any]:
    """Return a signature as JSON values."""
    made = key.sign(signed.message)
    return {
        "format": FORMAT,
        "signed": asdict(signed),
        "public_key": PublicKey.of(key).raw.hex(),
        "signature": made.hex(),
    }


def verified(content: Mapping[str, Any], where: object) -> Signature:
    """Return a signature from its JSON values if it is valid. Raise a DiffcreditError that names the place ``where`` if
    it is not. Whether its key is one to trust is for the caller to say."""
    try:
        if content["format"] != FORMAT or content.keys() != {"format", "signed", "public_key", "signature"}:
            raise ValueError("another format")
        signed, raw = Signed(**content["signed"]), bytes.fromhex(content["public_key"])
        made = bytes.fromhex(content["signature"])
        key, message = Ed25519PublicKey.from_public_bytes(raw), signed.message
        if content["public_key"] + content["signature"] != (raw + made).hex():
            raise ValueError("digits in another spelling")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DiffcreditError(f"{where}: is no signature of diffcredit, or a damaged one ({error})") from None
    try:
        key.verify(made, message)
    except InvalidSignature:
        raise DiffcreditError(f"{where}: the signature is not valid: what it vouches for was changed") from None
    return Signature(signed, PublicKey(raw))


def check_signer(signature: Signature, trusted: Path, where: object) -> None:
    """Refuse a signature by another key than the public one in the file ``trusted``."""
    wanted = read_public_key(trusted)
    if signature.key != wanted:
        raise DiffcreditError(
            f"{where}: signed by another key ({signature.key.fingerprint}) than {trusted} ({wanted.fingerprint})"
        )


def sign_file(key: Ed25519PrivateKey, file: Path, kind: str, study: str, head: str) -> Path:
    """Write the signature of a file that belongs to a ``head`` beside it, and return its path."""
    return write_signature(key, file, Signed(kind, study, head, sha256_of(file), now()))


def write_signature(key: Ed25519PrivateKey, file: Path, signed: Signed) -> Path:
    """Write the signature that belongs to ``file`` as ``FILE.sig``, and return its path."""
    place = signature_file(file)
    write_text(place, json.dumps(sign(key, signed), indent=1, ensure_ascii=False) + "\n")
    return place


def signature_file(file: Path) -> Path:
    """Return where the signature of a file stands."""
    return file.with_name(file.name + ENDING)


def read_signature(file: Path, trusted: Path, kinds: Collection[str] = KINDS) -> Signed:
    """Return what a signature file vouches for, if it is valid, of one of these ``kinds`` and by the key in the file
    ``trusted``. Of all kinds but a head's, the file beside it must be the one that was signed."""
    found = verified(read_document(file), file)
    check_signer(found, trusted, file)
    if found.signed.kind not in kinds:
        raise DiffcreditError(f"{file}: is of the kind {found.signed.kind}; {', '.join(kinds)} is expected")
    if found.signed.kind != HEAD:
        signed_file = file.with_name(file.name.removesuffix(ENDING))
        if signed_file == file or not signed_file.is_file():
            raise UserError(f"{file}: the file that it signs is not beside it")
        if sha256_of(signed_file) != found.signed.sha256:
            raise DiffcreditError(f"{signed_file}: is not the file that was signed, or was changed since")
    return found.signed


def new_key(file: Path, passphrase: str) -> PublicKey:
    """Make a key: the private one in ``file``, readable by its owner alone and encrypted where there is a
    ``passphrase``, the public one in ``FILE.pub``. Neither may exist."""
    public_file = file.with_name(file.name + PUBLIC)
    for place in (file, public_file):
        if place.exists():
            raise UserError(f"{place}: already exists; a key is never overwritten, give another file")
    key = Ed25519PrivateKey.generate()
    protection = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)
    file.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(private)
    write_text(public_file, public_pem(PublicKey.of(key)))
    return PublicKey.of(key)


def public_pem(key: PublicKey) -> str:
    """Return a public key as PEM."""
    form = Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    return Ed25519PublicKey.from_public_bytes(key.raw).public_bytes(*form).decode()


def load_key(file: Path, ask: Callable[[], str] | None = None) -> Ed25519PrivateKey:
    """Return the private key in a file. The passphrase of an encrypted one is in the environment
    (DIFFCREDIT_KEY_PASSPHRASE), or ``ask`` returns it."""
    content = _read(file)
    encrypted = b"ENCRYPTED" in content
    passphrase = os.environ.get(PASSPHRASE, "") or (ask() if ask is not None and encrypted else "")
    if encrypted and not passphrase:
        raise UserError(f"{file}: has a passphrase; give it in {PASSPHRASE}")
    try:
        key = load_pem_private_key(content, passphrase.encode() if encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        reason = "another passphrase, or a damaged file" if encrypted else error
        raise UserError(f"{file}: no private key can be read ({reason}); diffcredit keys new makes one") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UserError(f"{file}: is a key of another kind; Ed25519 is accepted, which diffcredit keys new makes")
    return key


def is_private(file: Path) -> bool:
    """Return whether a file has a private key."""
    return b"PRIVATE KEY" in _read(file)


def read_public_key(file: Path) -> PublicKey:
    """Return the public key in a file."""
    if is_private(file):
        raise UserError(f"{file}: is a private key, which is not to be handed on; the public one is in {file}{PUBLIC}")
    try:
        key = load_pem_public_key(_read(file))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UserError(f"{file}: no public key can be read; the file that ends in {PUBLIC} is expected") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UserError(f"{file}: is a key of another kind; Ed25519 is accepted")
    return PublicKey(key.public_bytes_raw())


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror or error})") from error
    if len(content) > LARGEST:
        raise UserError(f"{file}: is no key: it has more than {LARGEST:,} bytes")
    return content
