"""What commands say of near-copies once they have read a study's images."""

from typing import TYPE_CHECKING

from diffcredit.cli.console import complain, say
from diffcredit.errors import UserError

if TYPE_CHECKING:
    from diffcredit.study.study import Study


def tell_near_copies(study: "Study", *, write: bool = True) -> None:
    """Print a line on near-copies, where there are any, and ``write`` the page with their pictures. Where they cannot
    be searched, say why."""
    from diffcredit.report.near_copies import near_copies_in_words, write_near_copies

    try:
        found, page = study.near_copies, write_near_copies(study) if write else None
    except UserError as error:
        complain(f"near-copies were not searched: {error}", "warning")
        return
    if found is not None:
        for sentence in near_copies_in_words(found):
            say(f"{sentence}: see {page}" if page else f"{sentence}; diffcredit run writes a page with the pictures")
