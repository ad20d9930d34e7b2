"""Composing a study's report: its credits and pictures, their cost and what they are valid for."""

import dataclasses
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from diffcredit.baselines.study import kept_baselines
from diffcredit.coalitions import decode
from diffcredit.contributions.records import Duplicate
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import DiffcreditWarning
from diffcredit.execution.tasks import utc_now
from diffcredit.execution.threads import limited_threads
from diffcredit.execution.versions import package_versions
from diffcredit.ledger import Evaluation, game_of
from diffcredit.report.baselines import agreement, compared, study_helpfulness
from diffcredit.report.page import write_report
from diffcredit.report.records import CreditTable, Picture, Report
from diffcredit.report.standings import standings, write_credits_csv
from diffcredit.report.tables import credit_tables
from diffcredit.study import quality
from diffcredit.study.identity import pictures_identity
from diffcredit.util.artifacts import read_arrays, write_arrays
from diffcredit.util.images import image_grid
from diffcredit.util.seeds import derive_seed
from diffcredit.validation.validate import kept_sections

if TYPE_CHECKING:
    from diffcredit.study.study import Study

GRID_IMAGES, GRID_COLUMNS, GRID_PIXELS = 32, 8, 64
STRIP_IMAGES, STRIP_PIXELS = 8, 32
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
    with study.ledger(create=False) as ledger:
        evaluations = ledger.evaluations(study.name, study.recipe.name)
        records = {record.name: record for record in ledger.properties(study.name)}
        recipe = next(recipe for recipe in ledger.recipes(study.name) if recipe.name == study.recipe.name)
        head = ledger.head(study.name)
    baselines = kept_baselines(study)
    return Report(
        study=study.name,
        created=f"{utc_now()[:16].replace('T', ' ')} UTC",
        version=package_versions().get("diffcredit", "unknown"),
        tables=tables,
        samples=tuple(_samples(study, tables[0], retrain=retrain)),
        thumbnails=_thumbnails(study),
        settings={**recipe.settings, "properties": {name: record.settings for name, record in records.items()}},
        cost=_cost(evaluations),
        scope=_scope(study),
        notes=tuple(_notes(study, tables, list(records), evaluations)),
        fingerprints={
            "data": study.contributions.fingerprint,
            "recipe": recipe.fingerprint,
            "starting weights": recipe.weights or "none",
            f"head of the ledger's {head.number:,} rows": head.hash or "none",
        },
        baselines=tuple(compared(baselines, study_helpfulness(study))),
        agreement=agreement(baselines),
        validation=tuple(kept_sections(study)),
    )


def _worded(table: CreditTable, study: "Study") -> CreditTable:
    for section, prop in zip(study.config.properties, study.prepared.properties, strict=True):
        if prop.name == table.property:
            title, sentences = prop.title or table.title, [prop.explanation, f"Bias: {prop.bias}" if prop.bias else ""]
            if section.label is not None:  # the label distinguishes two settings of one property
                title, sentences = table.title, [f"{prop.title or section.name}.", *sentences]
            explanation = " ".join(filter(None, sentences))
            return dataclasses.replace(table, title=title, unit=prop.unit or "", explanation=explanation)
    return table  # of an earlier study file


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


def _thumbnails(study: "Study") -> dict[str, bytes]:
    contributions = study.contributions
    strips = {}
    for index, name in enumerate(contributions.contributors):
        images = contributions.images[contributions.owner == index][:STRIP_IMAGES]
        strips[name] = image_grid(images, STRIP_IMAGES, scale=max(1, STRIP_PIXELS // images.shape[1]))
    return strips


def _cost(evaluations: Sequence[Evaluation]) -> dict[str, float | int | str]:
    done = [evaluation for evaluation in evaluations if evaluation.status == "done"]
    seconds: Counter[str] = Counter()
    for evaluation in done:
        seconds.update(evaluation.seconds)
    devices = sorted({str(evaluation.numerics.get("device")) for evaluation in done})
    return {
        "evaluations": len(done),
        "failed attempts": len(evaluations) - len(done),
        **{f"seconds {stage}": round(total, 1) for stage, total in seconds.items()},
        "workers": len({evaluation.worker for evaluation in done}),
        "devices": ", ".join(devices),
    }


def _scope(study: "Study") -> tuple[str, ...]:
    config, sampling = study.config, study.config.sampling
    family = study.prepared.family
    trained = f"trained for {config.model.train.steps:,} steps from seed {config.model_seed}"
    training = "taken as it was given" if family.trained else trained
    # only the name of a folder: its place is private
    what = " ".join(PurePath(str(value)).name for value in config.model.options.values())
    return (
        f"This base model: {config.model.family} {what} at {config.contributions.resolution} px, {training}.",
        f"This retraining: {config.retraining.method}. Every value, F(none) and F(all) included, belongs to one game, "
        "the one this retraining plays; another retraining plays another game.",
        f"These {sampling.images:,} initial noises, the same for every coalition, and {sampling.steps} steps of "
        f"{sampling.scheduler.upper()}. More evaluations do not shrink the uncertainty that comes from them.",
        f"F(none) is {family.nobody}. It sets the level that all credits share, not the differences between "
        "contributors.",
        *_surrogates(study),
    )


def _surrogates(study: "Study") -> tuple[str, ...]:
    if not study.surrogates.names:
        return ()
    names = ", ".join(study.surrogates.names)
    if not study.surrogates.ready():
        return (f"These surrogates are not measured yet: {names}. The credits are those of the evaluations alone.",)
    without = study.surrogates.without()
    beside = f" None stands in for {', '.join(without)}, credited by the evaluations alone." if without else ""
    return (
        f"These surrogates: {names}. Their own credits, scaled to fit, are corrected by "
        f"the evaluations, and the intervals are those of the corrected credits.{beside}",
    )


def _notes(
    study: "Study", tables: Sequence[CreditTable], measured: Sequence[str], evaluations: Sequence[Evaluation]
) -> list[str]:
    notes = []
    for name in measured:
        if name not in [table.property for table in tables]:
            game = game_of(evaluations, name)
            notes.append(
                f"{name}: no credits: there are too few values, {len(game.values)}. {game.missing} are missing "
                "because measuring failed or the property was added later."
            )
    copied: dict[tuple[str, ...], list[Duplicate]] = {}
    for duplicate in study.contributions.duplicates():
        copied.setdefault(duplicate.contributors, []).append(duplicate)
    for contributors, duplicates in copied.items():
        what = "The same image was" if len(duplicates) == 1 else f"The same {len(duplicates)} images were"
        notes.append(
            f"{what} given by {', '.join(contributors)} (such as {', '.join(duplicates[0].names)}): copying and "
            "account splitting change credits."
        )
    if study.contributions.skipped:
        first = "; ".join(study.contributions.skipped[:5])
        notes.append(f"{len(study.contributions.skipped)} unreadable images were skipped: {first}.")
    for table in tables:
        if table.failed:
            notes.append(f"{table.title}: {table.failed} evaluations failed and are left out; nothing was filled in.")
    notes += [f"{complaint}." for complaint in quality.complaints(study, quality.kept(study))]
    classes = {str(sorted(e.numerics.items())) for e in evaluations if e.status == "done" and "1" in e.coalition}
    if len(classes) > 1:
        notes.append(
            f"The evaluations come from {len(classes)} numerics classes (devices, threads), equal to rounding only."
        )
    return notes
