"""The ledger: the durable record of every evaluation of a study.

Credits may decide about money. Whatever they rest on must therefore survive crashes, be shared by machines and be open
to an audit. A ledger is a database, SQLite or PostgreSQL, to which rows are only ever added::

    with Ledger.open("ledger.db") as ledger:
        ledger.register_study("openmoji", {"contributors": ["ana", "ben"]})
        ledger.register_recipe("openmoji", RecipeRecord("sparsified", {"steps": 100}))
        ledger.register_property("openmoji", PropertyRecord("quality", {}, higher_is_better=True))
        ledger.record("openmoji", "sparsified", evaluation)
        game = game_of(ledger.evaluations("openmoji", "sparsified"), "quality")

The room's files, in the order in which to read them:

==============  ===========================================================================================
``records``     what a ledger holds: recipes, properties, evaluations and their values
``purposes``    why an evaluation was made, and which replicate numbers that gives it
``store``       :class:`Ledger`, with the contract that its users rely on; each method is one transaction
``recording``   rows in: entering each kind of row once, refusing what changed or contradicts
``chain``       the hashes that reveal a change made behind the ledger's back
``audited``     rows out: each compared with the chain, then back to records
``stored``      rows as the database has them, and the texts that are hashed; ``soundness``: tables that are no tables
``readings``    what was read so far; ``keys``: names to primary keys
``claims``      who works on which evaluation now
``database``    connecting, transactions, locks, waiting for a server; what SQLite and PostgreSQL need
``away``        whether a server that cannot be reached will come back
``roles``       what a team's users may do, in PostgreSQL
``tables``      the schema; ``migrations`` brings older ledgers to it
``archive``     a study as one file; ``parquet`` and ``parquet_pages``: its tables, from strangers too
``game``        evaluations as an estimator's table; ``clock``: how much time they took
==============  ===========================================================================================
"""

from diffcredit.ledger.audited import Audit
from diffcredit.ledger.chain import Head
from diffcredit.ledger.claims import Claim, CurrentClaim
from diffcredit.ledger.database import NoLedger
from diffcredit.ledger.game import Game, game_of, values_missing
from diffcredit.ledger.readings import Readings
from diffcredit.ledger.recording import NonDeterminism
from diffcredit.ledger.records import (
    Entry,
    Evaluation,
    PropertyRecord,
    RecipeRecord,
    Value,
    changed_settings,
    differences,
)
from diffcredit.ledger.soundness import ChangedRecord
from diffcredit.ledger.store import Ledger

__all__ = [
    "Audit",
    "ChangedRecord",
    "Claim",
    "CurrentClaim",
    "Entry",
    "Evaluation",
    "Game",
    "Head",
    "Ledger",
    "NoLedger",
    "NonDeterminism",
    "PropertyRecord",
    "Readings",
    "RecipeRecord",
    "Value",
    "changed_settings",
    "differences",
    "game_of",
    "values_missing",
]
