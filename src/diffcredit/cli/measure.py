"""``diffcredit measure``: measure properties on evaluations that are already recorded."""

import re
from collections.abc import Callable, Collection
from contextlib import suppress
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

NONE_RETIRED = re.compile(r"^retired: *\[ *\][ \r]*\n?", re.MULTILINE)
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
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Retire a property: the study file leaves it out, nobody is shown it any more, and its values stay in "
            "the ledger.",
        ),
    ] = None,
    *,
    where: "Workers",
) -> None:
    """Measure a property on a study's finished evaluations, without retraining where they were kept."""
    from diffcredit.cli.credit_tables import print_results
    from diffcredit.report.composing import write_results
    from diffcredit.study.published import publish
    from diffcredit.study.reevaluate import measure_kept, measure_retrained, outlook, try_new
    from diffcredit.study.workers import make_executor

    if remove and (property or retrain):
        raise UserError("--remove: given with --property or --retrain; it is accepted alone")
    with stopping_gently(), Bars() as bars, opened(study, bars) as there:
        for name in remove or []:
            retire(there, name)
        if remove:
            return
        loaded, names, new = with_properties(there, property or [])
        found, executor = outlook(loaded, names), make_executor(loaded, where)
        if not found.kept and not found.retrained:
            say(f"{', '.join(names)}: measured on every evaluation already")
        elif not retrain and (not found.kept or _cannot_be_tried(found, new)):
            say(_cost_message(loaded, found))  # the study file stays as it is
            raise typer.Exit(1)
        try_new(loaded, executor, list(new), found.kept, *([found.retrained] if retrain else []))
        add_to_file(loaded.file, list(new.values()), list(new))
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
        publish(loaded)
        try:
            tables = write_results(loaded, retrain=False)
        except UserError as error:  # too few evaluations yet
            say(str(error))
        else:
            print_results(loaded, [table for table in tables if table.property in names])


def with_properties(study: "Study", wanted: list[str]) -> "tuple[Study, list[str], dict[str, dict[str, Any]]]":
    """Return the study with the ``wanted`` properties (none: all), their names, and those new to its file by name."""
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
    added: list[str] = []
    if sections:
        config = study.config.model_copy(update={"properties": (*study.config.properties, *sections)})
        study = type(study)(config, study.file, study.progress)
        added = [prop.name for prop in build_properties(study.config, study.file)[len(there) :]]
        retired = tuple(name for name in config.retired if name not in added)
        study = type(study)(config.model_copy(update={"retired": retired}), study.file, study.progress)
    return study, [*names, *added] or there, dict(zip(added, items, strict=True))


def _cannot_be_tried(found: "Outlook", new: Collection[str]) -> bool:
    """Return whether something must be retrained to measure one of the ``new`` properties even once."""
    retrained, kept = ({name for some in groups for name in some} for groups in (found.retrained, found.kept))
    return not set(new).isdisjoint(retrained - kept)


def _section(item: dict[str, Any], folder: Path) -> "PropertySection":
    from pydantic import ValidationError

    from diffcredit.study.sections import PropertySection

    try:
        return PropertySection.model_validate(item).resolved(folder)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        raise UserError(f"--property: {key}: {problem['input']!r} is not accepted; {problem['msg']}") from None


def add_to_file(file: Path, new: list[dict[str, Any]], names: Collection[str] = ()) -> None:
    """Add properties to the study file's list, unless another command has done so, and print which. Those of ``names``
    that were retired are so no longer."""
    from diffcredit.util.yamlfile import parse_yaml, with_item, without_item

    new = [item for item in new if item not in parse_yaml(file.read_bytes().decode(), file)["properties"]]
    if not new:
        return

    def edited(text: str) -> str:
        for item in new:
            text = with_item(text, "properties", item)
        for name in names:
            if name in (retired := parse_yaml(text, file).get("retired") or []):
                text = without_item(text, "retired", retired.index(name))
        return NONE_RETIRED.sub("", text)

    try:
        _edit(file, edited)
    except (ValueError, OSError) as error:
        raise UserError(
            f"{file}: cannot be extended ({error}); add {', '.join(map(str, new))} to its properties, and run this "
            "command without --property"
        ) from None
    for item in new:
        say(f"added to the properties of {file}: {item.get('as', item['name'])}")


def retire(study: "Study", name: str) -> None:
    """Take a property out of the study file and, if the ledger has it, list it as retired there."""
    from diffcredit.ledger import NoLedger
    from diffcredit.study.config import parse_config
    from diffcredit.study.manifest import enter_terms
    from diffcredit.study.recorded import described
    from diffcredit.util.artifacts import canonical_json
    from diffcredit.util.yamlfile import parse_yaml, with_item, without_item

    config, file, known = study.config, study.file, []
    with suppress(NoLedger), study.ledger(create=False) as ledger:
        if study.name in ledger.studies():
            known = study.measured(ledger)
    named = {section.label or section.name.rpartition(":")[2]: section for section in config.properties}
    named |= {record.name: section for section, record in described(config, known)}
    recorded = [record.name for record in known]
    if name not in {*named, *recorded}:
        accepted = ", ".join(dict.fromkeys([*named, *recorded]))
        raise UserError(f"--remove: {name!r} is not a property of {file}; accepted: {accepted}")

    def edited(text: str) -> str:
        if name in named:
            text = without_item(text, "properties", config.properties.index(named[name]))
        if name in recorded and config.retired:
            text = with_item(text, "retired", name)
        elif name in recorded:
            text = f"{NONE_RETIRED.sub('', text).rstrip()}\nretired: {canonical_json([name])}\n"
        parse_config(parse_yaml(text, file), file)  # what names the property must go first, such as a stopping rule
        return text

    try:
        _edit(file, edited)
    except (ValueError, OSError) as error:
        raise UserError(f"{file}: cannot be changed ({error}); take {name} out of its properties by hand") from None
    changed = type(study).load(file)
    with suppress(NoLedger), changed.ledger(create=False) as ledger:
        if changed.name in ledger.studies():
            enter_terms(changed, ledger)
    say(f"{name}: taken out of {file}; its values stay in the ledger, and the next report leaves it out")


def _edit(file: Path, edited: Callable[[str], str]) -> None:
    """Replace the text of a study file by what ``edited`` makes of it."""
    from diffcredit.util.artifacts import write_text

    if not file.stat().st_mode & 0o222:
        raise ValueError("it is read-only")
    write_text(file.resolve(), edited(file.read_bytes().decode()))  # line endings stay, and a link stays one


def _cost_message(study: "Study", found: "Outlook") -> str:
    count = found.count(found.retrained)
    names = sorted({name for group in found.retrained for name in group})
    return (
        f"{', '.join(names)}: too little was kept of {count} evaluations (keep: {study.config.keep}) to measure it on. "
        f"Retraining them takes about {duration(found.seconds)} each, {duration(count * found.seconds)} of one worker "
        "in total; --retrain does it"
    )
