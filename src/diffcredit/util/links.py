"""Paths without links, also where links lead in a circle."""

import os
from pathlib import Path


def real_path(path: Path) -> Path:
    """Return ``path`` without links. Where they lead in a circle the rest stands as it is, and opening it fails with
    an error that names it; :meth:`Path.resolve` raises a RuntimeError before Python 3.13."""
    return Path(os.path.realpath(path))
