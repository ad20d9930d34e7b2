"""Composing a study's report: its credits and pictures, their cost and what they are valid for.

A report needs the ledger alone. Where the images or models of a study are not on this machine, as for an auditor, it
says what it could not show.
"""

import dataclasses
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from diffcredit.baselines.study import helpfulness, kept_baselines
from diffcredit.coalitions import decode
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.execution.tasks import utc_now
from diffcredit.execution.threads import limited_threads
from diffcredit.execution.versions import package_versions
from diffcredit.report.baselines import agreement, compared
from diffcredit.report.contributors import given_images, images_in_words
from diffcredit.report.cost import cost
from diffcredit.report.page import write_report
from diffcredit.report.records import CreditTable, Picture, Report
from diffcredit.report.scope import for_prompts, notes_on_images, notes_on_pruning, notes_on_values, scope
from diffcredit.report.standings import standings, write_credits_csv
from diffcredit.report.tables import credit_tables
from diffcredit.report.thumbnails import thumbnails
from diffcredit.study.identity import pictures_identity
from diffcredit.study.pilot import noise_warnings
from diffcredit.study.prepared import build_family, build_properties
from diffcredit.util.artifacts import read_arrays, write_arrays
from diffcredit.util.images import image_grid
from diffcredit.util.seeds import derive_seed
from diffcredit.validation.validate import kept_sections

if TYPE_CHECKING:
    from diffcredit.properties import Property
    from diffcredit.study.study import Study

GRID_IMAGES, GRID_COLUMNS, GRID_PIXELS = 32, 8, 64
TOP_SHARE = 0.2


def write_results(study: "Study", *, retrain: bool = True) -> tuple[CreditTable, ...]:
    """Write ``report.html`` and ``credits.csv`` into the study's folder, and return its credit tables. ``retrain``:
    also make images of models that the report shows and that are not cached."""
    report = compose(study, retrain=retrain)
    write_credits_csv(report.tables, study.folder / "credits.csv")
    write_report(report, study.folder / "report.html")
    return report.tables


def compose(study: "Study", *, retrain: bool = True) -> Report:
    """Return the report of all evaluations so far; ``retrain`` as for `write_results`."""
    tables = tuple(_worded(table, study) for table in credit_tables(study))
    trains_base = not build_family(study.config, study.file).trained
    with study.ledger(create=False) as ledger:
        evaluations = ledger.evaluations(study.name, study.recipe.name)
        records = {record.name: record for record in study.measured(ledger)}
        recipe = next(recipe for recipe in ledger.recipes(study.name) if recipe.name == study.recipe.name)
        head = ledger.head(study.name)
        spent = cost(study, ledger, trains_base=trains_base)
    report = Report(
        study=study.name,
        created=f"{utc_now()[:16].replace('T', ' ')} UTC",
        version=package_versions().get("diffcredit", "unknown"),
        tables=tables,
        settings={**recipe.settings, "properties": {name: record.settings for name, record in records.items()}},
        cost=spent,
        devices=", ".join(sorted({str(each.numerics.get("device")) for each in evaluations if each.status == "done"})),
        scope=(*scope(study, trains_base=trains_base), *for_prompts(study, records.values(), evaluations)),
        notes=(
            *notes_on_values(tables, list(records), evaluations),
            *(f"{sentence}." for sentence in noise_warnings(study)),
        ),
        fingerprints={
            "data": recipe.settings["data"]["fingerprint"],
            "recipe": recipe.fingerprint,
            "starting weights": recipe.weights or "none",
            f"head of the ledger's {head.number:,} rows": head.hash or "none",
        },
        validation=tuple(kept_sections(study)),
    )
    return _with_baselines(_with_pictures(report, study, retrain=retrain), study)


def _with_pictures(report: Report, study: "Study", *, retrain: bool) -> Report:
    """Return the report with what needs the contributions and the base model, or with what is missing of these."""
    try:
        contributions = study.contributions
    except UserError as error:
        # the page does not repeat the reason, which names a private place
        warnings.warn(f"the report is without images: {error}", DiffcreditWarning, stacklevel=2)
        without = (
            "The contributors’ images cannot be read here. So this report cannot show them, say how many images were "
            "given and held out, find images given twice, check that they are the study’s, or show what the models "
            "generate."
        )
        return dataclasses.replace(report, missing=(*report.missing, without))
    report = dataclasses.replace(
        report,
        images=images_in_words(study.config, contributions),
        given=given_images(contributions),
        notes=(*report.notes, *notes_on_images(contributions)),
        thumbnails=thumbnails(study),
    )
    study.cache.share()  # the base model may be at a URL
    if not study.prepared.has_base:
        without = "The base model is not here. So this report cannot show what the models generate."
        return dataclasses.replace(report, missing=(*report.missing, without))
    return dataclasses.replace(
        report,
        samples=tuple(_samples(study, report.tables[0], retrain=retrain)),
        notes=(*report.notes, *notes_on_pruning(study)),
    )


def _samples(study: "Study", table: CreditTable, *, retrain: bool) -> list[Picture]:
    """Return image grids from the same initial noises: of the base model, of everybody, and without the top
    contributors. The last is left out where all credits are equal."""
    places = standings(table)
    order = [row.contributor for row in places]
    top = order[: max(1, round(TOP_SHARE * len(order)))]
    without = "".join("0" if name in top else "1" for name in table.contributors)
    sampling = study.config.sampling
    seeds = f"seeds {sampling.seed} to {sampling.seed + min(GRID_IMAGES, sampling.images) - 1}"
    base = f"Images of the model trained on all contributions, {seeds}."
    pictures = [Picture("The base model", base, _grid(study.prepared.generated_images()))]
    everybody = "The coalition of all contributors, through the study's retraining, from the same noises: F(all)."
    others = f"The same retraining without {', '.join(top)}, who helped most with {table.title}; same noises."
    title = f"Without the top {len(top)}" if len(top) > 1 else "Without the top contributor"
    models = [("Everybody", everybody, "1" * len(order)), (title, others, without)]
    for title, caption, coalition in models if places[-1].rank > 1 else models[:1]:
        try:
            if retrain or _pictures_file(study, coalition).exists():
                pictures.append(Picture(title, caption, _grid(coalition_images(study, coalition))))
        except Exception as error:  # a failed retraining must not prevent the report
            warnings.warn(f"{title}: no picture ({error})", DiffcreditWarning, stacklevel=2)
    return pictures


def coalition_images(study: "Study", coalition: str) -> NDArray[np.uint8]:
    """Return images of a coalition's model (its first replicate), (m, h, w, 3); they are cached."""
    file = _pictures_file(study, coalition)
    if not file.exists():
        study.progress("retraining for the pictures", 0, 1)
        seed = derive_seed(study.config.seed, coalition, 0)
        with limited_threads(study.config.threads):
            (model,) = study.recipe.retraining.models_for(decode(coalition)[None], [seed])
            images = generate(model, _few(study))
        write_arrays(file, {"images": images})
        study.progress("retraining for the pictures", 1, 1)
    return read_arrays(file)["images"]


def _pictures_file(study: "Study", coalition: str) -> Path:
    recipe = study.recipe
    key = pictures_identity(recipe.retraining.weights, recipe.name, coalition, _few(study))
    return study.cache.path("pictures", key, ".safetensors")


def _few(study: "Study") -> Sampling:
    return dataclasses.replace(study.config.sampling, images=min(GRID_IMAGES, study.config.sampling.images))


def _grid(images: NDArray[np.uint8]) -> bytes:
    return image_grid(images[:GRID_IMAGES], GRID_COLUMNS, scale=max(1, GRID_PIXELS // images.shape[1]))


def _with_baselines(report: Report, study: "Study") -> Report:
    if report.missing:  # which baselines are this study's follows from its images
        return report
    found = kept_baselines(study)
    credits = {table.property: helpfulness(table.credit, table.higher_is_better) for table in report.tables}
    rows = tuple(compared(found, credits))
    return dataclasses.replace(report, baselines=rows, agreement=agreement(found))


def _worded(table: CreditTable, study: "Study") -> CreditTable:
    # properties that are not fitted are enough: fitting needs a model
    for section, prop in zip(study.config.properties, build_properties(study.config, study.file), strict=True):
        if prop.name == table.property:
            title, sentences = prop.title or table.title, [prop.explanation, f"Bias: {prop.bias}" if prop.bias else ""]
            if section.label is not None:  # the label distinguishes two settings of one property
                title, sentences = table.title, [f"{prop.title or section.name}.", *sentences]
            return dataclasses.replace(
                table,
                title=title,
                unit=prop.unit or "",
                explanation=" ".join(filter(None, sentences)),
                differences=_differences(prop, title),
                relative=prop.range[0] == 0,
            )
    return table  # of an earlier study file


def _differences(prop: "Property", title: str) -> tuple[str, str]:
    lower, higher = prop.differences
    return lower or f"{title} would be {{}} lower", higher or f"{title} would be {{}} higher"
