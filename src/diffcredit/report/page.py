"""The report as one self-contained HTML file.

Everything is inline, and a content security policy allows nothing else: the page makes no request, and only the one
script and the one style whose hashes it names take effect, whatever the names of contributors contain.
"""

import io
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from PIL import Image, UnidentifiedImageError

from diffcredit.errors import UserError
from diffcredit.report import numbers
from diffcredit.report.diagnostics import named_diagnostics
from diffcredit.report.markup import bundled, data_uri, source_hash, template
from diffcredit.report.outliers import outlier_warning
from diffcredit.report.plot import plot
from diffcredit.report.records import CreditTable, Report
from diffcredit.report.standings import credits_csv, standings
from diffcredit.report.validation import shown_tables
from diffcredit.report.waterfall import waterfall
from diffcredit.report.wording import help_in_words
from diffcredit.util.artifacts import write_text

QUESTIONS = {
    "leave-one-out": "what everybody’s model loses when this contributor alone leaves",
    "add-one-in": "what this contributor alone adds to F(reference)",
    "datamodel": "what this contributor adds to coalitions of the size that was evaluated, less what others add",
}
"""The meaning of a credit by methods that estimate no Shapley value."""


LEVELS = {"pay by it": "pay", "use with care": "care", "do not use": "stop"}
"""The style of each verdict."""
SHOWN = 2  # thumbnails of a contributor beside their name in a table


class PropertyView:
    """One property as the page shows it."""

    def __init__(self, table: CreditTable) -> None:
        self.table, self.plot, self.waterfall = table, plot(table), waterfall(table)
        self.half_width = numbers.typical_half_width(table.help_low, table.help_high)
        self.decimals, self.credit_decimals = numbers.help_decimals(table), numbers.credit_decimals(table)
        self.share_decimals = numbers.share_decimals(table)
        self.warning = outlier_warning(table)
        self.question = QUESTIONS.get(table.method)
        self.verdict, self.style = table.verdict, LEVELS[table.verdict.level] if table.verdict else ""
        self.diagnostics = named_diagnostics(table.diagnostics)
        self.standings = rows = standings(table)
        self.words = {row.contributor: help_in_words(table, row) for row in rows}
        # who differs significantly from the average: most helpful first, least helpful first
        self.more = [row.contributor for row in rows if row.versus_average == "more"]
        self.less = [row.contributor for row in reversed(rows) if row.versus_average == "less"]
        self.unknown = sum(not row.help_known for row in rows)

    @property
    def usable(self) -> bool:
        """Whether the order of the contributors may be read as a finding."""
        return self.verdict is None or self.verdict.level != "do not use"


@dataclass(frozen=True)
class Tile:
    """A thumbnail, embedded once and used wherever its contributor is shown."""

    id: str
    uri: str


def _tiles(report: Report) -> dict[str, list[Tile]]:
    tiles = {}
    for i, (contributor, images) in enumerate(report.thumbnails.items()):
        tiles[contributor] = [Tile(f"tile-{i}-{j}", _tile_uri(image, contributor)) for j, image in enumerate(images)]
    return tiles


def _tile_uri(content: bytes, contributor: str) -> str:
    try:
        with Image.open(io.BytesIO(content), formats=["PNG", "WEBP"]) as image:
            return data_uri(content, f"image/{(image.format or '').lower()}")
    except UnidentifiedImageError:
        raise UserError(f"thumbnail of {contributor!r}: neither a PNG nor a WebP") from None


def render(report: Report) -> str:
    """Return the page's HTML. Every text of ``report`` is escaped; none of it reaches the script or the style."""
    script, style = bundled("report.js"), bundled("palette.css", "report.css")
    return template("report.html.jinja").render(
        report=report,
        views=[PropertyView(table) for table in report.tables],
        tiles=_tiles(report),
        shown=SHOWN,
        evidence=[(section, shown_tables(section)) for section in report.validation],
        used=dict(zip(report.tables[0].contributors, report.tables[0].images, strict=True)),
        csv=data_uri(credits_csv(report.tables).encode(), "text/csv;charset=utf-8"),
        thin=numbers.NARROW_SPACE,
        policy=f"default-src 'none'; img-src data:; script-src {source_hash(script)}; style-src {source_hash(style)}; "
        "base-uri 'none'; form-action 'none'",
        script=Markup(script),
        style=Markup(style),
    )


def write_report(report: Report, path: Path) -> None:
    """Write ``report`` as one self-contained HTML file, whole or not at all."""
    write_text(path, render(report))
