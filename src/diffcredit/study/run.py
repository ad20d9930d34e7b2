"""A whole run of a study: prepare, check the pruned model, measure surrogates, evaluate until the rule is reached,
publish the credits."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffcredit.errors import DiffcreditWarning
from diffcredit.execution import Executor
from diffcredit.ledger import Evaluation
from diffcredit.study.evaluating import evaluate_design
from diffcredit.study.observer import Observer
from diffcredit.study.pilot import noise_warnings, signals
from diffcredit.study.published import publish
from diffcredit.study.quality import Comparison, compare, complaints

if TYPE_CHECKING:
    from diffcredit.study.study import Study


@dataclass(frozen=True)
class Run:
    """The result of a run: the ``evaluations`` made by it, the ``reason`` why it made no more, the ``quality`` of the
    pruned model beside the base model, and each property's ratio of signal to noise (``signals``)."""

    evaluations: tuple[Evaluation, ...]
    reason: str
    quality: tuple[Comparison, ...]
    signals: Mapping[str, float]

    @property
    def failed(self) -> tuple[Evaluation, ...]:
        return tuple(each for each in self.evaluations if each.status == "failed")


def run_study(study: "Study", executor: Executor, observer: Observer) -> Run:
    """Run ``study`` from its present state, together with other processes that run it. Every evaluation is in the
    ledger before the observer is called with it, so an interrupt loses nothing."""
    observer.on_contributions(study.contributions)
    study.prepare()
    quality = compare(study)
    observer.on_quality(quality)
    _warn(complaints(study, quality))
    before = noise_warnings(study)
    _warn(before)
    if study.surrogates.names:
        study.surrogates.prepare()
        observer.on_surrogates(study.surrogates.without())
    made = []
    for evaluation in evaluate_design(study.recipe, executor):
        observer.on_evaluation(evaluation)
        made.append(evaluation)
    _warn(each for each in noise_warnings(study) if each not in before)
    publish(study)
    return Run(tuple(made), why_enough(study), tuple(quality), signals(study))


def _warn(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        warnings.warn(sentence, DiffcreditWarning, stacklevel=3)


def why_enough(study: "Study") -> str:
    """Return the reason why a finished study needs no more evaluations."""
    schedule = study.schedule()
    schedule.catch_up()
    status = schedule.rule_status()
    return status.reason() if status.reached else "all coalitions of the design are evaluated"
