"""A study's baselines: what they are given, and their credits, kept once they are computed."""

import dataclasses
import inspect
import json
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from diffcredit.baselines import BASELINES, BaselineCredits, Evidence, baseline_credits
from diffcredit.baselines.registry import one_number_each
from diffcredit.baselines.selection import possible_baselines, warn_left_out
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.execution.threads import limited_threads
from diffcredit.ledger import ChangedRecord, PropertyRecord
from diffcredit.study.identity import generated_identity
from diffcredit.study.manifest import enter_file, is_entered
from diffcredit.util.arrays import FloatArray
from diffcredit.util.artifacts import canonical_json, fingerprint, write_text
from diffcredit.util.plugins import settings_of

if TYPE_CHECKING:
    from diffcredit.study.study import Study

MOST_NAMES = 3  # of files in a warning
# of a kept file; one without some of them is an earlier version's
KEYS = {"study", "made_from", "method", "options", "title", "category", "property", "higher_is_better", "rows"}


@dataclasses.dataclass(frozen=True, eq=False)
class StudyBaseline:
    """One method's credits in a study, for one property; ``property`` is None for a method that looks at none."""

    title: str
    category: str
    property: str | None
    found: BaselineCredits
    higher_is_better: bool = True

    @property
    def helpfulness(self) -> FloatArray:
        """(n,) the credits such that who helps most has the highest."""
        return helpfulness(self.found.credits, self.higher_is_better)


def run_baselines(study: "Study", wanted: Sequence[Mapping[str, Any]] = ()) -> list[StudyBaseline]:
    """Return the credits of every method, computed or found. Methods that this study cannot have are one error where
    they were wanted by name, before anything is computed; where all were wanted, they are left out with a warning."""
    study.check_recorded()
    possible, results = possible_baselines(study, wanted), []
    records, evidence = study.prepared.property_records(), study_evidence(study)
    for done, (name, options, baseline) in enumerate(possible):
        study.progress("baselines", done, len(possible))
        try:
            results += _of_method(study, name, options, baseline, records, evidence)
        except UserError as error:
            if wanted:
                where = f"{study.file}: "
                raise UserError(where + str(error).removeprefix(where)) from error
            warn_left_out(name, error)
    study.progress("baselines", len(possible), len(possible))
    return results


def kept_baselines(study: "Study") -> list[StudyBaseline]:
    """Return the baselines that earlier runs computed for the study as it is now. Files that are not in the ledger's
    manifest are left out with a warning, and changed ones refused."""
    results, strange = [], []
    for file in sorted((study.folder / "baselines").glob("*.json")):
        if is_entered(study, file, file.read_bytes()):
            results += _kept(file, study)[1]
        else:
            strange.append(file.name)
    if strange:
        more = f" and {len(strange) - MOST_NAMES} more" if len(strange) > MOST_NAMES else ""
        named = f"{', '.join(strange[:MOST_NAMES])}{more}"
        said = f"{named}: not in the ledger; left out, and made again by diffcredit baselines"
        warnings.warn(said, DiffcreditWarning, stacklevel=2)
    order = {name: place for place, name in enumerate(BASELINES)}
    return sorted(results, key=lambda each: (order.get(each.found.method, len(order)), each.found.name))


def _of_method(
    study: "Study",
    name: str,
    options: Mapping[str, Any],
    baseline: Any,
    records: Sequence[PropertyRecord],
    evidence: Evidence,
) -> list[StudyBaseline]:
    results: list[StudyBaseline] = []
    refused: UserError | None = None
    changed = changed_options(baseline, options)
    properties = zip(study.prepared.properties, records, strict=True)
    for prop, record in properties if getattr(baseline, "of_property", False) else [(None, None)]:
        # named by what names its rows, so that what is computed anew replaces them and none is there twice
        identity = fingerprint([_identity(study), name, changed, prop.name if prop else None])
        file = study.folder / "baselines" / f"{name.rpartition(':')[2]}-{identity[:12]}.json"
        seen = [record.fingerprint, record.higher_is_better] if record else None
        made_from = fingerprint([settings_of(baseline, options), seen])
        kept_from, kept = _usable(file, study)
        if kept_from != made_from:
            try:
                with limited_threads(study.config.threads):
                    found = baseline_credits(baseline, dataclasses.replace(evidence, prop=prop))
            except UserError as error:  # it may suit another property
                refused = error
                continue
            content = {
                "study": _identity(study),
                "made_from": made_from,
                "method": name,  # the name that a plug-in gives itself may be another's
                "options": changed,
                "title": baseline.title,
                "category": baseline.category,
                "property": prop.name if prop else None,
                "higher_is_better": record.higher_is_better if record else True,
                "rows": [
                    {"how": each.how, "credits": each.credits.tolist(), "chosen": each.chosen, "seconds": each.seconds}
                    for each in found
                ],
            }
            text = canonical_json(content)
            enter_file(study, file, text.encode())
            write_text(file, text)
            kept = _read(content, study)
        results += kept
    if refused is not None and not results:
        raise refused
    return results


def changed_options(baseline: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``options`` that differ from the defaults, as the method understood them."""
    values, defaults = {**options, **settings_of(baseline, options)}, inspect.signature(type(baseline)).parameters
    return {key: values[key] for key in options if key not in defaults or values[key] != defaults[key].default}


def study_evidence(study: "Study", prop: Any = None) -> Evidence:
    """Return what the study has for its baselines."""
    prepared = study.prepared
    came_trained = prepared.family.trained
    return Evidence(
        contributions=study.contributions,
        generated=prepared.generated_images(),
        prop=prop,
        seed=study.config.seed,
        extractors=prepared.extractors,
        load_model=lambda: prepared.base,
        start=None if came_trained else prepared.start_and_seed,
        # the methods take the models one after the other, each several times
        replicate=None if came_trained else lru_cache(maxsize=1)(prepared.replicate),
        sampling=study.config.sampling,
        training=study.config.model.train,
        folder=study.folder / "baselines",
        progress=study.progress,
    )


def helpfulness(credits: Sequence[float] | FloatArray, higher_is_better: bool) -> FloatArray:
    """Return credits such that who helps most has the highest: turned round where less of the property is better."""
    return np.asarray(credits, dtype=np.float64) * (1 if higher_is_better else -1)


def _identity(study: "Study") -> str:
    return generated_identity(study.prepared.base_identity, study.config.sampling)


def _usable(file: Path, study: "Study") -> tuple[str | None, list[StudyBaseline]]:
    """Return :func:`_kept` of a file that is as it was entered in the ledger; of another one, nothing."""
    try:
        if not file.exists() or not is_entered(study, file, file.read_bytes()):
            return None, []
    except ChangedRecord as error:
        warnings.warn(f"{error}: it is computed anew", DiffcreditWarning, stacklevel=4)
        return None, []
    return _kept(file, study)


def _kept(file: Path, study: "Study") -> tuple[str | None, list[StudyBaseline]]:
    """Return what a method's file was made from, and its rows; None and no rows where it must be computed again.

    That is where the file is missing or damaged, or belongs to another study or an earlier version.
    """
    if not file.exists():
        return None, []
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not content.keys() >= KEYS or content["study"] != _identity(study):
            return None, []
        return content["made_from"], _read(content, study)
    except (ValueError, KeyError, TypeError, AttributeError, UserError) as error:
        said = f"{file}: damaged ({type(error).__name__}: {error}); left out, and computed anew when it is asked for"
        warnings.warn(said, DiffcreditWarning, stacklevel=3)
        return None, []


def _read(content: Mapping[str, Any], study: "Study") -> list[StudyBaseline]:
    rows = []
    for row in content["rows"]:
        credits = one_number_each(row["credits"], study.contributions.contributors, "credits")
        found = BaselineCredits(
            content["method"], row["how"], credits, row["chosen"], row["seconds"], content["options"]
        )
        about = (content["title"], content["category"], content["property"])
        rows.append(StudyBaseline(*about, found, content["higher_is_better"]))
    return rows
