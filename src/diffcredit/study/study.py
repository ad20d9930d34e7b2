"""The pipeline: contributions → base model → retraining → properties → evaluations → credits.

Every stage is made on first use, kept in the study's results folder and found there by the next run: a study
can be cut off at any moment and taken up again.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from diffcredit.contributions import Contributions, load_contributions
from diffcredit.contributions.sources import AUTO, SOURCES
from diffcredit.credit import Credits, KnownSurrogate, estimate
from diffcredit.credit.estimate import DEFAULT, method_of
from diffcredit.errors import DiffcreditWarning, UserError, located
from diffcredit.execution import Evaluator, Executor, Task
from diffcredit.execution.driver import Driver
from diffcredit.ledger import Evaluation, Ledger, NoLedger, PropertyRecord, RecipeRecord, game_of
from diffcredit.study.config import RetrainingSection, StopSection, StudyConfig, read_config
from diffcredit.study.schedule import Schedule, studied
from diffcredit.study.surrogates import StudySurrogates
from diffcredit.util.arrays import BoolArray
from diffcredit.util.events import stage
from diffcredit.util.plugins import build
from diffcredit.util.progress import Progress, silent
from diffcredit.util.store import Store, is_url

if TYPE_CHECKING:
    from diffcredit.diffusion.protocol import DiffusionModel
    from diffcredit.execution.shipping import WorkerFiles
    from diffcredit.features.extractors import Extractors
    from diffcredit.retraining.protocol import Retraining


class Study:
    """Contributions, a model, a retraining, properties and a design: everything that fixes the credits."""

    def __init__(self, config: StudyConfig, file: Path, progress: Progress = silent) -> None:
        self.config, self.file, self.progress = config, file, progress
        self.name, self.recipe, self.folder = config.name, config.retraining.recipe, config.results_folder

    @classmethod
    def load(cls, path: str | Path, progress: Progress = silent) -> Self:
        """The study of a study file, or of a folder with a ``study.yaml``."""
        file = Path(path) / "study.yaml" if Path(path).is_dir() else Path(path)
        return cls(read_config(file), file, progress)

    # 1. Who gave what.
    @cached_property
    def contributions(self) -> Contributions:
        section, where = self.config.contributions, f"{self.file}: contributions"
        source = section.source
        if source != AUTO:
            source = build(source, section.options, SOURCES, where=where, beside=self.file.parent)
        with stage("contributions"), located(where):
            return load_contributions(source=source, **section.common, seed=self.config.seed)

    # 2. The model trained on all of it.
    @cached_property
    def base(self) -> "DiffusionModel":
        with stage("base model"):
            return self._preparation.base_model(self)

    # 3. The way to a coalition's model.
    @cached_property
    def retraining(self) -> "Retraining":
        with stage("retraining"):
            return self._preparation.prepared_retraining(self)

    # 4. What is measured on a model.
    @cached_property
    def properties(self) -> list[Any]:
        with stage("properties"):
            return self._preparation.fitted_properties(self)

    @cached_property
    def extractors(self) -> "Extractors":
        """What properties see images through: each loaded once."""
        return self._preparation.study_extractors(self)

    # 5. What stands in for the properties, if anything does.
    @cached_property
    def surrogates(self) -> StudySurrogates:
        return StudySurrogates(self)

    # 6. Which coalitions are evaluated: the endpoints, then the design's, until the stopping rule is reached.
    def schedule(self) -> Schedule:
        """The study's tasks, with what its ledger has of them."""
        return self._schedule_and_mark()[0]

    def _schedule_and_mark(self) -> tuple[Schedule, int]:
        """The schedule, and the ledger's mark up to which it knows what was recorded."""
        evaluations: list[Evaluation] = []
        records: list[PropertyRecord] = []
        settings: dict[str, Any] = {}
        known, mark = None, 0
        with suppress(NoLedger), self.ledger(create=False) as ledger:
            if settings := ledger.studies().get(self.name, {}):
                records = ledger.properties(self.name)
                if self.recipe in [recipe.name for recipe in ledger.recipes(self.name)]:
                    evaluations, mark = ledger.evaluations_since(self.name, self.recipe, 0)
                    known = self._known_surrogates()
        n = len(settings["contributors"]) if settings else self.contributions.n
        properties = studied(self.config, records)
        schedule = Schedule(
            self.config, n, properties, lambda some: credits_of(some, properties, self.config, surrogates=known)[0]
        )
        for evaluation in evaluations:
            schedule.record(evaluation)
        return schedule, mark

    # 7. Evaluations, each in the ledger before anybody hears of it.
    def run(self, executor: Executor) -> Iterator[Evaluation]:
        """Evaluates what the ledger lacks, together with whoever else runs the study, and yields each evaluation that
        was made here once it is recorded."""
        self.prepare()
        self.surrogates.prepare()
        schedule, mark = self._schedule_and_mark()
        with self.ledger() as ledger:
            driver = Driver(ledger, self.name, self.recipe, schedule.record, mark)
            for evaluation in driver.run(executor, self.evaluator, schedule.pending()):
                schedule.tell(self.progress)
                yield evaluation

    def evaluate(self, executor: Executor, tasks: Sequence[Task], what: str) -> Iterator[Evaluation]:
        """Evaluates what the ledger lacks of ``tasks`` beside the design's; ``what`` names them to the progress."""
        self.prepare()
        tried: set[tuple[str, int]] = set()
        with self.ledger() as ledger:
            recorded, mark = ledger.evaluations_since(self.name, self.recipe, 0)
            done = {each.key for each in recorded if each.status == "done"}
            tried |= done & {task.key for task in tasks}
            driver = Driver(ledger, self.name, self.recipe, lambda each: tried.add(each.key), mark)
            pending = (task for task in tasks if task.key not in tried)
            for evaluation in driver.run(executor, self.evaluator, pending):
                made = sum(task.key in tried for task in tasks)
                self.progress(what, made, len(tasks))
                yield evaluation

    def keep_again(self, executor: Executor, tasks: Sequence[Task], what: str) -> Iterator[Evaluation]:
        """Makes the models of evaluations that are done once more, to keep what is to be kept of them; what is recorded
        of them stands, and nothing is added."""
        self.prepare()
        self.progress(what, 0, len(tasks))
        for made, evaluation in enumerate(executor.run(partial(self.evaluator, ()), iter(tasks)), 1):
            self.progress(what, made, len(tasks))
            yield evaluation

    def prepare(self) -> None:
        """Makes what every evaluation starts from, and enters it in the ledger, or checks that it is what was there."""
        self._preparation.share_models(self)
        self._preparation.check(self)
        with self.ledger() as ledger:
            settings = self._preparation.recipe_settings(self)
            ledger.register_study(self.name, {"contributors": list(self.contributions.contributors)})
            ledger.check_recipe_settings(self.name, self.recipe, settings)  # before the training, not after
            self._preparation.check_not_lost(self, ledger)
            ledger.register_recipe(self.name, self._preparation.study_recipe(self))
            for record in self._preparation.property_records(self):
                ledger.register_property(self.name, record)

    # 8. Credits from all evaluations so far.
    def credits(
        self, method: str | None = None, confidence: float = 0.95, *, corrected: bool = True
    ) -> dict[str, Credits]:
        """Each property's credits. One without enough values is left out with a warning; all, an error.

        ``method``: None for the design's own, which is the default wherever that can be had from it.
        ``corrected``: the study's surrogates' credits, corrected by the evaluations; or else those of the evaluations
        alone, as with every other method than the default.
        """
        with self.ledger(create=False) as ledger:
            evaluations = ledger.evaluations(self.name, self.recipe)
            names = [record.name for record in ledger.properties(self.name)]
        method = method or method_of(self.config.design.distribution)
        corrected = corrected and method == DEFAULT
        surrogates = self._known_surrogates() if corrected else None
        if corrected and surrogates is None:
            warnings.warn(
                f"surrogates ({', '.join(self.surrogates.names)}): not measured yet, so these are the credits of the "
                "evaluations alone; diffcredit run measures them",
                DiffcreditWarning,
                stacklevel=2,
            )
        credits, reasons = credits_of(evaluations, names, self.config, method, confidence, surrogates)
        if not credits:
            raise UserError(f"{self.file}: no credits yet: {'; '.join(dict.fromkeys(reasons.values()))}")
        for name, reason in reasons.items():
            warnings.warn(f"{name}: no credits: {reason}", DiffcreditWarning, stacklevel=2)
        return credits

    def _known_surrogates(self) -> Callable[[str, BoolArray], Sequence[KnownSurrogate]] | None:
        """What stands in for the properties; None where it is still to be prepared, which only a run does."""
        return self.surrogates.known if self.surrogates.ready() else None

    def by(self, retraining: RetrainingSection, evaluations: int, *, keep: Literal["images"] | None = None) -> "Study":
        """The same study by another retraining, without surrogates: another recipe in the same ledger, with so many
        ``evaluations`` of the same design."""
        changes = {"retraining": retraining, "surrogates": (), "stop": StopSection(evaluations=evaluations)}
        config = self.config.model_copy(update=changes | ({"keep": keep} if keep else {}))
        other = Study(config, self.file, self.progress)
        for name in ("contributions", "base", "properties", "extractors"):  # which do not depend on it
            if name in vars(self):
                vars(other)[name] = vars(self)[name]
        return other

    # Where the record is, and what a worker needs.
    def evaluations(self, status: str | None = None, purpose: str | None = None) -> list[Evaluation]:
        """What the ledger has of the study's recipe; nothing where it does not know it yet."""
        with suppress(NoLedger), self.ledger(create=False) as ledger:
            if self.name in ledger.studies() and self.recipe in [each.name for each in ledger.recipes(self.name)]:
                return ledger.evaluations(self.name, self.recipe, status=status, purpose=purpose)
        return []

    @property
    def artifacts(self) -> Path:
        """The folder of ``models`` and of what is ``kept``; where these lie at a URL, of what was fetched from it."""
        place = self.config.artifacts
        return self.folder if place is None or is_url(place) else Path(place)

    @property
    def store(self) -> Store | None:
        """Where artifacts lie that machines without common folders share."""
        place = self.config.artifacts
        return Store(place) if place is not None and is_url(place) else None

    def ledger(self, *, create: bool = True) -> Ledger:
        return Ledger.open(self.config.ledger or self.folder / "ledger.db", create=create)

    def evaluator(self, names: Sequence[str] | None = None) -> Evaluator:
        """What makes evaluations, with all properties or those called so."""
        from diffcredit.execution.evaluator import ModelEvaluator

        self._preparation.check_unchanged(self)
        recipe = self._preparation.study_recipe(self)
        keeper = self._preparation.study_keeper(self, recipe)
        properties = [prop for prop in self.properties if names is None or prop.name in names]
        return ModelEvaluator(
            self.retraining, self.config.sampling, properties, self.config.seed, self.extractors, keeper
        )

    def kept_evaluator(self, names: Sequence[str], recipe: RecipeRecord) -> Evaluator:
        """What measures properties on what was kept of a recipe's evaluations."""
        from diffcredit.execution.kept_evaluator import KeptEvaluator

        self._preparation.check_unchanged(self)
        keeper = self._preparation.study_keeper(self, recipe)
        properties = [prop for prop in self.properties if prop.name in names]
        return KeptEvaluator(
            keeper, properties, self.extractors, self.config.sampling, self._preparation.model_loader(self)
        )

    def worker_files(self) -> "WorkerFiles":
        """What evaluators read, for workers on machines that do not see it."""
        from diffcredit.study.shipping import worker_files

        return worker_files(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """A study travels to a worker as its settings; the worker finds what was prepared in the folder."""
        return Study, (self.config, self.file)

    @property
    def _preparation(self) -> Any:
        from diffcredit.study import prepared as preparation  # brings torch, which reading a ledger does not need

        return preparation


def credits_of(
    evaluations: Sequence[Evaluation],
    properties: Iterable[str],
    config: StudyConfig,
    method: str | None = None,
    confidence: float = 0.95,
    surrogates: Callable[[str, BoolArray], Sequence[KnownSurrogate]] | None = None,
) -> tuple[dict[str, Credits], dict[str, str]]:
    """The credits of each property, and the reasons of those that have none.

    method: None for the design's own.
    surrogates: what stands in for a property at coalitions (m, n), for the default method.
    """
    method = method or method_of(config.design.distribution)
    credits, reasons = {}, {}
    for name in properties:
        game = game_of(evaluations, name)
        known = surrogates(name, game.coalitions) if surrogates and method == DEFAULT else ()
        try:
            credits[name] = estimate(
                game.coalitions,
                game.values,
                empty=game.empty[0] if game.empty else (),  # an untrained network: known without noise
                full=game.full,
                method=method,
                size_distribution=config.design.distribution,
                confidence=confidence,
                surrogate=known or None,
            )
        except UserError as error:
            reasons[name] = str(error)
    return credits, reasons
