"""A page with the training images that each method finds closest to one picture."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from diffcredit.report.markup import data_uri
from diffcredit.util.images import image_grid

TILE = 96  # pixels a side
PAGE = Markup("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2rem; color: #1c1c1c; background: #fcfbf8; }}
h2 {{ font-size: 1rem; margin: 1.6rem 0 .4rem; }}
ol {{ display: flex; flex-wrap: wrap; gap: .8rem; list-style: none; padding: 0; margin: 0; }}
li {{ width: {tile}px; overflow-wrap: anywhere; }}
img {{ width: {tile}px; height: {tile}px; image-rendering: pixelated; display: block; }}
small {{ color: #666; }}
</style></head><body><h1>{title}</h1>
<img src="{picture}" alt="the picture">
{rows}
</body></html>
""")
ROW = Markup("<h2>{method}</h2><ol>{tiles}</ol>\n")
TILES = Markup('<li><img src="{image}" alt=""><strong>{contributor}</strong><br><small>{name}<br>{score}</small></li>')


class Tile(NamedTuple):
    """A training image (h, w, 3), its contributor, its name, and its score by a method."""

    image: NDArray[np.uint8]
    contributor: str
    name: str
    score: str


def contact_sheet(title: str, picture: NDArray[np.uint8], found: Mapping[str, Sequence[Tile]]) -> str:
    """Return an HTML page: the ``picture`` (h, w, 3), then for each method the training images that it ``found``."""
    rows = Markup()
    for method, tiles in found.items():
        shown = (TILES.format(**tile._asdict() | {"image": _uri(tile.image)}) for tile in tiles)
        rows += ROW.format(method=method, tiles=Markup().join(shown))
    return str(PAGE.format(title=title, tile=TILE, picture=_uri(picture), rows=rows))


def _uri(image: NDArray[np.uint8]) -> str:
    return data_uri(image_grid(image[None], 1), "image/png")
