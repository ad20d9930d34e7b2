"""Names of strangers in a page: shown, never obeyed."""

from html.parser import HTMLParser

import numpy as np

from diffcredit.report.contact_sheet import contact_sheet

NASTY = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>{title}"


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = set(), set(), ""

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text += data


def test_nothing_of_a_name_becomes_markup():
    images = np.zeros((2, 4, 4, 3), np.uint8)
    page = Tags()
    page.feed(
        contact_sheet(
            NASTY, images[0], {NASTY: [1, 0]}, {NASTY: np.array([0.5, 1.0])}, images, [NASTY] * 2, [NASTY] * 2
        )
    )
    assert "script" not in page.tags
    assert "onerror" not in page.attributes
    assert page.text.count(NASTY) == 2 + 1 + 2 * 2  # title and heading, the method, then contributor and name of each
