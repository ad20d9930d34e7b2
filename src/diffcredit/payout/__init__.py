"""Payouts: from credits to money that can be defended.

A policy (``diffcredit.study.policy``) is fixed in the ledger before credits are known. A payout divides one period's
pool by it, exactly to the coin, says how sure each amount is, and is recorded in the ledger in turn.

================  ===========================================================================
``basis``         the policy, the credits that it pays by, and how good they are
``merit``         credits to what the policy pays for, by player and by contributor
``reliability``   how much of the pool may follow merit
``dividing``      whole coins by weights, within bounds
``earnings``      the fixed part and the merit part of a pool
``certainty``     how sure each amount is
``changes``       who would hold which images after a split, a copy or a departure
``fitted_game``   the game that the evaluations were fitted by, with other holders
``manipulation``  what such a change would do to the amounts
``balances``      what was carried forward from earlier periods
``csv_files``     tables that the payer hands in
``taxes``         what the payer withholds, which is no part of the record
``paying``        a payout, step by step
``shares``        what each contributor's two parts follow from
``records``       a payout as the ledger keeps it
``recorded``      a payout in the ledger, with the proofs of its statements
================  ===========================================================================
"""
