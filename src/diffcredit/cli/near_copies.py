"""Notes on a study's images that commands print once they have read them: near-copies, look-alike names, crops."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from diffcredit.cli.console import complain, say
from diffcredit.errors import UserError

if TYPE_CHECKING:
    from diffcredit.study.study import Study

Found = TypeVar("Found")


def tell_near_copies(study: "Study", *, write: bool = True) -> None:
    """Warn of names that look alike. Print a line on cropped images, one on near-copies and one on look-alikes, where
    there are any, and ``write`` the page with pictures of the latter two; look-alikes are searched for the page only.
    Where they cannot be searched, say why."""
    from diffcredit.contributions.names import names_alike, names_alike_in_words
    from diffcredit.report.near_copies import lookalikes_in_words, near_copies_in_words, write_near_copies
    from diffcredit.study.lookalikes import study_lookalikes

    for names in names_alike(study.contributions.givers):
        complain(names_alike_in_words(names), "warning")
    if words := study.contributions.cropped_in_words:
        say(f"{words}.")
    found = _searched("near-copies", lambda: study.near_copies)
    alike = _searched("look-alikes", lambda: study_lookalikes(study)) if write and found else None
    page = write_near_copies(study, alike) if write and found else None
    for sentence in (near_copies_in_words(found) if found else []) + lookalikes_in_words(alike):
        say(f"{sentence}: see {page}" if page else f"{sentence}; diffcredit run writes a page with the pictures")


def _searched(what: str, search: Callable[[], Found]) -> Found | None:
    try:
        return search()
    except UserError as error:
        complain(f"{what} were not searched: {error}", "warning")
        return None
