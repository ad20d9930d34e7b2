"""A study's surrogates: cheap stand-ins G for a property F, known for every coalition.

A surrogate has values at coalitions and its *own credits* φ(G), estimated from coalitions that are not evaluated.
Credits of F are φ(G) corrected by the evaluations. Values are cached and read without torch; a surrogate is prepared
only to compute missing ones.
"""

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.credit import Credits, KnownSurrogate, surrogate_credits
from diffcredit.errors import UserError, located
from diffcredit.execution.threads import limited_threads
from diffcredit.study import identity
from diffcredit.study.crediting import Surrogates
from diffcredit.study.schedule import studied
from diffcredit.surrogates import SURROGATES, Surrogate, SurrogateValues, Work, tabulate
from diffcredit.surrogates.base import ImageSurrogate, as_surrogate
from diffcredit.surrogates.contributor_models import needs_start
from diffcredit.surrogates.tabulating import tabulated
from diffcredit.surrogates.values import Loaded
from diffcredit.util.arrays import BoolArray
from diffcredit.util.events import stage
from diffcredit.util.plugins import build, settings_of
from diffcredit.util.seeds import derive_seed

if TYPE_CHECKING:
    from diffcredit.study.study import Study

LEAST_A_CONTRIBUTOR = 2  # coalitions per contributor for a surrogate's own credits


class StudySurrogates:
    """The surrogates that a study file names; there may be none."""

    def __init__(self, study: "Study") -> None:
        self._study = study
        self.names = tuple(section.name for section in study.config.surrogates)
        self._credits: dict[tuple[str, str], Credits] = {}
        self._ready = False

    def check(self, contributions: Contributions, retraining: Any) -> None:
        """Refuse surrogates that this study cannot have, before anything is trained."""
        n, file = contributions.n, self._study.file
        if len(self.names) > max(0, n - 2):
            raise UserError(
                f"{file}: surrogates: {len(self.names)} for {n} contributors fit any credits; at most {max(0, n - 2)} "
                "are accepted"
            )
        for index, (name, surrogate) in enumerate(zip(self.names, self._built, strict=True)):
            if surrogate.needs_start and not getattr(retraining, "fine_tunes", True):
                raise UserError(f"{file}: surrogates.{index}: {needs_start(name)}")
            least = min(LEAST_A_CONTRIBUTOR * n, 2**n - 2)
            if surrogate.coalitions < least:
                raise UserError(
                    f"{file}: surrogates.{index}.coalitions: {surrogate.coalitions} are too few for {n} contributors; "
                    f"at least {least} are accepted"
                )

    def prepare(self) -> None:
        """Compute all values that the surrogates' own credits need."""
        for name, values, surrogate in zip(self.names, self._values, self._built, strict=True):
            with stage(f"surrogate {name}"):
                for prop in self._properties:
                    if values.stands_in_for(prop):
                        self._own_credits(values, prop, surrogate.coalitions)

    def known(self, prop: str, coalitions: BoolArray) -> list[KnownSurrogate]:
        """Return the values of a property's surrogates at ``coalitions`` (m, n), and their own credits with errors."""
        found = []
        for values, surrogate in zip(self._values, self._built, strict=True):
            if prop in self._properties and values.stands_in_for(prop):
                own = self._own_credits(values, prop, surrogate.coalitions)
                found.append(KnownSurrogate(self._game(values, prop)(coalitions), own.values, own.standard_error))
        return found

    def standing_in(self, prop: str) -> list[str]:
        """Return the names of a property's surrogates, in the order of :meth:`known`."""
        return [each.name for each in self._values if prop in self._properties and each.stands_in_for(prop)]

    def without(self) -> list[str]:
        """Return the properties that no surrogate stands in for."""
        return [prop for prop in self._properties if not self.standing_in(prop)]

    def when_ready(self) -> Surrogates | None:
        """Return :meth:`known`; None if a run has not computed the surrogates yet."""
        return self.known if self.ready() else None

    def ready(self) -> bool:
        """Return whether all values that the surrogates' own credits need are computed."""
        n = len(self._ledger["contributors"])
        self._ready = self._ready or all(  # once they are, they stay
            not values.is_missing(prop, tabulated(n, surrogate.coalitions, self._seed)[0])
            for values, surrogate in zip(self._values, self._built, strict=True)
            for prop in self._properties
        )
        return self._ready

    def work(self, n: int, evaluations: int, names: Collection[str] | None = None) -> Work:
        """Return what the surrogates (those of these ``names``, or all) cost in addition to ``evaluations``.

        All surrogates share the contributors' fine-tuned models.
        """
        works = []
        for name, surrogate in zip(self.names, self._built, strict=True):
            if names is not None and name not in names:
                continue
            table = len(tabulated(n, surrogate.coalitions, self._seed)[0])
            works.append(surrogate.work(n, 1 + table + evaluations))  # one for the coalition of all
        return Work(max((work.fine_tunings for work in works), default=0), sum(work.samplings for work in works))

    def _own_credits(self, values: SurrogateValues, prop: str, most: int) -> Credits:
        """Return φ(G), up to a constant that all contributors share and that the unknown G(∅) would fix."""
        key = values.name, prop
        if key not in self._credits:
            table = tabulate(self._game(values, prop), len(self._ledger["contributors"]), most, self._seed)
            with located(f"{self._study.file}: surrogate {values.name!r} of {prop!r}"):
                self._credits[key] = surrogate_credits(
                    table.coalitions, table.values, table.full, table.size_distribution
                )
        return self._credits[key]

    def _game(self, values: SurrogateValues, prop: str) -> Surrogate:
        """Return G of a property, computed with the study's number of threads, as evaluations are."""

        def limited(coalitions: BoolArray) -> NDArray[np.float64]:
            with limited_threads(self._study.config.threads):
                return values.game(prop)(coalitions)

        return limited

    @property
    def _seed(self) -> int:
        """The seed of the coalitions for own credits, which are not those that are evaluated."""
        return derive_seed(self._study.config.seed, "surrogates")

    @cached_property
    def _built(self) -> list[ImageSurrogate]:
        """The surrogates of the study file, not yet prepared."""
        study, surrogates = self._study, []
        for index, section in enumerate(study.config.surrogates):
            where = f"{study.file}: surrogates.{index}"
            surrogate = build(section.name, section.options, SURROGATES, where=where, beside=study.file.parent)
            with located(where):
                surrogates.append(as_surrogate(surrogate, section.name))
        return surrogates

    @cached_property
    def _ledger(self) -> dict[str, Any]:
        """The ledger's contributors, recipe fingerprint, and fingerprints of the properties in the study file."""
        study = self._study
        with study.ledger(create=False) as ledger:
            records = ledger.properties(study.name)
            named = studied(study.config, records)
            recipe = study.recipe.recorded(ledger)
            assert recipe is not None  # surrogates are asked for once a recipe is registered
            return {
                "contributors": ledger.studies()[study.name]["contributors"],
                "recipe": recipe.fingerprint,
                "properties": {record.name: record.fingerprint for record in records if record.name in named},
            }

    @property
    def _properties(self) -> dict[str, str]:
        return self._ledger["properties"] if self.names else {}

    @cached_property
    def _values(self) -> list[SurrogateValues]:
        found = []
        for section, surrogate in zip(self._study.config.surrogates, self._built, strict=True):
            settings = settings_of(surrogate, section.options)
            files = {}
            for prop, measured_by in self._properties.items():
                key = identity.surrogate_identity(self._ledger["recipe"], measured_by, section.name, settings)
                files[prop] = self._study.cache.path("surrogate", key, ".json")
            found.append(
                SurrogateValues(
                    section.name, files, lambda surrogate=surrogate: self._load(surrogate), self._study.progress
                )
            )
        return found

    def _load(self, surrogate: ImageSurrogate) -> Loaded:
        """Return ``surrogate``, ready to stand in for coalitions' models, with what measures its images."""
        from diffcredit.surrogates import Material

        study, prepared = self._study, self._study.prepared
        material = Material(
            contributions=study.contributions,
            retraining=study.recipe.retraining,
            base=lambda: prepared.base,
            generated=prepared.generated_images,
            sampling=study.config.sampling,
            folder=study.cache.folder,
            progress=study.progress,
        )

        def prepare() -> None:
            with located(f"{study.file}: surrogates"), limited_threads(study.config.threads):
                surrogate.prepare(material)

        study.cache.made_once("surrogates", "the surrogates", prepare)
        return surrogate, prepared.properties, prepared.extractors
