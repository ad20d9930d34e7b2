"""The page of near-copies: pairs of images side by side, who gave them, how alike they are, and what the rule did.

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


@dataclass(frozen=True)
class Kind:
    """One section of the page."""

    title: str
    note: str
    pairs: tuple[NearCopy, ...]

    @property
    def shown(self) -> tuple[NearCopy, ...]:
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


def kinds(found: NearCopies) -> tuple[Kind, ...]:
    """Return the page's sections that have pairs, those first where credit is at stake."""
    between = tuple(each for each in found.copies if each.giver != each.original_giver)
    own = tuple(each for each in found.copies if each.giver == each.original_giver)
    sections = (
        Kind(
            "Between contributors", "Who copies another contributor, or a house image, takes credit from them.", between
        ),
        Kind("Of one contributor", "The same work given twice counts twice wherever images are counted.", own),
        Kind(
            "Held out and trained on",
            "A model that memorises training images does well on their copies. Take these out of the held-out images.",
            found.heldout,
        ),
    )
    return tuple(each for each in sections if each.pairs)


def likeness(pair: NearCopy) -> str:
    """Return how alike two images are, in words."""
    turned = ", mirrored" if pair.mirrored else ""
    return f"{pair.distance} of 64 bits differ{turned}" if pair.distance or turned else "alike in all 64 bits"


def render_near_copies(study: str, found: NearCopies, pictures: Mapping[str, bytes]) -> str:
    """Return the page's HTML; every text is escaped. ``pictures`` has WebP files by images' names; where there is none,
    the page says so."""
    style = bundled("palette.css", "money.css", "near_copies.css")
    return template("near_copies.html.jinja").render(
        study=study,
        found=found,
        rule=RULES[found.credit],
        kinds=kinds(found),
        likeness=likeness,
        pictures={name: data_uri(content, "image/webp") for name, content in pictures.items()},
        policy=f"default-src 'none'; img-src data:; style-src {source_hash(style)}; base-uri 'none'; "
        "form-action 'none'",
        style=Markup(style),
    )


def write_near_copies(study: "Study") -> Path | None:
    """Write the page into the study's results folder, where there are near-copies or a rule for them; return its path.
    A page of an earlier state is removed."""
    found, page = study.near_copies, study.folder / PAGE
    if found is None or not (found.credit or found.copies or found.heldout):
        page.unlink(missing_ok=True)
        return None
    shown = itertools.chain.from_iterable(kind.shown for kind in kinds(found))
    write_text(page, render_near_copies(study.name, found, _pictures(study, shown)))
    return page


def _pictures(study: "Study", pairs: Iterable[NearCopy]) -> dict[str, bytes]:
    """Return the pictures of ``pairs`` as they were given, or else as models are trained on them."""
    names: Sequence[str] = list(dict.fromkeys(name for pair in pairs for name in (pair.name, pair.original)))
    contributions = study.contributions
    places = dict(zip(contributions.names, contributions.images, strict=True))
    places |= dict(zip(contributions.heldout_names, contributions.heldout, strict=True))
    found = study.original_images(names, PIXELS)
    found |= {name: enlarged(places[name]) for name in names if name in places and name not in found}
    return {name: webp(image) for name, image in found.items()}
