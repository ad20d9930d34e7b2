"""A study: from contributions, a model, a retraining, properties and a design to credits.

>>> study = Study.load("study.yaml")          # doctest: +SKIP
>>> study.plan()                              # what it will cost
>>> study.run(workers=2)                      # train, prune, evaluate; resumes where it was stopped
>>> study.credits()["colourfulness"]          # Shapley values with intervals

Everything a study makes is kept, in its ledger or its artifact cache, and found there by the next run. A study can be
stopped at any moment.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions, House, NearCopies, load_contributions, near_copies_of
from diffcredit.contributions.loading import original_images
from diffcredit.contributions.near_copies.looks import installed
from diffcredit.contributions.sources import AUTO, SOURCES
from diffcredit.credit import Credits
from diffcredit.credit.estimate import DEFAULT, method_of
from diffcredit.errors import DiffcreditWarning, UserError, located
from diffcredit.execution import Executor
from diffcredit.ledger import Evaluation, Ledger, PropertyRecord, Readings
from diffcredit.study.config import StudyConfig, read_config, require_plugins
from diffcredit.study.crediting import estimate_all
from diffcredit.study.data_section import HouseSection, SourceSection
from diffcredit.study.evaluating import evaluate_design
from diffcredit.study.manifest import check_terms
from diffcredit.study.observer import Observer
from diffcredit.study.places import check_places
from diffcredit.study.published import CONFIDENCE, check_published
from diffcredit.study.recipe import Recipe
from diffcredit.study.recorded import check_recorded
from diffcredit.study.reference import Reference, reference_of
from diffcredit.study.schedule import Schedule
from diffcredit.study.sections import RetrainingSection
from diffcredit.study.surrogates import StudySurrogates
from diffcredit.study.workers import Workers, make_executor
from diffcredit.util.cache import ArtifactCache
from diffcredit.util.events import stage
from diffcredit.util.plugins import build
from diffcredit.util.progress import Progress, silent
from diffcredit.util.store import Store, is_url

if TYPE_CHECKING:
    from diffcredit.credit.verdicts import Verdict
    from diffcredit.execution.keeping import Kind
    from diffcredit.study.memory import Memory
    from diffcredit.study.plan import Plan
    from diffcredit.study.prepared import Prepared
    from diffcredit.study.run import Run
    from diffcredit.study.status import Status


class Study:
    """Everything that fixes the credits of one study file, and what has been computed so far. ``progress(what, done,
    total)`` is called during long work. An object belongs to one thread; several processes and machines may run the
    same study."""

    def __init__(self, config: StudyConfig, file: Path, progress: Progress = silent) -> None:
        self.config, self.file, self.progress = config, file, progress
        self.name, self.folder = config.name, config.results_folder
        self.compared = False  # with the ledger, by :meth:`check_recorded`
        self.checked = False  # by :func:`diffcredit.study.checks.check`, which rehearses every retraining

    @classmethod
    def load(cls, path: str | Path, progress: Progress = silent) -> Self:
        """Read a study file, or the ``study.yaml`` of a folder. One that would write elsewhere than it may is refused;
        see :mod:`diffcredit.study.places`."""
        file = Path(path) / "study.yaml" if Path(path).is_dir() else Path(path)
        config = read_config(file)
        check_places(config, file)
        return cls(config, file, progress)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the settings; a worker finds in the cache what was prepared."""
        return Study, (self.config, self.file)

    # Its parts.
    @cached_property
    def contributions(self) -> Contributions:
        """Who gave which images."""
        section, where = self.config.contributions, f"{self.file}: contributions"
        source, house = self._source, section.house
        if isinstance(house, HouseSection):
            house = House(house.path, _source_of(house, f"{where}.house", self.file.parent))
        rule = None if section.near_copies is None else section.near_copies.rule
        with stage("contributions"), located(where):
            return load_contributions(
                source=source,
                **section.common,
                house=house,
                near_copies=rule,
                seed=self.config.data_seed,
                progress=self.progress,
            )

    @cached_property
    def near_copies(self) -> NearCopies | None:
        """The near-copies among the contributions: those that the study file's rule was applied to, or else what there
        is; None where that needs a package that is missing."""
        if self.contributions.near_copies is not None:
            return self.contributions.near_copies
        if not installed():
            return None
        with stage("near-copies"), located(f"{self.file}: contributions"):
            return near_copies_of(self.contributions, progress=self.progress)

    @cached_property
    def _source(self) -> Any:
        return _source_of(self.config.contributions, f"{self.file}: contributions", self.file.parent)

    def original_images(self, names: Sequence[str], resolution: int) -> dict[str, NDArray[np.uint8]]:
        """Return contributions by their names as they were given, (resolution, resolution, 3) each; those that are gone
        are left out."""
        section = self.config.contributions
        with located(f"{self.file}: contributions"):
            return original_images(names, section.path, self._source, section.contributor, resolution)

    @cached_property
    def reference(self) -> Reference:
        """The reference that contributors are compared with: the value of a property without any of them."""
        return reference_of(self.config)

    @cached_property
    def cache(self) -> ArtifactCache:
        """The artifact cache: in the results folder, or where ``artifacts`` says (copies, if that is a URL)."""
        place = self.config.artifacts
        if place is not None and is_url(place):
            return ArtifactCache(self.folder, Store(place), self.progress)
        return ArtifactCache(self.folder if place is None else Path(place), None, self.progress)

    @cached_property
    def prepared(self) -> "Prepared":
        """The base model, its images, fitted properties: made on first use, once all plug-ins are allowed."""
        require_plugins(self.config, self.file)
        from diffcredit.study.prepared import Prepared  # brings torch, which reading a ledger does not need

        return Prepared(self)

    @cached_property
    def recipe(self) -> Recipe:
        """The study's own way from a coalition to its values."""
        return Recipe(self, self.config.retraining)

    def recipe_with(self, section: RetrainingSection, evaluations: int, keep: "Kind | None" = None) -> Recipe:
        """Return a recipe with another retraining, and ``evaluations`` of the same design."""
        return Recipe(self, section, evaluations, keep)

    @cached_property
    def surrogates(self) -> StudySurrogates:
        """The cheap stand-ins for the properties; none where the study file names none."""
        return StudySurrogates(self)

    # Its actions.
    def plan(self, workers: int | None = None) -> "Plan":
        """Estimate what is left to do and how long it takes, from a few timed steps on this machine."""
        from diffcredit.study.plan import make_plan

        return make_plan(self, workers)

    def memory(self) -> "Memory | None":
        """Estimate the memory that the study needs on its device, before its model is loaded; None for a model of your
        own make."""
        from diffcredit.study.memory import study_memory

        return study_memory(self)

    def run(
        self, executor: Executor | None = None, *, workers: int | None = None, observer: Observer | None = None
    ) -> "Run":
        """Run the study from its present state until its stopping rule is reached. ``executor`` decides where
        evaluations run; by default, ``workers`` processes on this machine."""
        from diffcredit.study.run import run_study

        return run_study(self, executor or make_executor(self, Workers(workers)), observer or Observer())

    def evaluate(self, executor: Executor) -> Iterator[Evaluation]:
        """Evaluate the design until its stopping rule is reached, and yield each evaluation once it is recorded. This
        is the part of :meth:`run` that takes long, for callers who watch evaluations themselves."""
        self.prepare()
        self.surrogates.prepare()
        yield from evaluate_design(self.recipe, executor)

    def status(self) -> "Status":
        """Return how far the study is, from its ledger. To look repeatedly, use :class:`.status.StatusReader`."""
        from diffcredit.study.status import StatusReader

        return StatusReader(self).read()

    def validate(
        self, parts: Sequence[str] = (), properties: Sequence[str] = (), *, executor: Executor | None = None
    ) -> Any:
        """Test the study's credits against models retrained from scratch; without an ``executor`` nothing is retrained.
        See :func:`diffcredit.validation.validate.validate`."""
        # found by name, because a room imports only rooms above it and validation is below
        validation = import_module("diffcredit.validation.validate")
        return validation.validate(self, parts, properties, executor=executor)

    def payout(
        self,
        policy: str | Path | None = None,
        *,
        pool: Any = None,
        period: str | None = None,
        balances: str | Path | None = None,
        despite: str = "",
    ) -> Any:
        """Divide a ``pool`` of money among the contributors by a policy (None: the study file's), and record that in
        the ledger; return a :class:`diffcredit.payout.records.Payout`.

        ``pool`` is a decimal or its text; ``balances`` a CSV of opening balances. ``despite`` is the reason for paying
        by credits whose verdict is below what the policy asks for. A period is paid once.
        """
        # found by name, like validate
        paying = import_module("diffcredit.payout.paying")
        places = (None if place is None else Path(place) for place in (policy, balances))
        return paying.pay(self, next(places), pool=pool, period=period, balances=next(places), despite=despite)

    def prepare(self) -> None:
        """Make what every evaluation of the study's recipe starts from, and register it in the ledger."""
        self.recipe.prepare()

    def schedule(self) -> Schedule:
        """Return the study's tasks, with those that its ledger has recorded."""
        return self.recipe.schedule()

    def evaluations(self, status: str | None = None, purpose: str | None = None) -> list[Evaluation]:
        """Return the evaluations of the study's own recipe."""
        return self.recipe.evaluations(status, purpose)

    def credits(
        self, method: str | None = None, confidence: float = CONFIDENCE, *, corrected: bool = True
    ) -> dict[str, Credits]:
        """Return each property's credits. A property without enough values is left out with a warning.

        ``method``: None for the design's own, which is the default method wherever the design allows it.
        ``corrected``: surrogates' credits corrected by the evaluations, where the study has surrogates and the method
        is the default one. Otherwise the credits are those of the evaluations alone, as plans need them: only then the
        study file may say something else than the ledger (:mod:`diffcredit.study.manifest`).
        """
        self.check_recorded()
        if corrected:
            check_terms(self)
        as_published = (method, confidence, corrected) == (None, CONFIDENCE, True)
        with self.ledger(create=False) as ledger:
            evaluations = ledger.evaluations(self.name, self.recipe.name)
            better = {record.name: record.higher_is_better for record in self.measured(ledger)}
            contributors = ledger.settings(self.name)["contributors"]
        method = method or method_of(self.config.design.distribution)
        corrected = corrected and method == DEFAULT
        surrogates = self.surrogates.when_ready(evaluations) if corrected else None
        credits, reasons = estimate_all(evaluations, better, self.config, method, confidence, surrogates, contributors)
        if as_published:
            check_published(self, credits, evaluations)
        if corrected and surrogates is None:
            warnings.warn(
                f"surrogates ({', '.join(self.surrogates.names)}): not measured at all coalitions yet, so these are "
                "the credits of the evaluations alone; diffcredit run measures them",
                DiffcreditWarning,
                stacklevel=2,
            )
        if not credits:
            raise UserError(f"{self.file}: no credits yet: {'; '.join(dict.fromkeys(reasons.values()))}")
        for name, reason in reasons.items():
            warnings.warn(f"{name}: no credits: {reason}", DiffcreditWarning, stacklevel=2)
        return {name: replace(each, higher_is_better=better[name]) for name, each in credits.items()}

    def verdicts(self, credits: Mapping[str, Credits] | None = None) -> dict[str, "Verdict"]:
        """Return what may be done with each property's ``credits`` (None: :meth:`credits`), with the reason; see
        :mod:`diffcredit.validation.verdicts`."""
        # found by name, like validate
        validation = import_module("diffcredit.validation.verdicts")
        return validation.study_verdicts(self, self.credits() if credits is None else credits)

    # Its record.
    def measured(self, ledger: Ledger) -> list[PropertyRecord]:
        """Return the properties that the ledger has values of, without those that the study file has retired."""
        return [record for record in ledger.properties(self.name) if record.name not in self.config.retired]

    def check_recorded(self, *, pixels: bool = True) -> None:
        """Refuse a study file that no longer describes what its ledger has recorded. Whatever reads the ledger calls it
        first; see :mod:`diffcredit.study.recorded`."""
        check_recorded(self, pixels=pixels)

    @cached_property
    def _readings(self) -> Readings:
        """What was read of its ledger, however often that is opened."""
        return Readings()

    def ledger(self, *, create: bool = True) -> Ledger:
        """Open the study's ledger, to be closed by ``with``."""
        place = self.config.ledger or self.folder / "ledger.db"
        return Ledger.open(place, create=create, readings=self._readings)


def _source_of(section: SourceSection, where: str, beside: Path) -> Any:
    """Return the source of images that a section of the study file names."""
    if section.source == AUTO:
        return AUTO
    return build(section.source, section.options, SOURCES, where=where, beside=beside)
