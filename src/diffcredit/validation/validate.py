"""Test a study's credits against models retrained from scratch.

    from diffcredit import InProcess, Study
    from diffcredit.validation.validate import missing_evaluations, validate

    study = Study.load("study.yaml")
    missing_evaluations(study)             # what would be evaluated, and for which part
    found = validate(study, ["lds"], executor=InProcess())
    found.sections[0].summary              # sentences; tables and figures are beside them
    found.left_out                         # what could not be computed, and why

Each section is also kept as files in ``validation/PART`` of the study's folder, where reports find it. Without an
executor nothing is retrained: sections are computed from what the ledger has.
"""

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from diffcredit.baselines.selection import Built, possible_baselines
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.execution import Executor
from diffcredit.ledger import Evaluation
from diffcredit.study.evaluating import evaluate_tasks, keep_again
from diffcredit.study.manifest import content_of, enter_file, enter_terms, is_entered
from diffcredit.study.published import publish
from diffcredit.study.recorded import check_recipe
from diffcredit.study.reserved import shortages
from diffcredit.study.study import Study
from diffcredit.validation.contenders import categories_to_come
from diffcredit.validation.data import PartWork, ValidationData
from diffcredit.validation.parts import PARTS
from diffcredit.validation.presentation.sections import Section
from diffcredit.validation.presentation.writing import SECTION, files_of, read_section, write_section

Watch = Callable[[Iterable[Evaluation], bool], object]
"""A function that goes through evaluations as they are made; the flag says whether the ledger records them."""


@dataclass(frozen=True)
class Missing:
    """The work of `validate`. ``work`` with how many evaluations, or images of these, are missing for it, at most
    where some is undecided; those that several parts need are counted for the first. ``baselines`` that would be
    computed. ``left_out``: the reasons why parts are dropped, by part; ``notes``: what there is less of than asked."""

    work: tuple[tuple[PartWork, int], ...]
    baselines: tuple[Built, ...]
    left_out: dict[str, str]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Validated:
    """The ``sections`` that could be computed, and the reasons for what was ``left_out``, by part or work."""

    sections: tuple[Section, ...]
    left_out: dict[str, str]


def validate(
    study: Study,
    parts: Sequence[str] = (),
    properties: Sequence[str] = (),
    *,
    executor: Executor | None = None,
    watch: Watch = lambda evaluations, recorded: deque(evaluations, maxlen=0),
) -> Validated:
    """Evaluate what each part needs, compute its section and keep it in the study's folder.

    parts: names from `PARTS`; none: all that the study can have. properties: names; none: all that are measured.
    executor: runs the evaluations that are missing; None: nothing is evaluated. watch: goes through the evaluations as
    they are made, and may show them. A part that cannot be computed is left out with its reason. Raises UserError where
    nothing has been evaluated yet, or the ledger's evaluations have other settings."""
    data = open_data(study, properties)
    with study.ledger() as ledger:
        enter_terms(study, ledger)
    if study.surrogates.names and study.surrogates.ready():
        study.surrogates.prepare()
    sections: list[Section] = []
    left_out: dict[str, str] = {}
    ordered = _ordered(study, parts)
    for place, part in enumerate(ordered):
        study.progress("parts of the evidence", place, len(ordered))
        if executor is not None:
            with suppress(UserError):  # its section will say why
                for work in _work(data, part):
                    left_out |= _evaluate(work, part, executor, watch)
        try:
            sections.append(make_section(data, part))
        except UserError as error:
            left_out[part] = str(error)
    study.progress("parts of the evidence", len(ordered), len(ordered))
    publish(study)
    return Validated(tuple(sections), left_out)


def _evaluate(work: PartWork, part: str, executor: Executor, watch: Watch) -> dict[str, str]:
    """Evaluate what is missing, then make missing images again. Return the reason if these cannot be made."""
    if work.missing():
        watch(evaluate_tasks(work.recipe, executor, work.tasks, work.what), True)
    try:
        if unseen := work.without_images():
            watch(keep_again(work.recipe, executor, unseen, f"{work.what}, images again"), False)
    except UserError as error:  # such as lost models of a recipe; the part may do without
        return {f"{part}: {work.what}": str(error)}
    return {}


def missing_evaluations(
    study: Study, parts: Sequence[str] = (), properties: Sequence[str] = (), *, planned: bool = True
) -> Missing:
    """Return what `validate` would do; where only ``planned``, also of a study that has not been run yet."""
    data, wanted = open_data(study, properties, planned=planned), _ordered(study, parts)
    found: dict[str, tuple[PartWork, int]] = {}
    left_out: dict[str, str] = {}
    counted: set[tuple[str, str, int]] = set()
    for place, part in enumerate(wanted):
        study.progress("counting what is missing", place, len(wanted))
        try:
            works = _work(data, part, planned="lds" in wanted or not data.begun)
        except UserError as error:
            left_out[part] = str(error)
            continue
        for work in works:
            tasks = [*work.missing(), *work.without_images()]
            keys = {(work.recipe.name, *task.key) for task in tasks} - counted
            counted |= keys
            if keys or work.undecided:
                found[work.what] = work, len(keys) + work.undecided
    study.progress("counting what is missing", len(wanted), len(wanted))
    baselines = possible_baselines(study) if "lds" in {*wanted} - {*left_out} and categories_to_come(data) else []
    settings, notes = data.settings, shortages(study.config, data.n)
    if data.evaluations < settings.evaluations:
        notes.append(f"evaluations: {data.evaluations} instead of {settings.evaluations}: the design has no more")
    return Missing(tuple(found.values()), tuple(baselines), left_out, tuple(notes))


def open_data(study: Study, properties: Sequence[str] = (), *, planned: bool = False) -> ValidationData:
    """Open a study's ledger for validation. Raises UserError where it has nothing, unless a run is only ``planned``, or
    where it has other settings."""
    data = ValidationData(study, properties, planned=planned)
    if data.names and data.begun:
        study.check_recorded()
        with study.ledger(create=False) as ledger:
            for each in data.recipes:
                check_recipe(each, ledger)
    return data


def _work(data: ValidationData, part: str, *, planned: bool = False) -> Sequence[PartWork]:
    """Return a part's work, before the part ``lds`` if ``planned``. Raises UserError where it cannot be had."""
    chosen = PARTS[part]
    return (chosen.before_lds or chosen.work)(data) if planned else chosen.work(data)


def make_section(data: ValidationData, part: str) -> Section:
    """Compute a part from what the ledger has, and keep it in the study's folder."""
    try:
        section = PARTS[part].section(PARTS[part].result(data))
    except UserError as error:
        raise UserError(f"{data.study.file}: {part}: {str(error).removeprefix(f'{part}: ')}") from error
    folder = section_folder(data.study, part)
    enter_file(data.study, folder, files_of(section))
    write_section(section, folder)
    return section


def section_folder(study: Study, part: str) -> Path:
    return study.folder / "validation" / part


def kept_sections(study: Study) -> list[Section]:
    """Read the sections that were computed so far, in the order of the parts. Those that are not in the ledger's
    manifest are left out with a warning, and changed ones refused."""
    sections, strange = [], []
    for part in PARTS:
        folder = section_folder(study, part)
        if not (folder / SECTION).exists():
            continue
        if is_entered(study, folder, content_of(folder)):
            sections.append(read_section(folder))
        else:
            strange.append(part)
    if strange:
        said = f"evidence ({', '.join(strange)}): not in the ledger; left out, and made again by diffcredit validate"
        warnings.warn(said, DiffcreditWarning, stacklevel=2)
    return sections


def _ordered(study: Study, parts: Sequence[str]) -> list[str]:
    for name in parts:
        if name not in PARTS:
            raise UserError(f"part {name!r}: accepted: {', '.join(PARTS)}")
    return [name for name in PARTS if (name in parts if parts else name != "surrogates" or study.surrogates.names)]
