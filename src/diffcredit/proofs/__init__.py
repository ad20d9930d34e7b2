"""Proofs: what a stranger can check without the ledger, the study file or the images of others.

==============  ===========================================================================================
``rows``        the hash of a ledger's row, which follows from the row before it
``merkle``      one hash of many leaves, and the path by which one leaf proves that it is among them
``documents``   JSON files of strangers, read strictly
``statements``  a contributor's statement, from its numbers to the head; ``sums``: its amounts
``signing``     Ed25519 keys, and signatures of heads, reports, statements and archives
``anchors``     timestamps of heads by somebody else
==============  ===========================================================================================

The standard library is enough for a statement, and ``cryptography`` for its signature: a contributor should not have to
install what trains models.
"""
