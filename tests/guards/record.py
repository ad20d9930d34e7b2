"""Writes what the guards compare with: ``python -m guards.record [NAME]``, from ``tests/``."""

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from guards import test_cifar20, test_draws, test_files, test_identities, test_tiny_study
from guards.golden import write


def _each(cases: Any, found: Callable[[str, Path], Any]) -> Callable[[Path], Any]:
    return lambda folder: {case: found(case, folder / case) for case in cases}


KINDS = {
    "identities": test_identities.found,
    "files": _each(test_files.CASES, test_files.found),
    "draws": test_draws.found,
    "tiny_study": test_tiny_study.found,
    "cifar20": _each(test_cifar20.ARCHIVES, test_cifar20.found),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or KINDS:
        with TemporaryDirectory() as folder:
            write(name, KINDS[name](Path(folder)))
