"""What no reorganisation may change: identities, draws, recorded values, the names of files and columns.

What was found once is committed beside the tests. `python -m guards.record` (from ``tests/``) writes it anew: only
where a change is meant, and then the changelog says why studies that were begun cannot go on.
"""
