"""The works behind a payout: how many images each contributor gave, which were not used and why, and the hash of those
that were. The images must be at hand for that; where they are not, a payout says so."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diffcredit.errors import UserError

if TYPE_CHECKING:
    from diffcredit.contributions import Contributions
    from diffcredit.study.study import Study

HELD_OUT, UNREADABLE = "held out to measure the model", "could not be read"


@dataclass(frozen=True)
class Given:
    """What one contributor gave: ``given`` images in all (None: not known), those ``excluded`` by reason, and the
    ``digest`` of the images used."""

    given: int | None = None
    excluded: Mapping[str, int] = field(default_factory=dict)
    digest: str = ""


def given_works(study: "Study", names: tuple[str, ...]) -> dict[str, Given]:
    """Return what each contributor gave, as far as the images are at hand."""
    try:
        contributions = study.contributions
    except UserError:
        return dict.fromkeys(names, Given())
    return {name: _given(contributions, name) for name in names}


def _given(contributions: "Contributions", name: str) -> Given:
    works, place = contributions.works(name), contributions.givers.index(name)
    excluded = Counter(each.reason for each in contributions.excluded if each.contributor == name)
    if not contributions.given:
        return Given(None, dict(excluded), works.digest)
    given, held_out = contributions.given[place], contributions.withheld[place]
    unreadable = given - held_out - len(works.images) - excluded.total()
    counts = {HELD_OUT: held_out, UNREADABLE: unreadable, **excluded}
    return Given(given, {reason: count for reason, count in counts.items() if count}, works.digest)
