"""The page of near-copies and look-alikes: pairs of images side by side, who gave them, how alike they are, and what
the rule did.

It is for the study's owner, not for contributors: it names all of them.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from diffcredit.contributions import NearCopies, NearCopy
from diffcredit.report.markup import bundled, data_uri, source_hash, template
from diffcredit.report.thumbnails import PIXELS, enlarged, webp
from diffcredit.util.artifacts import write_text

if TYPE_CHECKING:
    from diffcredit.study.lookalikes import Lookalikes
    from diffcredit.study.study import Study

PAGE = "near-copies.html"
MOST = 60  # pairs shown of one kind

RULES = {
    None: "They are only reported: each of them counts like any other image. A rule in the study file, "
    "contributions.near_copies, would count every image once.",
    "first": "Of each group, the image with the earliest date counts.",
    "split": "Of each group, one image counts; contributors who gave it are credited for like numbers of such images.",
    "house": "What several contributors gave is credited to nobody; of a contributor’s own near-copies, one counts.",
}

PERHAPS = (
    "The network finds these more alike than either is to anything that third contributors gave. Copies that were "
    "recoloured, turned or cropped hard look so; so do a study after a master and two drawings from one template. "
    "Nothing was done with them. Name those that you judge to be copies in a file for contributions.near_copies.pairs."
)
SERIES = "Mostly a series of works, or studies for one. Nothing was done with them."


@dataclass(frozen=True)
class Pair:
    """Two images with who gave them, and ``words`` on how alike they are."""

    one: str
    one_giver: str
    two: str
    two_giver: str
    words: str


@dataclass(frozen=True)
class Kind:
    """One section of the page."""

    title: str
    note: str
    pairs: tuple[Pair, ...]

    @property
    def shown(self) -> tuple[Pair, ...]:
        return self.pairs[:MOST]

    @property
    def more(self) -> int:
        return len(self.pairs) - len(self.shown)


def near_copies_in_words(found: NearCopies) -> list[str]:
    """Return a sentence on near-copies of training images and one on held-out images, as far as there are any."""
    said = []
    if found.copies:
        own = len(found.copies) - found.between
        what = "near-copies are left out" if found.credit else "images are near-copies of others"
        rule = f" by the rule {found.credit}" if found.credit else ", and count like all images"
        said.append(
            f"{len(found.copies):,} {what}{rule}: {found.between:,} of somebody else’s image, {own:,} of a "
            "contributor’s own"
        )
    if found.heldout:
        said.append(
            f"{len(found.heldout):,} held-out images are near-copies of training images: there, memorising counts as "
            "learning"
        )
    return said


def lookalikes_in_words(alike: "Lookalikes | None") -> list[str]:
    """Return a sentence on look-alikes by different contributors, if there are any."""
    count = 0 if alike is None else len(_alike(alike, own=False))
    if alike is None or not count:
        return []
    what = "pair of images by different contributors stands" if count == 1 else "pairs by different contributors stand"
    return [f"{count:,} {what} out as alike by {alike.extractor}, and may be copies"]


def kinds(found: NearCopies, alike: "Lookalikes | None" = None) -> tuple[Kind, ...]:
    """Return the page's sections that have pairs, those first where credit is at stake."""
    between = [each for each in found.copies if each.giver != each.original_giver]
    own = [each for each in found.copies if each.giver == each.original_giver]
    sections = [
        Kind(
            "Between contributors",
            "These may be copies. A copy takes credit from the original, or is credited for a house image.",
            tuple(map(_copied, between)),
        ),
        Kind(
            "Of one contributor",
            "The same work given twice counts twice wherever images are counted.",
            tuple(map(_copied, own)),
        ),
        Kind(
            "Held out and trained on",
            "A model that memorises training images does well on their copies. Hold out others.",
            tuple(map(_copied, found.heldout)),
        ),
    ]
    if alike is not None:
        sections.insert(1, Kind(f"Perhaps copies, by {alike.extractor}", PERHAPS, _alike(alike, own=False)))
        sections.append(Kind(f"Perhaps the same work, by {alike.extractor}", SERIES, _alike(alike, own=True)))
    return tuple(each for each in sections if each.pairs)


def _alike(alike: "Lookalikes", *, own: bool) -> tuple[Pair, ...]:
    """Return the look-alikes of one contributor's ``own`` images, or of images by two."""
    found = [each for each in alike.pairs if (each.one_giver == each.two_giver) == own]
    return tuple(
        Pair(each.one, each.one_giver, each.two, each.two_giver, f"they stand out by {each.margin:.2f}")
        for each in found
    )


def _copied(copy: NearCopy) -> Pair:
    done = f"{likeness(copy)}. The right one: {copy.done}" if copy.done else likeness(copy)
    return Pair(copy.original, copy.original_giver, copy.name, copy.giver, done)


def likeness(pair: NearCopy) -> str:
    """Return how alike two images are, in words."""
    if pair.distance is None:
        return "a pair that the study's file names"
    turned = ", mirrored" if pair.mirrored else ""
    return f"{pair.distance} of 64 bits differ{turned}" if pair.distance or turned else "alike in all 64 bits"


def render_near_copies(
    study: str,
    found: NearCopies,
    pictures: Mapping[str, bytes],
    resolution: int,
    alike: "Lookalikes | None" = None,
) -> str:
    """Return the page's HTML; every text is escaped. ``pictures`` has WebP files by images' names; where there is none,
    the page says so. ``resolution`` is the side at which images were compared."""
    style = bundled("palette.css", "money.css", "near_copies.css")
    return template("near_copies.html.jinja").render(
        study=study,
        found=found,
        rule=RULES[found.credit],
        kinds=kinds(found, alike),
        resolution=resolution,
        pictures={name: data_uri(content, "image/webp") for name, content in pictures.items()},
        policy=f"default-src 'none'; img-src data:; style-src {source_hash(style)}; base-uri 'none'; "
        "form-action 'none'",
        style=Markup(style),
    )


def write_near_copies(study: "Study", alike: "Lookalikes | None" = None) -> Path | None:
    """Write the page into the study's results folder, where there are near-copies, a rule for them, or pairs that are
    ``alike``; return its path. A page of an earlier state is removed."""
    found, page = study.near_copies, study.folder / PAGE
    if found is None or not (found.credit or kinds(found, alike)):
        page.unlink(missing_ok=True)
        return None
    shown = itertools.chain.from_iterable(kind.shown for kind in kinds(found, alike))
    pictures, resolution = _pictures(study, shown), study.config.contributions.resolution
    write_text(page, render_near_copies(study.name, found, pictures, resolution, alike))
    return page


def _pictures(study: "Study", pairs: Iterable[Pair]) -> dict[str, bytes]:
    """Return the pictures of ``pairs`` as they were given, or else as models are trained on them."""
    names: Sequence[str] = list(dict.fromkeys(name for pair in pairs for name in (pair.one, pair.two)))
    contributions = study.contributions
    places = dict(zip(contributions.names, contributions.images, strict=True))
    places |= dict(zip(contributions.heldout_names, contributions.heldout, strict=True))
    found = study.original_images(names, PIXELS)
    found |= {name: enlarged(places[name]) for name in names if name in places and name not in found}
    return {name: webp(image) for name, image in found.items()}
