"""The credits that a study has published, entered in the ledger by whoever shows them first.

Credits follow from a *basis*: values of evaluations, the terms of the study file, surrogates. The same basis gives the
same credits again, up to rounding. So whoever estimates them later compares: where they differ, something that decides
credits was changed, and nothing is shown.
"""

import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from diffcredit.credit import Credits
from diffcredit.credit.estimate import ESTIMATOR
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.execution.tasks import utc_now
from diffcredit.ledger import ChangedRecord, Entry, Evaluation
from diffcredit.study.manifest import terms_of
from diffcredit.util.arrays import FloatArray
from diffcredit.util.artifacts import fingerprint

if TYPE_CHECKING:
    from diffcredit.study.study import Study

KIND = "credits"
CONFIDENCE = 0.95  # of the intervals that are published
ROUNDING = 1e-3  # of an interval's half width: other machines and versions of packages round otherwise


def publish(study: "Study") -> None:
    """Enter the study's present credits and verdicts, unless they are published. A study without credits yet has
    nothing to publish."""
    before = basis(study, study.evaluations())
    try:
        with warnings.catch_warnings(action="ignore", category=DiffcreditWarning):  # whoever shows them will warn
            credits = study.credits()
            verdicts = study.verdicts(credits)
    except UserError:
        return
    evaluations = study.evaluations()
    if basis(study, evaluations) != before:  # another driver is at work, and will publish
        return
    properties = {name: _content(each, verdicts[name].level) for name, each in credits.items()}
    content = {"estimator": ESTIMATOR, "basis": before, "properties": properties}
    with study.ledger(create=False) as ledger:
        entry = Entry(KIND, KIND, content, utc_now())
        ledger.enter(study.name, entry, lambda known, evaluated: not _last(known, before))


def published(study: "Study") -> str:
    """Return when the study's present credits were published; nothing if they were not."""
    with study.ledger(create=False) as ledger:
        known = ledger.entries(study.name, KIND)
    evaluations = study.evaluations()
    if last := _last(known, basis(study, evaluations)):
        return last.entered
    _refuse_lost_surrogates(study, known, evaluations)
    return ""


def check_published(study: "Study", credits: Mapping[str, Credits], evaluations: Sequence[Evaluation]) -> None:
    """Refuse credits that are not those which were published on the same basis by the same estimator."""
    with study.ledger(create=False) as ledger:
        known = ledger.entries(study.name, KIND)
    last = _last(known, basis(study, evaluations)) if known else None
    if last is None:
        _refuse_lost_surrogates(study, known, evaluations)
        return
    properties = last.content.get("properties", {})
    if not isinstance(properties, dict):  # who wrote the chain anew may have written anything
        properties = dict.fromkeys(credits)
    differing = [name for name, each in credits.items() if name in properties and _differ(each, properties[name])]
    if differing:
        raise ChangedRecord(
            f"{study.file}: the record was changed: the credits of {', '.join(differing)} that were published on "
            f"{last.entered[:10]} no longer follow from the ledger; something that decides them is not as it was"
        )


def _refuse_lost_surrogates(study: "Study", known: Sequence[Entry], evaluations: Sequence[Evaluation]) -> None:
    """Refuse credits of the evaluations alone where surrogates corrected those that were published of the same ones:
    without any other trace, these are then not what they were, such as a plug-in's code."""
    names = study.surrogates.names
    if names and (last := _last(known, basis(study, evaluations, names))):
        raise ChangedRecord(
            f"{study.file}: surrogates ({', '.join(names)}): the credits that were published on {last.entered[:10]} "
            "follow from them, and they are not as they were measured then; restore their code and the version of "
            "diffcredit, or have diffcredit run measure them again"
        )


def _last(known: Sequence[Entry], basis: str) -> Entry | None:
    """Return the last publication, if it was by the same estimator on this ``basis``."""
    same = bool(known) and (known[-1].content.get("estimator"), known[-1].content.get("basis")) == (ESTIMATOR, basis)
    return known[-1] if same else None


def basis(study: "Study", evaluations: Sequence[Evaluation], surrogates: Sequence[str] | None = None) -> str:
    """Return the hash of what the study's credits follow from; with these ``surrogates``, or those that are ready."""
    values = hashlib.sha256()
    for each in evaluations:
        if each.status == "done":
            task = f"{each.coalition} {each.replicate} {each.purpose}"
            values.update(f"{task} {sorted(each.measured.items())}\n".encode())
    if surrogates is None:
        surrogates = study.surrogates.names if study.surrogates.when_ready(evaluations) else []
    return fingerprint([terms_of(study), list(surrogates), values.hexdigest()])


def _content(credits: Credits, verdict: str) -> dict[str, Any]:
    numbers = {"values": credits.values, "low": credits.low, "high": credits.high, "help": credits.help()}
    return {
        "method": credits.method,
        "verdict": verdict,
        "contributors": list(credits.names),
        **{name: [x if math.isfinite(x) else None for x in each.tolist()] for name, each in numbers.items()},
    }


def _differ(credits: Credits, published: Any) -> bool:
    try:
        if (list(credits.names), credits.method) != (published["contributors"], published["method"]):
            return True
        widths = (credits.high - credits.low) / 2
        allowed = ROUNDING * np.where(np.isfinite(widths), widths, 0.0) + 1e-9 * np.abs(credits.values).max()
        return not all(_agree(getattr(credits, name), published[name], allowed) for name in ("values", "low", "high"))
    except (KeyError, TypeError, ValueError, OverflowError):
        return True


def _agree(now: FloatArray, published: Any, allowed: FloatArray) -> bool:
    """Return whether numbers agree; those that are not finite were published as None."""
    then = np.array(published, dtype=np.float64)
    known = np.isfinite(now)
    return bool((known == np.isfinite(then)).all() and (np.abs(now - then)[known] <= allowed[known]).all())
