"""A payout in the ledger, and the proof behind it, from which each contributor's statement leads to the head. See
:mod:`diffcredit.proofs.statements`."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from diffcredit.ledger import Entry
from diffcredit.payout.records import Payout
from diffcredit.payout.shares import sums
from diffcredit.proofs.merkle import tree
from diffcredit.proofs.rows import next_hash
from diffcredit.proofs.statements import leaf_of, proof_row


def shared(payout: Payout) -> dict[str, Any]:
    """Return what all statements of a payout have in common, as JSON values."""
    content = payout.content
    weights, worths = sums(payout)
    return content | {"contributors": len(content.pop("rows")), "weights": weights, "worths": float(worths)}


def proof_of(payout: Payout) -> Entry:
    """Return the entry that follows a payout's in the ledger."""
    root, _ = tree([leaf_of(row) for row in payout.content["rows"]])
    return Entry(**proof_row(shared(payout), root))


@dataclass(frozen=True)
class Recorded:
    """A payout of the ledger. ``previous`` is the hash of its row, which the proof's row follows."""

    payout: Payout
    previous: str

    @cached_property
    def head(self) -> str:
        """The study's head just after the payout, which covers it."""
        return next_hash(self.previous, "entry", proof_of(self.payout).row)

    def proof(self, contributor: str) -> dict[str, Any]:
        """Return what leads from a contributor's numbers to the head, as JSON values."""
        index = self._places[contributor]
        return {"index": index, "path": [each.hex() for each in self._paths[index]], "previous": self.previous}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {row.contributor: index for index, row in enumerate(self.payout.rows)}

    @cached_property
    def _paths(self) -> list[list[bytes]]:
        return tree([leaf_of(row) for row in self.payout.content["rows"]])[1]
