"""What a release needs beside the wheel: a list of packages with their hashes, an SBOM and checksums.

Nothing of this is installed with diffcredit. ``make lock`` and ``make release`` run it.
"""
