"""``diffcredit measure``: adds a property to evaluations that are there already."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diffcredit.cli.console import Bars, StudyArgument, WorkersOption, duration, say
from diffcredit.errors import UserError

if TYPE_CHECKING:
    from diffcredit.config import StudyConfig
    from diffcredit.remeasuring import Outlook
    from diffcredit.study import Study

PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        help="One of the study file's, or a new one, which is added to it: a name, a plug-in package.module:Name, or "
        "a mapping with options such as '{name: fid, features: inception_v3}'. Default: all that lack values.",
        show_default=False,
    ),
]


def measure(
    study: StudyArgument,
    property: PropertyOption = None,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Retrain and sample once more where too little was kept.")
    ] = False,
    workers: WorkersOption = None,
) -> None:
    """Measure a property on a study's finished evaluations, without retraining where they were kept."""
    from diffcredit.cli.run import last_line, make_executor, stopping_gently, tell_failures
    from diffcredit.remeasuring import measure_kept, measure_retrained, outlook
    from diffcredit.study import Study

    with stopping_gently(), Bars() as bars:
        loaded, names, new = with_properties(Study.load(study, bars), property or [])
        found = outlook(loaded, names)
        if not found.kept and not found.retrained:
            say(f"{', '.join(names)}: measured on every evaluation already")
        elif not found.kept and not retrain:  # nothing can be done, so nothing is changed
            say(_price(loaded, found))
            raise typer.Exit(1)
        add_to_file(loaded.file, new)
        executor = make_executor(loaded, workers)
        measured = list(measure_kept(loaded, executor, found.kept))
        if measured:
            say(f"measured on {len(measured)} evaluations that were kept")
        errors = [
            error for each in measured for error in (each.error, *(value.error for value in each.values)) if error
        ]
        if errors:
            say(f"{len(errors)} failures, the first: {last_line(errors[0])}")
        if found.retrained and retrain:
            tell_failures(measure_retrained(loaded, executor, found.retrained))
        elif found.retrained:
            say(_price(loaded, found))
        if loaded.surrogates.names:
            loaded.surrogates.prepare()
        _show(loaded, names)


def with_properties(study: "Study", wanted: list[str]) -> "tuple[Study, list[str], list[dict[str, Any]]]":
    """The study with the properties asked for, their names (nothing asked: all), and those that its file lacks."""
    from diffcredit.preparation import build_properties

    there = {prop.name: prop for prop in build_properties(study)}
    sections = {section.name: name for section, name in zip(study.config.properties, there, strict=True)}
    names, new = [], []
    for text in wanted:
        if text in there or text in sections:
            names.append(text if text in there else sections[text])
        else:
            new.append(_parsed(text))
    if new:
        study = type(study)(_extended(study, new), study.file, study.progress)
        names += [prop.name for prop in build_properties(study)[len(there) :]]
    return study, names or list(there), new


def _parsed(text: str) -> dict[str, Any]:
    from diffcredit.yamlfile import parse_yaml

    value = parse_yaml(text, "--property")
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise UserError(
            f"--property: {text!r} is not accepted; a name, package.module:Name, or a mapping with a name, such as "
            "'{name: fid, features: inception_v3}'"
        )
    return value


def _extended(study: "Study", new: list[dict[str, Any]]) -> "StudyConfig":
    """The study's settings with properties added."""
    from pydantic import ValidationError

    from diffcredit.config import PropertySection

    try:
        sections = tuple(PropertySection.model_validate(item).resolved(study.file.parent) for item in new)
    except ValidationError as error:
        raise UserError(f"--property: {error.errors()[0]['msg']}") from None
    return study.config.model_copy(update={"properties": (*study.config.properties, *sections)})


def add_to_file(file: Path, new: list[dict[str, Any]]) -> None:
    """Adds properties to the study file's list, and says so."""
    from diffcredit.artifacts import write_text
    from diffcredit.yamlfile import with_item

    if not new:
        return
    text = file.read_text(encoding="utf-8")
    try:
        for item in new:
            text = with_item(text, "properties", item)
        write_text(file, text)
    except (ValueError, OSError) as error:
        raise UserError(
            f"{file}: cannot be extended ({error}); add {', '.join(map(str, new))} to its properties, and run this "
            "command without --property"
        ) from None
    for item in new:
        say(f"added to the properties of {file}: {item['name']}")


def _price(study: "Study", found: "Outlook") -> str:
    """What the rest would cost, and how to pay it."""
    count = found.count(found.retrained)
    names = sorted({name for group in found.retrained for name in group})
    return (
        f"{', '.join(names)}: too little was kept of {count} evaluations (keep: {study.config.keep}) to measure it on. "
        f"Retraining them takes about {duration(found.seconds)} each, {duration(count * found.seconds)} of one worker "
        "in all; --retrain does it"
    )


def _show(study: "Study", names: list[str]) -> None:
    """Writes the results anew, and prints the credits of these properties, where there are any."""
    from diffcredit.cli.credits import print_credits
    from diffcredit.cli.report import write_results

    try:
        tables = write_results(study)
    except UserError as error:  # too few evaluations yet
        say(str(error))
        return
    print_credits([table for table in tables if table.property in names])
    say(f"\nReport: {study.folder / 'report.html'}\nTable:  {study.folder / 'credits.csv'}")
