"""``diffcredit measure``: measure properties on evaluations that are already recorded."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diffcredit.cli.console import Bars, duration, report_failures, say, stopping_gently
from diffcredit.cli.opened import opened
from diffcredit.cli.options import StudyArgument, parse_component
from diffcredit.errors import UserError
from diffcredit.util.sanitize import last_line

if TYPE_CHECKING:
    from diffcredit.study.reevaluate import Outlook
    from diffcredit.study.sections import PropertySection
    from diffcredit.study.study import Study
    from diffcredit.study.workers import Workers

PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        help="A property of the study file, or a new one, which is added to it: a name, a plug-in "
        "package.module:Name, or a mapping with options such as '{name: fid, features: inception_v3}'. Default: all "
        "with missing values.",
    ),
]


def measure(
    study: StudyArgument,
    property: PropertyOption = None,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Retrain and sample again where too little was kept.")
    ] = False,
    *,
    where: "Workers",
) -> None:
    """Measure a property on a study's finished evaluations, without retraining where they were kept."""
    from diffcredit.cli.credit_tables import print_results
    from diffcredit.report.composing import write_results
    from diffcredit.study.reevaluate import measure_kept, measure_retrained, outlook
    from diffcredit.study.workers import make_executor

    with stopping_gently(), Bars() as bars, opened(study, bars) as there:
        loaded, names, new = with_properties(there, property or [])
        found = outlook(loaded, names)
        if not found.kept and not found.retrained:
            say(f"{', '.join(names)}: measured on every evaluation already")
        elif not found.kept and not retrain:  # nothing can be measured, so the study file stays as it is
            say(_cost_message(loaded, found))
            raise typer.Exit(1)
        add_to_file(loaded.file, new)
        executor = make_executor(loaded, where)
        measured = list(measure_kept(loaded, executor, found.kept))
        failures = [[error for error in (each.error, *(v.error for v in each.values)) if error] for each in measured]
        if whole := failures.count([]):
            say(f"measured on {whole} evaluations that were kept")
        errors = [error for failed in failures for error in failed]
        if errors:
            say(f"{len(errors)} failures, the first: {last_line(errors[0])}")
        if found.retrained and retrain:
            report_failures(measure_retrained(loaded, executor, found.retrained))
        elif found.retrained:
            say(_cost_message(loaded, found))
        if loaded.surrogates.names:
            loaded.surrogates.prepare()
        try:
            tables = write_results(loaded, retrain=False)
        except UserError as error:  # too few evaluations yet
            say(str(error))
        else:
            print_results(loaded, [table for table in tables if table.property in names])


def with_properties(study: "Study", wanted: list[str]) -> "tuple[Study, list[str], list[dict[str, Any]]]":
    """Return the study with the ``wanted`` properties (none: all), their names, and those new to its file."""
    from diffcredit.study.prepared import build_properties

    there = [prop.name for prop in build_properties(study.config, study.file)]
    plain = {each.name: name for each, name in zip(study.config.properties, there, strict=True) if each.label is None}
    names: list[str] = []
    items: list[dict[str, Any]] = []
    sections: list[PropertySection] = []
    for text in wanted:
        if text in there or text in plain:
            names.append(text if text in there else plain[text])
            continue
        item = parse_component(text, "--property", "{name: fid, features: inception_v3}")
        section = _section(item, study.file.parent)
        if section in study.config.properties:  # for example when an interrupted command is repeated
            names.append(there[study.config.properties.index(section)])
        else:
            items.append(item)
            sections.append(section)
    if sections:
        config = study.config.model_copy(update={"properties": (*study.config.properties, *sections)})
        study = type(study)(config, study.file, study.progress)
        names += [prop.name for prop in build_properties(study.config, study.file)[len(there) :]]
    return study, names or there, items


def _section(item: dict[str, Any], folder: Path) -> "PropertySection":
    from pydantic import ValidationError

    from diffcredit.study.sections import PropertySection

    try:
        return PropertySection.model_validate(item).resolved(folder)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        raise UserError(f"--property: {key}: {problem['input']!r} is not accepted; {problem['msg']}") from None


def add_to_file(file: Path, new: list[dict[str, Any]]) -> None:
    """Add properties to the study file's list, unless another command has done so, and print which."""
    from diffcredit.util.artifacts import write_text
    from diffcredit.util.yamlfile import parse_yaml, with_item

    text = file.read_bytes().decode()  # keeps its line endings
    new = [item for item in new if item not in parse_yaml(text, file)["properties"]]
    if not new:
        return
    try:
        if not file.stat().st_mode & 0o222:
            raise ValueError("it is read-only")
        for item in new:
            text = with_item(text, "properties", item)
        write_text(file.resolve(), text)  # a link stays one
    except (ValueError, OSError) as error:
        raise UserError(
            f"{file}: cannot be extended ({error}); add {', '.join(map(str, new))} to its properties, and run this "
            "command without --property"
        ) from None
    for item in new:
        say(f"added to the properties of {file}: {item.get('as', item['name'])}")


def _cost_message(study: "Study", found: "Outlook") -> str:
    count = found.count(found.retrained)
    names = sorted({name for group in found.retrained for name in group})
    return (
        f"{', '.join(names)}: too little was kept of {count} evaluations (keep: {study.config.keep}) to measure it on. "
        f"Retraining them takes about {duration(found.seconds)} each, {duration(count * found.seconds)} of one worker "
        "in total; --retrain does it"
    )
