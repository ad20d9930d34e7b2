"""Timestamps by somebody else (RFC 3161): a head existed at a time that the payer cannot choose.

What is timestamped is a small JSON text that names the study, the head and its place in the chain. An authority signs
the text's SHA-256 together with the time, and sees nothing else. Whatever keeps or stamps files will do as well as a
timestamp: a transparency log, a public repository, a notary.
"""

import ssl
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from rfc3161_client import (
    HashAlgorithm,
    TimestampRequestBuilder,
    TimeStampResponse,
    VerificationError,
    VerifierBuilder,
    decode_timestamp_response,
)

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.util.artifacts import canonical_json
from diffcredit.util.sanitize import truncated

FORMAT = "diffcredit head 1"
LARGEST = 1_000_000  # bytes of a response, which has some thousands
INTEGER, SEQUENCE, CERTIFICATES = 0x02, 0x30, 0xA0  # tags of DER
GRANTED = 0
PEM = b"-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True)
class Timestamp:
    """A timestamp that was found to be valid: the ``time``, ISO 8601 in UTC, the name of the ``authority`` that signed
    it, and the certificates it was traced to, as PEM, the root first."""

    time: str
    authority: str
    certificates: tuple[str, ...]

    @property
    def root(self) -> str:
        """The SHA-256 of the root certificate, by which authorities publish theirs."""
        return x509.load_pem_x509_certificate(self.certificates[0].encode()).fingerprint(hashes.SHA256()).hex()


def document(study: str, head: str, number: int) -> bytes:
    """Return the text that is timestamped for the ``head`` of a study's ledger of ``number`` rows."""
    return canonical_json({"format": FORMAT, "study": study, "head": head, "number": number}).encode()


def request_for(text: bytes) -> bytes:
    """Return a request for a timestamp of a text, with a random number that the response must repeat."""
    builder = TimestampRequestBuilder(data=text, hash_algorithm=HashAlgorithm.SHA256, nonce=True, cert_req=True)
    return builder.build().as_bytes()


def nonce_of(request: bytes) -> int:
    """Return the random number in a request."""
    try:
        parts = [(start, _inner(request, start, request[start])) for start, _ in _elements(request, 0)]
        _, nonce = (request[slice(*inside)] for start, inside in parts if request[start] == INTEGER)
        return int.from_bytes(nonce, signed=True)
    except (ValueError, IndexError) as error:
        raise DiffcreditError(f"no request for a timestamp ({truncated(str(error))})") from None


def imprint_of(response: bytes) -> bytes:
    """Return the SHA-256 of the text that a response is of. Raise a DiffcreditError for what is no response, or refuses
    a timestamp."""
    return bytes(_decoded(response).tst_info.message_imprint.message)


def check_timestamp(
    response: bytes, text: bytes, trusted: Sequence[x509.Certificate], nonce: int | None = None
) -> Timestamp:
    """Return the timestamp of a text in a response, if it leads to one of the ``trusted`` certificates. Raise a
    DiffcreditError if it does not, or is of another text, or does not repeat the ``nonce``."""
    found = _decoded(response)
    roots = [each for each in trusted if each.subject == each.issuer]
    others = [each for each in trusted if each.subject != each.issuer]
    problem = "no root certificate was given"
    for root in roots:
        try:
            VerifierBuilder(roots=[root], intermediates=others, nonce=nonce).build().verify_message(found, text)
        except (VerificationError, ValueError, AssertionError) as error:
            problem = _in_words(str(error))
            continue
        names = tuple(each.public_bytes(Encoding.PEM).decode() for each in (root, *others))
        return Timestamp(found.tst_info.gen_time.astimezone(UTC).isoformat(), _signer(found), names)
    raise DiffcreditError(problem)


def _in_words(error: str) -> str:
    """Return what a verifier complains of, in plain words."""
    known = {
        "Nonce mismatch": "it answers another request",
        "Mismatch between messages": "it is of another text",
        "certificate verify error": "its certificate does not lead to an authority that is trusted here",
    }
    return next((words for text, words in known.items() if text in error), truncated(error, 200))


def _decoded(response: bytes) -> TimeStampResponse:
    try:
        found = decode_timestamp_response(_sorted(response))
        if found.status != GRANTED:
            said = "; ".join(found.status_string)
            raise DiffcreditError(f"the authority gave no timestamp (status {found.status}{said and f': {said}'})")
        found.tst_info.gen_time.astimezone(UTC)
    except (ValueError, IndexError, OverflowError) as error:
        raise DiffcreditError(f"no timestamp response ({truncated(str(error))})") from None
    return found


def _signer(found: TimeStampResponse) -> str:
    """Return the name of who signed a timestamp."""
    (signer,) = found.signed_data.signer_infos
    for each in map(x509.load_der_x509_certificate, found.signed_data.certificates):
        if (each.issuer, each.serial_number) == (signer.issuer, signer.serial_number):
            return each.subject.rfc4514_string()
    raise DiffcreditError("it does not contain the certificate that signed it")


def _sorted(response: bytes) -> bytes:
    """Return a response with its certificates in the order that DER asks for. Several authorities, and openssl, send
    them in another; no signature covers their order."""
    _, *token = _elements(response, 0)
    if not token:  # it was refused
        return response
    _, explicit = _elements(response, token[0][0])
    ((signed_data, _),) = _elements(response, explicit[0], CERTIFICATES)
    for start, end in _elements(response, signed_data):
        if response[start] == CERTIFICATES:
            each = sorted(response[a:b] for a, b in _elements(response, start, CERTIFICATES))
            return response[: _inner(response, start, CERTIFICATES)[0]] + b"".join(each) + response[end:]
    return response


def _inner(data: bytes, start: int, tag: int) -> tuple[int, int]:
    """Return where the content of the DER element at ``start`` begins and ends; it must have this ``tag``."""
    if data[start] != tag:
        raise ValueError(f"tag {data[start]:#x} instead of {tag:#x}")
    size, begin = data[start + 1], start + 2
    if size >= 0x80:
        begin += size - 0x80
        size = int.from_bytes(data[start + 2 : begin])
    if begin + size > len(data):
        raise ValueError("it is cut off")
    return begin, begin + size


def _elements(data: bytes, place: int, tag: int = SEQUENCE) -> list[tuple[int, int]]:
    """Return where the DER elements within the one at ``place`` begin and end."""
    (start, end), found = _inner(data, place, tag), []
    while start < end:
        _, after = _inner(data, start, data[start])
        found.append((start, after))
        start = after
    return found


def read_certificates(file: Path | None) -> list[x509.Certificate]:
    """Return the certificates in a file, PEM or DER; where there is none, those that this machine trusts."""
    place = Path(file or ssl.get_default_verify_paths().cafile or ssl.get_default_verify_paths().openssl_cafile)
    try:
        found = parse_certificates(place.read_bytes())
    except OSError as error:
        raise UserError(f"{place}: cannot be read ({error.strerror or error}); give certificates with --ca") from error
    if not found:
        raise UserError(f"{place}: has no certificate that can be read; PEM or DER is accepted")
    return found


def parse_certificates(content: bytes) -> list[x509.Certificate]:
    """Return the certificates in PEM or DER that can be read: one of a machine's many may be too odd."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old root certificates
        for each in [PEM + part for part in content.split(PEM)[1:]] or [content]:
            read = x509.load_pem_x509_certificate if each.startswith(PEM) else x509.load_der_x509_certificate
            with suppress(ValueError):
                found.append(read(each))
    return found
