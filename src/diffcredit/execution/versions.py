"""The packages that a number was computed with."""

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("diffcredit", "torch", "diffusers", "torch-pruning", "numpy", "scipy", "scikit-learn", "pillow")


@cache
def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that can change a value."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
