"""A contributor's statement, checked by itself: does it say what the head of the payer's ledger covers?

Each payout is two rows of the ledger, the second right behind the first. The first has everybody's numbers. The second,
the *proof*, is small: a hash of what all contributors' statements share (the pool, the policy, the sums), and the root
of a Merkle tree with one leaf for each contributor's own numbers. A leaf has 16 random bytes, its salt, so that nobody
can guess what stands on another's leaf. A statement has its own row with the salt, the path from the leaf to the root,
and the hash of the ledger's row before the proof. So the head follows from the statement alone:

    leaf → root → the proof's row → head

Whoever knows that head from elsewhere knows that the payer cannot have changed a number of the statement since.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diffcredit.errors import DiffcreditError
from diffcredit.proofs.merkle import leaf_hash, root_of
from diffcredit.proofs.rows import next_hash
from diffcredit.proofs.sums import amount, tax_problems, wrong_sums
from diffcredit.util.artifacts import canonical_json, fingerprint
from diffcredit.util.sanitize import shortened, truncated

if TYPE_CHECKING:
    from diffcredit.proofs.signing import Signature

FORMAT, VERSION = "diffcredit statement", 1
KIND = "proof"  # of the proof's row among the ledger's entries
REQUIRED = {"format", "version", "contributor", "payout", "row", "proof", "head"}
OPTIONAL = {"tax", "images", "signature"}
HASH = 64  # hexadecimal digits
SHOWN = {
    "payout": {"study": str, "period": str, "currency": str, "policy_hash": str, "entered": str, "resolution": int},
    "row": {"contributor": str, "works": str, "images_used": int, "help": float},
}
"""What a reader is shown beside the amounts, and the types of it: a payer's ledger may hold anything."""


@dataclass(frozen=True)
class Checked:
    """What a statement was found to say. Every number of ``payout`` and ``row`` is covered by ``head``. ``signature``
    is that of the payer, if there is one; it is valid, and whose key it is remains to be seen."""

    contributor: str
    payout: Mapping[str, Any]
    row: Mapping[str, Any]
    head: str
    signature: "Signature | None"
    images: Mapping[str, str]
    """The SHA-256 of each image that is listed, by name; empty where none is."""
    tax: bool
    """Whether it states a tax, which is in no ledger."""


def leaf_of(row: Mapping[str, Any]) -> bytes:
    """Return the leaf of a contributor's row of a payout."""
    return leaf_hash(canonical_json(row).encode())


def proof_row(shared: Mapping[str, Any], root: bytes) -> dict[str, Any]:
    """Return the proof's row in the ledger, of a payout by what its statements share and the root of its tree."""
    content = {"format": 1, "payout": fingerprint(shared), "root": root.hex(), "leaves": shared["contributors"]}
    return {"kind": KIND, "name": shared["period"], "content": content, "entered": shared["created"]}


def check_statement(content: Mapping[str, Any], where: object) -> Checked:
    """Return what a statement says, from its JSON values, if it is whole: its sums come out, its head follows from its
    numbers, and a signature on it is valid. Raise a DiffcreditError that names the place ``where`` if it is not."""
    try:
        if problem := _problem(content):
            raise DiffcreditError(f"{where}: {problem}")
        return Checked(
            content["contributor"],
            content["payout"],
            content["row"],
            content["head"],
            _signature(content, where),
            {each["name"]: each["sha256"] for each in content.get("images", ())},
            "tax" in content,
        )
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        reason = truncated(f"{error} is missing" if isinstance(error, KeyError) else str(error))
        raise DiffcreditError(f"{where}: is no statement of diffcredit, or a damaged one ({reason})") from None


def _problem(content: Mapping[str, Any]) -> str:
    """Return what is wrong with a statement; empty where nothing is."""
    if (content["format"], content["version"]) != (FORMAT, VERSION) or type(content["version"]) is not int:
        return f"is {shortened(content['format'])} {shortened(content['version'])}; {FORMAT} {VERSION} is expected"
    if odd := sorted((REQUIRED - content.keys()) | (content.keys() - REQUIRED - OPTIONAL)):
        return f"has no key {shortened(odd[0])}" if odd[0] in REQUIRED else f"has an unknown key {shortened(odd[0])}"
    payout, row = content["payout"], content["row"]
    for part, types in SHOWN.items():
        for name, kind in types.items():
            if type(content[part][name]) is not kind:
                raise ValueError(f"{part}.{name}: {shortened(content[part][name])} is not accepted")
    head = _head(payout, row, content["proof"])
    if head != content["head"]:
        return f"its numbers do not lead to its head: they were changed, or belong to another payout (they give {head})"
    if content["contributor"] != row["contributor"]:
        return f"is {shortened(content['contributor'])}'s, but has the numbers of {shortened(row['contributor'])}"
    if wrong := wrong_sums(payout, row):
        return wrong
    if "tax" in content and (wrong := tax_problems(content["tax"], amount(row["paid"]), payout)):
        return wrong
    return _wrong_images(content["images"], row) if "images" in content else ""


def _head(payout: Mapping[str, Any], row: Mapping[str, Any], proof: Mapping[str, Any]) -> str:
    """Return the head that follows from a statement's numbers."""
    if proof.keys() != {"index", "path", "previous"} or type(proof["index"]) is not int:
        raise ValueError("proof: index, path and previous are expected")
    if type(payout["contributors"]) is not int:
        raise ValueError("payout.contributors: a whole number is expected")
    path = [_bytes(each) for each in proof["path"]]
    root = root_of(leaf_of(row), proof["index"], payout["contributors"], path)
    return next_hash(_bytes(proof["previous"]).hex(), "entry", proof_row(payout, root))


def _bytes(text: str) -> bytes:
    """Return the bytes of a SHA-256 in hexadecimal digits, of which there is one spelling."""
    if len(text) != HASH or bytes.fromhex(text).hex() != text:
        raise ValueError(f"{shortened(text)} is no SHA-256")
    return bytes.fromhex(text)


def _wrong_images(images: list[Mapping[str, str]], row: Mapping[str, Any]) -> str:
    """Return what is wrong with the list of images; empty where they are those that were used."""
    for each in images:
        if each.keys() != {"name", "sha256"} or not isinstance(each["name"], str):
            raise ValueError("images: a name and a sha256 each are expected")
    lines = sorted(_bytes(each["sha256"]).hex() for each in images)
    if len({each["name"] for each in images}) < len(images):
        return "lists an image twice"
    if hashlib.sha256("\n".join(lines).encode()).hexdigest() != row["works"] or len(lines) != row["images_used"]:
        return "its list of images is not the one that its hash of the works was made from"
    return ""


def statement_digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a statement that is signed: of everything but the signature."""
    return fingerprint({key: value for key, value in content.items() if key != "signature"})


def _signature(content: Mapping[str, Any], where: object) -> "Signature | None":
    if "signature" not in content:
        return None
    from diffcredit.proofs.signing import verified

    found = verified(content["signature"], where)
    signed = found.signed
    stated = ("statement", content["payout"]["study"], content["head"], statement_digest(content))
    if (signed.kind, signed.study, signed.head, signed.sha256) != stated:
        raise DiffcreditError(f"{where}: its signature is one of something else: the statement was changed")
    return found
