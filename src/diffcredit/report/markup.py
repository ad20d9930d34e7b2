"""What all pages share: templates with escaping, styles, embedded pictures, and a policy that lets nothing else in."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

import jinja2
from markupsafe import Markup

from diffcredit.report import numbers
from diffcredit.util.progress import duration
from diffcredit.util.sanitize import single_line


def breakable(text: str) -> Markup:
    """Return ``text`` with places after underscores where a line may break."""
    return Markup("_<wbr>").join(text.split("_"))


def data_uri(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def source_hash(text: str) -> str:
    """Return a content security policy's source expression for one inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def bundled(*names: str) -> str:
    """Return the text of one or several of our scripts or styles, one after the other."""
    folder = files("diffcredit.report") / "templates"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def template(name: str) -> jinja2.Template:
    """Return one of our templates. It escapes every text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("diffcredit.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": breakable,
        "single_line": single_line,
        "number": numbers.number,
        "signed": numbers.signed,
        "percent": numbers.percent,
        "span": numbers.span,
        "share_span": numbers.share_span,
        "plain": numbers.plain,
        "duration": duration,
        "png": lambda png: data_uri(png, "image/png"),
        "svg": lambda svg: data_uri(svg.encode(), "image/svg+xml"),
    }
    return environment.get_template(name)
