"""The report as one self-contained HTML file.

Everything is inline, and a content security policy allows nothing else: the page makes no request, and only the one
script and the one style whose hashes it names take effect, whatever the names of contributors contain.
"""

import base64
import hashlib
import io
from datetime import timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from PIL import Image, UnidentifiedImageError

from diffcredit.errors import UserError
from diffcredit.report import numbers
from diffcredit.report.outliers import outlier_warning
from diffcredit.report.plot import plot
from diffcredit.report.records import CreditTable, Report
from diffcredit.report.standings import credits_csv, standings
from diffcredit.report.validation import shown_tables
from diffcredit.util.artifacts import write_text

QUESTIONS = {
    "leave-one-out": "what everybody’s model loses when this contributor alone leaves",
    "add-one-in": "what this contributor alone adds to F(none)",
    "datamodel": "what this contributor adds to coalitions of the size that was evaluated, less what others add",
}
"""What a credit means for methods that estimate no Shapley value."""


class PropertyView:
    """One property as the page shows it."""

    def __init__(self, table: CreditTable) -> None:
        self.table, self.plot = table, plot(table)
        self.half_width = numbers.typical_half_width(table.low, table.high)
        self.decimals, self.share_decimals = numbers.credit_decimals(table), numbers.share_decimals(table)
        self.warning = outlier_warning(table)
        self.question = QUESTIONS.get(table.method)
        self.total_helps = table.total >= 0 if table.higher_is_better else table.total <= 0
        self.standings = rows = standings(table)
        # who differs significantly from the average: most helpful first, least helpful first
        self.more = [row.contributor for row in rows if row.versus_average == "more"]
        self.less = [row.contributor for row in reversed(rows) if row.versus_average == "less"]
        # though the credit's own interval includes the average
        self.settled_across = any(
            row.versus_average != "unsettled" and row.low <= table.average <= row.high for row in rows
        )
        self.harmful = [row.contributor for row in reversed(rows) if row.harms]
        self.unknown = sum(not row.interval_known for row in rows)


def _strips(report: Report) -> dict[str, dict[str, Any]]:
    """Return each contributor's thumbnails, which are embedded once and used in the table of every property."""
    strips = {}
    for i, (contributor, png) in enumerate(report.thumbnails.items()):
        try:
            with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
                place = {"id": f"strip-{i}", "uri": data_uri(png, "image/png")}
                strips[contributor] = place | {"width": image.width, "height": image.height}
        except UnidentifiedImageError:
            raise UserError(f"thumbnail of {contributor!r}: not a PNG") from None
    return strips


def data_uri(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def _hash(text: str) -> str:
    """Return a content security policy's source expression for one inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("diffcredit.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": numbers.number,
        "percent": numbers.percent,
        "span": numbers.span,
        "share_span": numbers.share_span,
        "plain": numbers.plain,
        "duration": lambda seconds: str(timedelta(seconds=round(seconds))),  # 2:01:00
        "png": lambda png: data_uri(png, "image/png"),
        "svg": lambda svg: data_uri(svg.encode(), "image/svg+xml"),
    }
    return environment.get_template("report.html.jinja")


def render(report: Report) -> str:
    """Return the page's HTML. Every text of ``report`` is escaped; none of it reaches the script or the style."""
    templates = files("diffcredit.report") / "templates"
    script = (templates / "report.js").read_text(encoding="utf-8")
    style = (templates / "report.css").read_text(encoding="utf-8")
    images = {
        contributor: count
        for table in report.tables
        for contributor, count in zip(table.contributors, table.images, strict=True)
    }
    return _template().render(
        report=report,
        views=[PropertyView(table) for table in report.tables],
        strips=_strips(report),
        evidence=[(section, shown_tables(section)) for section in report.validation],
        contributors=len(images),
        images=sum(images.values()),
        csv=data_uri(credits_csv(report.tables).encode(), "text/csv;charset=utf-8"),
        thin=numbers.NARROW_SPACE,
        policy=f"default-src 'none'; img-src data:; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'",
        script=Markup(script),
        style=Markup(style),
    )


def write_report(report: Report, path: Path) -> None:
    """Write ``report`` as one self-contained HTML file, whole or not at all."""
    write_text(path, render(report))
