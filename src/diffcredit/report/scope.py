"""The scope of a study's credits and the notes that ask a reader for care, in sentences."""

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from diffcredit.contributions.records import Duplicate
from diffcredit.ledger import Evaluation, PropertyRecord, game_of
from diffcredit.properties.prompted import in_words
from diffcredit.report.records import CreditTable
from diffcredit.study import quality

if TYPE_CHECKING:
    from diffcredit.contributions import Contributions
    from diffcredit.study.study import Study


def scope(study: "Study", *, trains_base: bool) -> tuple[str, ...]:
    """Return what fixes the game that was played; ``trains_base``: whether its base model does not come trained."""
    config, sampling = study.config, study.config.sampling
    trained = f"trained for {config.model.train.steps:,} steps from seed {config.model_seed}"
    training = trained if trains_base else "taken as it was given"
    # only the name of a folder: its place is private
    what = " ".join(PurePath(str(value)).name for value in config.model.options.values())
    return (
        f"This base model: {config.model.family} {what} at {config.contributions.resolution} px, {training}.",
        f"This retraining: {config.retraining.method}. Every value, F(reference) and F(all) included, belongs to one "
        "game, the one this retraining plays; another retraining plays another game.",
        f"These {sampling.images:,} initial noises, the same for every coalition, and {sampling.steps} steps of "
        f"{sampling.scheduler.upper()}. More evaluations do not shrink the uncertainty that comes from them.",
        *([] if sampling.prompts is None else [f"These prompts, in turn: {in_words(sampling.prompts)}."]),
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


def for_prompts(
    study: "Study", records: Iterable[PropertyRecord], evaluations: Sequence[Evaluation]
) -> tuple[str, ...]:
    """Return which images each property with prompts measures, and how many these are."""
    counts = {value.property: value.images for each in evaluations for value in each.values if value.images is not None}
    images = study.config.sampling.images
    return tuple(
        f"{record.name}: measured on {counts[record.name]:,} of the {images:,} images of each evaluation, those "
        f"generated for {in_words(record.settings['prompts'])}."
        for record in records
        if record.name in counts and record.settings.get("prompts")
    )


def notes_on_values(
    tables: Sequence[CreditTable], measured: Sequence[str], evaluations: Sequence[Evaluation]
) -> list[str]:
    """Return notes on values that are missing, failed, or equal to rounding only."""
    notes = []
    for name in measured:
        if name not in [table.property for table in tables]:
            game = game_of(evaluations, name)
            notes.append(
                f"{name}: no credits: there are too few values, {len(game.values)}. {game.missing} are missing "
                "because measuring failed or the property was added later."
            )
    for table in tables:
        if table.failed:
            notes.append(f"{table.title}: {table.failed} evaluations failed and are left out; nothing was filled in.")
    classes = {str(sorted(e.numerics.items())) for e in evaluations if e.status == "done" and "1" in e.coalition}
    if len(classes) > 1:
        notes.append(
            f"The evaluations come from {len(classes)} numerics classes (devices, threads), equal to rounding only."
        )
    return notes


def notes_on_images(contributions: "Contributions") -> list[str]:
    """Return notes on images that several contributors gave, that could not be read, and that were cropped."""
    notes = []
    copied: dict[tuple[str, ...], list[Duplicate]] = {}
    for duplicate in contributions.duplicates():
        copied.setdefault(duplicate.contributors, []).append(duplicate)
    for contributors, duplicates in copied.items():
        what = "The same image was" if len(duplicates) == 1 else f"The same {len(duplicates)} images were"
        notes.append(
            f"{what} given by {', '.join(contributors)} (such as {', '.join(duplicates[0].names)}): copying and "
            "account splitting change credits."
        )
    if contributions.skipped:
        first = "; ".join(contributions.skipped[:5])
        notes.append(f"{len(contributions.skipped)} unreadable images were skipped: {first}.")
    if words := contributions.cropped_in_words:
        notes.append(f"{words}.")
    return notes


def notes_on_pruning(study: "Study") -> list[str]:
    """Return notes on what pruning changed, from comparisons that were made earlier. The base model must be there."""
    if why := quality.unknown(study):
        return [f"What pruning changed in the base model is not known here: {why}; diffcredit run measures it."]
    return [f"{complaint}." for complaint in quality.complaints(study, quality.kept(study))]
