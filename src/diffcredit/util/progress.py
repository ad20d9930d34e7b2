"""How long-running work reports its progress."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""``progress(what, done, total)``, called at every step of a stage."""


def silent(what: str, done: int, total: int) -> None:
    """Report to nobody."""
