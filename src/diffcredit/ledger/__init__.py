"""The durable record of evaluations."""

from diffcredit.ledger.audit import Audit
from diffcredit.ledger.chain import Head
from diffcredit.ledger.claims import Claim, CurrentClaim
from diffcredit.ledger.database import NoLedger
from diffcredit.ledger.differences import differences
from diffcredit.ledger.game import Game, game_of
from diffcredit.ledger.records import Evaluation, PropertyRecord, RecipeRecord, Value
from diffcredit.ledger.store import Ledger, NonDeterminism

__all__ = [
    "Audit",
    "Claim",
    "CurrentClaim",
    "Evaluation",
    "Game",
    "Head",
    "Ledger",
    "NoLedger",
    "NonDeterminism",
    "PropertyRecord",
    "RecipeRecord",
    "Value",
    "differences",
    "game_of",
]
