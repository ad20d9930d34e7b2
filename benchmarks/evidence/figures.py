"""The page's drawings."""

import dataclasses
import io

from PIL import Image, ImageDraw, ImageFont

from benchmarks.evidence.findings import FIRST, LEFT_OUT, Findings
from diffcredit.validation.parts import budget, fidelity
from diffcredit.validation.parts.lds import ADDITIVE, REPLICATES
from diffcredit.validation.presentation.figures import forest
from diffcredit.validation.presentation.sections import Figure, PartResult
from diffcredit.validation.statistics import LDSResult
from diffcredit.validation.statistics.records import Contender, Estimate

TITLES = {"colourfulness": "Colourfulness", "heldout_loss": "Held-out loss", "cluster_entropy": "Diversity"}
PRICED = ("sparsified", "sparsified-20", "sparsified-180", "fine_tune", "from_scratch")
"""Recipes whose way to their LDS is drawn: the others reach little."""

NAMES = 190  # pixels beside the photograph

IN_THE_GUIDE = (
    FIRST,
    "shapley, sparsified-20",
    LEFT_OUT,
    "training_property",
    "application_scores (mean)",
    "patch_similarity (sum)",
    "cluster_distance (mean)",
    "das (sum)",
    "in_run_shapley (sum)",
    "image_count",
    "random_ranking",
)


def drawings(found: Findings) -> list[Figure]:
    return [_lds(found), _fidelity(found), _budget(found)]


def _lds(found: Findings) -> Figure:
    """Shapley values by every recipe, leave-one-out by the study's, and the best aggregation of each baseline."""
    panels = {title: _rows(found.scores[1, name]) for name, title in TITLES.items()}
    caption = "LDS at α = 0.5 with 95 % intervals over coalitions; of each baseline its best aggregation."
    return forest("lds", "LDS of each method", caption, panels, "LDS", _ceilings(found), FIRST)


def in_the_guide(found: Findings) -> Figure:
    """The study's credits and some others, for docs/trust.md."""
    panels: dict[str, dict[str, Estimate]] = {}
    for name, title in TITLES.items():
        by_name = {score.contender.name: score.spearman for score in found.scores[1, name].scores}
        panels[title] = {label: by_name[label] for label in IN_THE_GUIDE if label in by_name}
    return forest(
        "trust-lds", "LDS of a study's credits and of some baselines", "", panels, "LDS", _ceilings(found), FIRST
    )


def unlearned(found: Findings) -> bytes:
    """The photograph of the third run as PNG, its rows named at the left as its caption names them."""
    (photograph,) = found.unlearned.section.photographs
    rows = photograph.caption.removeprefix("Rows from top to bottom: ").partition(".")[0].split("; ")
    with Image.open(io.BytesIO(photograph.png)) as grid:
        page = Image.new("RGBA", (NAMES + grid.width, grid.height), "white")
        page.alpha_composite(grid.convert("RGBA"), (NAMES, 0))
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(size=14)
    for row, name in enumerate(rows):
        middle = (row + 0.5) * page.height / len(rows)
        draw.text((NAMES - 10, middle), name, fill="black", font=font, anchor="rm")
    file = io.BytesIO()
    page.convert("RGB").save(file, "PNG", optimize=True)
    return file.getvalue()


def _ceilings(found: Findings) -> dict[str, dict[str, Estimate]]:
    lines: dict[str, dict[str, Estimate]] = {}
    for name, title in TITLES.items():
        result = found.scores[1, name]
        ceiling = result.ceilings_at(result.middle).spearman
        known = {REPLICATES: ceiling.replicates, ADDITIVE: ceiling.additive}
        lines[title] = {label: each for label, each in known.items() if each is not None}
    return lines


def _rows(result: LDSResult) -> dict[str, Estimate]:
    rows: dict[str, Estimate] = {}
    for score in result.scores:
        label = _label(score.contender)
        if label is not None and (label not in rows or score.spearman.value > rows[label].value):
            rows[label] = score.spearman
    return rows


def _label(contender: Contender) -> str | None:
    if contender.recipe:
        shown = contender.name.startswith("shapley, ") or contender.name == LEFT_OUT
        return contender.name if shown else None
    return contender.name.partition(" (")[0]


def _fidelity(found: Findings) -> Figure:
    section = fidelity.section(PartResult({title: found.fidelities[2, name] for name, title in TITLES.items()}))
    figure = next(each for each in section.figures if each.name == "correlation-by-steps")
    return dataclasses.replace(figure, name="fidelity")


def _budget(found: Findings) -> Figure:
    results = {
        TITLES[name]: dataclasses.replace(each, curves=tuple(c for c in each.curves if c.recipe in PRICED))
        for name, each in found.budgets.items()
    }
    return dataclasses.replace(budget.section(PartResult(results)).figures[0], name="budget")
