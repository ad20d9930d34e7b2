"""Names of strangers in a page: shown, never obeyed."""

import numpy as np

from diffcredit.report.contact_sheet import Tile, contact_sheet

from .made_up import Page

NASTY = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>{title}"


def test_nothing_of_a_name_becomes_markup():
    image = np.zeros((4, 4, 3), np.uint8)
    page = Page(contact_sheet(NASTY, image, {NASTY: [Tile(image, NASTY, NASTY, score) for score in ("1", "0.5")]}))
    assert page.all("script") == []
    assert not any("onerror" in attributes for _, attributes in page.elements)
    assert page.text.count(NASTY) == 2 + 1 + 2 * 2  # title and heading, the method, then contributor and name of each
    assert page.text.index("1 ") < page.text.index("0.5")
