"""The report as one self-contained HTML file.

Everything is inline, and a content security policy allows nothing else: the page makes no request, and only the one
script and the one style whose hashes it names take effect, whatever the names of contributors contain.
"""

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup

from diffcredit.report.numbers import (
    NARROW_SPACE,
    credit_decimals,
    duration,
    number,
    percent,
    plain,
    share_decimals,
    share_span,
    span,
    typical_half_width,
)
from diffcredit.report.outliers import outlier_warning
from diffcredit.report.pictures import data_uri, png_size
from diffcredit.report.plot import Plot, plot
from diffcredit.report.records import CreditTable, Report
from diffcredit.report.spreadsheet import credits_csv
from diffcredit.report.standings import (
    Standing,
    average_credit,
    credit_sum,
    standings,
    sums_to_total,
    total,
)
from diffcredit.report.validation import section_view
from diffcredit.util.artifacts import write_text

QUESTIONS = {
    "leave-one-out": "what everybody’s model loses when this contributor alone leaves",
    "add-one-in": "what this contributor alone adds to F(none)",
    "datamodel": "what this contributor adds to coalitions of the size that was evaluated, less what others add",
}
"""What a credit means for methods that estimate no Shapley value."""


@dataclass(frozen=True)
class PropertyView:
    """One property as the page shows it."""

    table: CreditTable
    standings: tuple[Standing, ...]
    plot: Plot
    average: float
    sum: float
    total: float
    sum_holds: bool
    half_width: float | None
    decimals: int
    share_decimals: int
    warning: str | None

    @property
    def question(self) -> str | None:
        """Return what the credits mean, where they are no Shapley values."""
        return QUESTIONS.get(self.table.method)

    @property
    def more(self) -> list[str]:
        """Contributors significantly above the average, most helpful first."""
        return [row.contributor for row in self.standings if row.versus_average == "more"]

    @property
    def less(self) -> list[str]:
        """Contributors significantly below the average, least helpful first."""
        return [row.contributor for row in reversed(self.standings) if row.versus_average == "less"]

    @property
    def settled_across(self) -> bool:
        """Whether somebody differs significantly from the average though the credit's own interval includes it."""
        return any(row.versus_average != "unsettled" and row.low <= self.average <= row.high for row in self.standings)

    @property
    def harmful(self) -> list[str]:
        return [row.contributor for row in reversed(self.standings) if row.harms]

    @property
    def unknown(self) -> int:
        return sum(not row.interval_known for row in self.standings)

    @property
    def total_helps(self) -> bool:
        return self.total >= 0 if self.table.higher_is_better else self.total <= 0


def _view(table: CreditTable) -> PropertyView:
    return PropertyView(
        table=table,
        standings=standings(table),
        plot=plot(table),
        average=average_credit(table),
        sum=credit_sum(table),
        total=total(table),
        sum_holds=sums_to_total(table),
        half_width=typical_half_width(table.low, table.high),
        decimals=credit_decimals(table),
        share_decimals=share_decimals(table),
        warning=outlier_warning(table),
    )


@dataclass(frozen=True)
class Strip:
    """A contributor's thumbnails: embedded once, used in the table of every property."""

    id: str
    uri: str
    width: int
    height: int


def _strips(report: Report) -> dict[str, Strip]:
    return {
        contributor: Strip(f"strip-{i}", data_uri(png, "image/png"), *png_size(png, f"thumbnail of {contributor!r}"))
        for i, (contributor, png) in enumerate(report.thumbnails.items())
    }


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
        "number": number,
        "percent": percent,
        "span": span,
        "share_span": share_span,
        "plain": plain,
        "duration": duration,
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
        views=[_view(table) for table in report.tables],
        strips=_strips(report),
        evidence=[section_view(section) for section in report.validation],
        contributors=len(images),
        images=sum(images.values()),
        csv=data_uri(credits_csv(report.tables).encode(), "text/csv;charset=utf-8"),
        thin=NARROW_SPACE,
        policy="; ".join(
            (
                "default-src 'none'",
                "img-src data:",
                f"script-src {_hash(script)}",
                f"style-src {_hash(style)}",
                "base-uri 'none'",
                "form-action 'none'",
            )
        ),
        script=Markup(script),
        style=Markup(style),
    )


def write_report(report: Report, path: Path) -> None:
    """Write ``report`` as one self-contained HTML file, whole or not at all."""
    write_text(path, render(report))
