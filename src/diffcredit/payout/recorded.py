"""A payout in the ledger, and the proof behind it, from which each contributor's statement leads to the head. See
:mod:`diffcredit.proofs.statements`."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from diffcredit.errors import DiffcreditError
from diffcredit.ledger import Entry, Ledger
from diffcredit.payout.records import Payout
from diffcredit.payout.shares import sums
from diffcredit.proofs.merkle import tree
from diffcredit.proofs.rows import next_hash
from diffcredit.proofs.statements import KIND as PROOF
from diffcredit.proofs.statements import leaf_of, proof_row

if TYPE_CHECKING:
    from diffcredit.study.study import Study

KIND = "payout"  # of a payout's row among the ledger's entries


class Proof:
    """What statements of a payout have in common, and what leads from each of them to the ledger's row behind it."""

    def __init__(self, payout: Payout) -> None:
        content, (weights, worths) = payout.content, sums(payout)
        self.rows = {row["contributor"]: row for row in content.pop("rows")}
        """Each contributor's numbers, as JSON values."""
        self.shared: dict[str, Any] = content | {
            "contributors": len(self.rows),
            "weights": weights,
            "worths": float(worths),
        }
        """Everybody's, as JSON values."""
        leaves = {leaf_of(row): name for name, row in self.rows.items()}
        in_order = sorted(leaves)  # at random, because of the salts: nobody's place says anything
        root, paths = tree(in_order)
        self._steps = {leaves[leaf]: (index, paths[index]) for index, leaf in enumerate(in_order)}
        self.entry = Entry(**proof_row(self.shared, root))
        """The proof's row."""

    def steps(self, contributor: str) -> dict[str, Any]:
        """Return what leads from a contributor's numbers to the root, as JSON values."""
        index, path = self._steps[contributor]
        return {"index": index, "path": [each.hex() for each in path]}


@dataclass(frozen=True)
class Recorded:
    """A payout of the ledger. ``previous`` is the hash of its row, which the proof's row follows."""

    payout: Payout
    previous: str

    @cached_property
    def proof(self) -> Proof:
        return Proof(self.payout)

    @cached_property
    def head(self) -> str:
        """The study's head just after the payout, which covers it."""
        return next_hash(self.previous, "entry", self.proof.entry.row)


def payouts(study: "Study", ledger: Ledger) -> list[Recorded]:
    """Return a study's payouts, oldest first. Refuse one whose proof is not behind it."""
    found = [Recorded(Payout.of(entry.content), entry.head) for entry in ledger.entries(study.name, KIND)]
    proofs = {entry.name: entry.head for entry in ledger.entries(study.name, PROOF)}
    for each in found:
        if proofs.get(each.payout.period) != each.head:
            raise DiffcreditError(
                f"{study.file}: the payout of {each.payout.period} has no proof behind it in the ledger, or another one"
            )
    return found
