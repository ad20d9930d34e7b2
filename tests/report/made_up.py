"""Made-up records with numbers that can be checked by hand, and a parser of pages."""

import io
import math
from html.parser import HTMLParser
from typing import Any

from PIL import Image

from diffcredit.report import CostRow, CreditTable, Picture, Report

HOSTILE = (
    "<script>alert(1)</script>",
    '=HYPERLINK("http://example.com","x")',
    "\"><img src=x onerror='alert(1)'>",
    'O\'Neil & Søns, "Ltd"',
    "line\nbreak",
    "نور الهدى",
    "山田 🎨",
    "{{ 7 * 7 }}",
)


def png(width: int = 6, height: int = 2) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (200, 30, 60)).save(file, "PNG")
    return file.getvalue()


def table(credit: tuple[float, ...] = (1.0, 4.0, 3.0), half_width: float = 0.5, **changes: Any) -> CreditTable:
    """Contributors A, B, C, … with these credits, F(∅) = 10 and F(N) = 10 + their sum, both known exactly."""
    n = len(credit)
    total = sum(credit)
    values: dict[str, Any] = {
        "property": "colourfulness",
        "title": "Colourfulness",
        "explanation": "How vivid the images are.",
        "higher_is_better": True,
        "unit": "",
        "contributors": tuple(chr(ord("A") + i) for i in range(n)) if n <= 26 else tuple(map(str, range(n))),
        "images": tuple(range(10, 10 + n)),
        "credit": credit,
        "low": tuple(c - half_width for c in credit),
        "high": tuple(c + half_width for c in credit),
        "rank_low": (1,) * n,
        "rank_high": (n,) * n,
        "share_low": tuple((c - half_width) / total if total > 0 else -math.inf for c in credit),
        "share_high": tuple((c + half_width) / total if total > 0 else math.inf for c in credit),
        "contrast_half_width": (half_width,) * n,
        "confidence": 0.95,
        "empty": 10.0,
        "full": 10.0 + total,
        "evaluations": 64,
        "failed": 0,
        "method": "shapley",
        "diagnostics": {"r_squared": 0.9},
    }
    return CreditTable(**values | changes)


def report(*tables: CreditTable, **changes: Any) -> Report:
    values: dict[str, Any] = {
        "study": "made up",
        "created": "2025-01-01",
        "version": "0.1.0",
        "tables": tables,
        "samples": (Picture("Base model", "Sixteen images.", png()),),
        "thumbnails": {},
        "settings": {"model": {"family": "ddpm", "train": {"steps": 20000}}, "properties": [{"name": "fid"}]},
        "cost": (
            CostRow("training of the base model"),
            CostRow("evaluations", 64, 2, {"training": 7260.0, "sampling": 40.0}),
        ),
        "scope": ("This base model.",),
    }
    return Report(**values | changes)


VOID = {"meta", "img", "link", "br", "input", "wbr"}
BLOCKS = {"dt", "dd", "th", "td", "li", "p"}


class Page(HTMLParser):
    """The elements of a page as (tag, attributes), its texts, and the names in the tables of credits."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.contents: dict[str, list[str]] = {"script": [], "style": []}
        self.contributors: list[str] = []
        self.texts: list[str] = []
        self.raw = ""
        self.feed(html)
        self.close()
        assert self.open == [], "every element is closed"

    @property
    def text(self) -> str:
        return " ".join(self.raw.split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag in BLOCKS:
            self.raw += " "
        if tag not in VOID:
            self.open.append(tag)
        if tag == "bdi" and "tbody" in self.open:
            self.contributors.append("")
        if tag in self.contents:
            self.contents[tag].append("")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.contents:
            self.contents[self.open[-1]][-1] += data
            return
        self.raw += data
        self.texts += [" ".join(data.split())] if data.strip() else []
        if "bdi" in self.open and "tbody" in self.open:
            self.contributors[-1] += data
