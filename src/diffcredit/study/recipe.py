"""A recipe: one way from a coalition to its values.

It is a retraining with its settings, its starting weights, and the study's data, model, sampling and seed. A study has
its own recipe; validation compares it with others, such as models retrained from scratch. All share the study's ledger,
base model and properties, and the ledger never mixes them in one estimate.
"""

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from diffcredit.errors import located
from diffcredit.execution.threads import limited_threads
from diffcredit.ledger import Evaluation, Ledger, NoLedger, RecipeRecord
from diffcredit.ledger.purposes import REFERENCE_REPLICATES
from diffcredit.study import identity
from diffcredit.study.crediting import estimate_all
from diffcredit.study.reference import ADAPTED
from diffcredit.study.schedule import Schedule, studied
from diffcredit.study.sections import RetrainingSection, StopSection
from diffcredit.study.workers import worker_files
from diffcredit.util.artifacts import canonical_json, write_text
from diffcredit.util.events import stage
from diffcredit.util.plugins import build

if TYPE_CHECKING:
    from diffcredit.diffusion.model import DiffusionModel
    from diffcredit.execution import Evaluator
    from diffcredit.execution.keeping import Keeper, Kind
    from diffcredit.execution.shipping import WorkerFiles
    from diffcredit.retraining.base import Rehearsal, Retraining, RetrainingContext
    from diffcredit.study.study import Study


class Recipe:
    """One retraining of a study, pickled as its settings: a worker finds in the artifact cache what was prepared.

    ``evaluations`` is how many of the study's design to make (None: as the stopping rule says, for the study's own
    recipe). ``keep`` is what is kept of each evaluation (None: as the study file says).
    """

    def __init__(
        self,
        study: "Study",
        section: RetrainingSection,
        evaluations: int | None = None,
        keep: "Kind | None" = None,
    ) -> None:
        self.study, self.section, self.name = study, section, section.recipe
        self._count = evaluations
        self.keep: Kind = keep or study.config.keep

    def __reduce__(self) -> tuple[Any, ...]:
        return Recipe, (self.study, self.section, self._count, self.keep)

    @property
    def key(self) -> str:
        """The retraining's key in the study file: the study's own, or one that validation compares with it."""
        compared = self.study.config.compared
        return f"validation.retrainings.{compared.index(self.section)}" if self.section in compared else "retraining"

    # What fixes its numbers.
    @cached_property
    def settings(self) -> dict[str, Any]:
        """Everything that fixes an evaluation's images except its coalition and replicate, as the ledger keeps it."""
        study, model = self.study, self.study.prepared.model_settings
        data = identity.data_settings(study.config, study.contributions)
        retraining = identity.retraining_settings(self.section, self.build())
        return identity.recipe_settings(study.config, data, model, retraining)

    @property
    def record(self) -> RecipeRecord:
        """The ledger's record of the recipe. It names the starting weights, so reading it prepares the recipe."""
        return RecipeRecord(self.name, self.settings, self.retraining.weights)

    def recorded(self, ledger: Ledger) -> RecipeRecord | None:
        """Return the ledger's record of this recipe; None if it has none."""
        if self.study.name not in ledger.studies():
            return None
        return next((each for each in ledger.recipes(self.study.name) if each.name == self.name), None)

    # Its models.
    def build(self) -> "Retraining":
        """Build the retraining, not yet prepared."""
        from diffcredit.retraining import RETRAININGS
        from diffcredit.retraining.base import as_retraining

        section, file = self.section, self.study.file
        where = f"{file}: {self.key}"
        retraining = build(section.method, section.options, RETRAININGS, where=where, beside=file.parent)
        with located(where):
            return as_retraining(retraining, section.method)

    def rehearse(self, start: "DiffusionModel") -> "Rehearsal":
        """Return what the retraining would train, given the base model before its training, ``start``."""
        study, retraining = self.study, self.build()
        with located(f"{study.file}: {self.key}"):
            return retraining.rehearse(start, study.config.model.train, study.contributions)

    @property
    def context(self) -> "RetrainingContext":
        """Everything that the retraining starts from, the base model first."""
        from diffcredit.retraining.base import RetrainingContext

        study, prepared = self.study, self.study.prepared
        return RetrainingContext(
            base=prepared.base,
            contributions=study.contributions,
            training=study.config.model.train,
            seed=study.config.seed,
            folder=study.cache.folder,
            load=prepared.family.load,
            progress=study.progress,
        )

    @cached_property
    def retraining(self) -> "Retraining":
        """The retraining, ready to make coalitions' models."""
        study, settings = self.study, self.settings
        # the file that marks a prepared retraining; workers that find it need not wait for the lock
        mark = study.cache.path("retraining", identity.prepared_identity(settings), ".json")
        context = self.context  # not within the retraining's lock: a waiting process says if it waits for the base

        def prepare() -> "Retraining":
            retraining = self.build()
            timed = nullcontext() if mark.exists() else study.cache.timed(mark.stem)
            with limited_threads(study.config.threads), located(f"{study.file}: {self.key}"), timed:
                retraining.prepare(context)
            if not mark.exists():
                write_text(mark, canonical_json(settings["retraining"]))
            return retraining

        with stage("retraining"):
            return prepare() if mark.exists() else study.cache.made_once(mark.stem, "the retraining", prepare)

    def reference_model(self, replicate: int) -> "DiffusionModel":
        """Return the model of a reference that is no coalition's, by the ``replicate`` number of its evaluation."""
        study, prepared = self.study, self.study.prepared
        if replicate == REFERENCE_REPLICATES["pretrained"]:
            start = prepared.start()
            # what came is the pipeline, also where a trained adapter came with it
            return self.context.untrained(start) if study.config.model.family == ADAPTED else start
        # a plug-in need not have a start
        return self.context.untrained(getattr(self.retraining, "start", prepared.base))

    # Its evaluations.
    def prepare(self) -> None:
        """Make what every evaluation starts from and register it in the ledger, which refuses it if it differs."""
        from diffcredit.study.checks import check, check_not_lost
        from diffcredit.study.entered import enter_stated
        from diffcredit.study.manifest import enter_images, enter_terms
        from diffcredit.study.prepared import build_properties
        from diffcredit.study.recorded import check_recipe, register_properties

        study, prepared = self.study, self.study.prepared
        prepared.cache.share()
        check(study)
        with study.ledger() as ledger:
            ledger.register_study(study.name, {"contributors": list(study.contributions.contributors)})
            check_recipe(self, ledger)  # before the training, not after
            check_not_lost(self, ledger)
            enter_stated(study, ledger, [prop.name for prop in build_properties(study.config, study.file)])
            ledger.register_recipe(study.name, self.record)
            register_properties(study, ledger)
            enter_images(study, ledger, study.contributions)
            enter_terms(study, ledger)

    def evaluations(self, status: str | None = None, purpose: str | None = None) -> list[Evaluation]:
        """Return the recipe's evaluations; none where the ledger does not have it yet."""
        with suppress(NoLedger), self.study.ledger(create=False) as ledger:
            if self.recorded(ledger) is not None:
                return ledger.evaluations(self.study.name, self.name, status=status, purpose=purpose)
        return []

    def schedule(self) -> Schedule:
        """Return the tasks of the study's design for this recipe, with those that the ledger has recorded."""
        study, config = self.study, self.study.config
        n, evaluations, records, known, mark = None, [], [], None, 0
        with suppress(NoLedger), study.ledger(create=False) as ledger:
            if study.name in ledger.studies():
                n, records = len(ledger.settings(study.name)["contributors"]), ledger.properties(study.name)
                if self.recorded(ledger) is not None:
                    evaluations, mark = ledger.evaluations_since(study.name, self.name, 0)
                    # the study's own recipe alone has surrogates
                    known = study.surrogates.when_ready(evaluations) if self._count is None else None
        properties = studied(config, records)
        if self._count is not None:
            config = config.model_copy(update={"stop": StopSection(evaluations=self._count)})
        schedule = Schedule(
            config,
            study.contributions.n if n is None else n,
            properties,
            lambda some: estimate_all(some, properties, config, surrogates=known)[0],
        )
        for evaluation in evaluations:
            schedule.record(evaluation)
        schedule.mark = mark
        return schedule

    def keeper(self, record: RecipeRecord | None = None) -> "Keeper":
        """Return the keeper of the recipe's evaluations; given the ledger's ``record``, no model is needed."""
        from diffcredit.execution.keeping import Keeper

        cache = self.study.cache
        fingerprint = (record or self.record).fingerprint
        return Keeper(cache.root / "kept" / fingerprint[:12], self.keep, cache.store)

    def recorded_keeper(self) -> "Keeper | None":
        """Return the keeper of the recorded evaluations; None if the ledger does not know the recipe."""
        with suppress(NoLedger), self.study.ledger(create=False) as ledger:
            record = self.recorded(ledger)
            return None if record is None else self.keeper(record)
        return None

    def worker_files(self) -> "WorkerFiles":
        """Return the files that evaluators read, for workers on machines that do not see them."""
        return worker_files(self.study)

    def evaluator(self, names: Sequence[str] | None = None, kept: RecipeRecord | None = None) -> "Evaluator":
        """Return the evaluator, with the properties ``names`` (None: all). Given ``kept``, it measures on what was kept
        of this record's evaluations instead of retraining."""
        from diffcredit.execution.evaluator import KeptModels, ModelEvaluator, RetrainedModels
        from diffcredit.study.checks import check_unchanged

        study, prepared = self.study, self.study.prepared
        sampling, extractors = study.config.sampling, prepared.extractors
        check_unchanged(study)
        properties = [prop for prop in prepared.properties if names is None or prop.name in names]
        if kept is not None:
            return ModelEvaluator(KeptModels(self.keeper(kept), sampling, extractors, prepared.load), properties)
        models = RetrainedModels(self.retraining, sampling, study.config.seed, extractors, self.reference_model)
        return ModelEvaluator(models, properties, self.keeper())
