"""A study's surrogates: cheap stand-ins G for a property F, known for every coalition.

A surrogate has values at coalitions and its *own credits* φ(G), estimated from coalitions that are not evaluated.
Credits of F are φ(G) corrected by the evaluations. Values are entries of the ledger, and read without torch. Only those
who write the ledger measure missing ones, after :meth:`StudySurrogates.prepare`; for readers, surrogates with missing
values are not ready.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.coalitions import decode
from diffcredit.contributions import Contributions
from diffcredit.credit import Credits, KnownSurrogate
from diffcredit.errors import UserError, located
from diffcredit.execution.tasks import utc_now
from diffcredit.execution.threads import limited_threads
from diffcredit.ledger import ChangedRecord, Entry, Evaluation
from diffcredit.study import identity
from diffcredit.study.crediting import Surrogates
from diffcredit.study.manifest import is_older
from diffcredit.study.schedule import studied
from diffcredit.surrogates import SURROGATES, ImageSurrogate, Material, SurrogateValues, Work, as_surrogate, own_credits
from diffcredit.surrogates.pools import needs_start
from diffcredit.surrogates.values import Known, Loaded, tabulated
from diffcredit.util.arrays import BoolArray
from diffcredit.util.artifacts import read_json
from diffcredit.util.events import stage
from diffcredit.util.plugins import build, settings_of
from diffcredit.util.seeds import derive_seed

if TYPE_CHECKING:
    from diffcredit.study.study import Study

KIND = "surrogate"
LEAST_A_CONTRIBUTOR = 2  # coalitions per contributor for a surrogate's own credits


class StudySurrogates:
    """The surrogates that a study file names; there may be none. Only :meth:`check` and :meth:`work` do without the
    study's ledger."""

    def __init__(self, study: "Study") -> None:
        self._study = study
        self.names = tuple(section.name for section in study.config.surrogates)
        self._credits: dict[tuple[str, str], Credits] = {}
        self._ready = False
        self._measures = False

    def check(self, contributions: Contributions, retraining: Any) -> None:
        """Refuse surrogates that this study cannot have, before anything is trained."""
        n, file = contributions.n, self._study.file
        if len(self.names) > max(0, n - 2):
            raise UserError(
                f"{file}: surrogates: {len(self.names)} for {n} contributors fit any credits; at most {max(0, n - 2)} "
                "are accepted"
            )
        for index, (name, surrogate) in enumerate(self._built.items()):
            if surrogate.needs_start and not retraining.fine_tunes:
                raise UserError(f"{file}: surrogates.{index}: {needs_start(name)}")
            least = min(LEAST_A_CONTRIBUTOR * n, 2**n - 2)
            if surrogate.coalitions < least:
                raise UserError(
                    f"{file}: surrogates.{index}.coalitions: {surrogate.coalitions} are too few for {n} contributors; "
                    f"at least {least} are accepted"
                )

    def prepare(self) -> None:
        """Compute all values that the surrogates' own credits need, and from now on whatever is asked for."""
        self._measures = True
        self.__dict__.pop("_values", None)  # those that are not in the manifest yet count now, and are entered
        for name, values in self._values.items():
            with stage(f"surrogate {name}"):
                for prop in self._properties:
                    if values.stands_in_for(prop):
                        self._own_credits(name, prop)

    def known(self, prop: str, coalitions: BoolArray) -> list[KnownSurrogate]:
        """Return the values of a property's surrogates at ``coalitions`` (m, n), and their own credits with errors."""
        found = []
        for name in self.standing_in(prop):
            own = self._own_credits(name, prop)
            found.append(KnownSurrogate(self._game(name, prop, coalitions), own.values, own.standard_error))
        return found

    def standing_in(self, prop: str) -> list[str]:
        """Return the names of a property's surrogates, in the order of :meth:`known`."""
        return [name for name, values in self._values.items() if values.stands_in_for(prop)]

    def without(self) -> list[str]:
        """Return the properties that no surrogate stands in for."""
        return [prop for prop in self._properties if not self.standing_in(prop)]

    def when_ready(self, evaluations: Iterable[Evaluation] = ()) -> Surrogates | None:
        """Return :meth:`known`; None if a run has not computed the surrogates yet, also at these ``evaluations``."""
        if not self.ready():
            return None
        if self._measures or not self.names:
            return self.known
        texts = {each.coalition for each in evaluations if each.status == "done" and each.purpose == "estimate"}
        coalitions = np.array([decode(text) for text in texts])
        return None if self._is_missing(coalitions) else self.known

    def _is_missing(self, coalitions: BoolArray) -> bool:
        return any(values.is_missing(prop, coalitions) for values in self._values.values() for prop in self._properties)

    def ready(self) -> bool:
        """Return whether all values that the surrogates' own credits need are computed."""
        self._ready = self._ready or all(  # once they are, they stay
            not values.is_missing(prop, tabulated(self._n, self._built[name].coalitions, self._seed)[0])
            for name, values in self._values.items()
            for prop in self._properties
        )
        return self._ready

    def work(self, n: int, evaluations: int, names: Collection[str] | None = None) -> Work:
        """Return the work that surrogates (those of these ``names``, or all) add to that of ``evaluations``. They share
        the contributors' fine-tuned models, so fine-tunings do not add up."""
        works = []
        for surrogate in (each for name, each in self._built.items() if names is None or name in names):
            table = len(tabulated(n, surrogate.coalitions, self._seed)[0])
            groups = n + self._study.config.has_house
            works.append(surrogate.work(groups, 1 + table + evaluations))  # one for the coalition of all
        return Work(max((work.fine_tunings for work in works), default=0), sum(work.samplings for work in works))

    def _own_credits(self, name: str, prop: str) -> Credits:
        """Return φ(G), up to a constant that all contributors share and that the unknown G(∅) would fix."""
        if (name, prop) not in self._credits:
            with located(f"{self._study.file}: surrogate {name!r} of {prop!r}"):
                self._credits[name, prop] = own_credits(
                    lambda coalitions: self._game(name, prop, coalitions),
                    self._n,
                    self._built[name].coalitions,
                    self._seed,
                )
        return self._credits[name, prop]

    def _game(self, name: str, prop: str, coalitions: BoolArray) -> NDArray[np.float64]:
        """Return G of a property, computed with the study's number of threads, as evaluations are."""
        if not self._measures and self._values[name].is_missing(prop, coalitions):
            raise UserError(f"surrogate {name!r}: not measured at all coalitions yet; diffcredit run does that")
        with limited_threads(self._study.config.threads):
            return self._values[name].game(prop)(coalitions)

    @property
    def _seed(self) -> int:
        """The seed of the coalitions for own credits, which are not those that are evaluated."""
        return derive_seed(self._study.config.seed, "surrogates")

    @cached_property
    def _built(self) -> dict[str, ImageSurrogate]:
        """The surrogates of the study file, not yet prepared."""
        study, surrogates = self._study, {}
        for index, section in enumerate(study.config.surrogates):
            where = f"{study.file}: surrogates.{index}"
            surrogate = build(section.name, section.options, SURROGATES, where=where, beside=study.file.parent)
            with located(where):
                surrogates[section.name] = as_surrogate(surrogate, section.name)
        return surrogates

    @cached_property
    def _in_ledger(self) -> tuple[int, str, dict[str, str]]:
        """From the ledger: the number of contributors, and the fingerprints of the recipe and of the properties."""
        study = self._study
        with study.ledger(create=False) as ledger:
            records, recipe = ledger.properties(study.name), study.recipe.recorded(ledger)
            assert recipe is not None  # surrogates are asked for once a recipe is registered
            named = studied(study.config, records)
            properties = {record.name: record.fingerprint for record in records if record.name in named}
            return len(ledger.settings(study.name)["contributors"]), recipe.fingerprint, properties

    @property
    def _n(self) -> int:
        return self._in_ledger[0]

    @property
    def _properties(self) -> Collection[str]:
        return self._in_ledger[2]

    @cached_property
    def _values(self) -> dict[str, SurrogateValues]:
        study, found = self._study, {}
        _, recipe, properties = self._in_ledger
        entered = self._entered()
        for section in study.config.surrogates:
            surrogate = self._built[section.name]
            settings = settings_of(surrogate, section.options)
            keys = {
                prop: identity.surrogate_identity(recipe, measured_by, section.name, settings)
                for prop, measured_by in properties.items()
            }
            known = {prop: entered[key] for prop, key in keys.items() if key in entered}
            enter = partial(self._enter, section.name, keys, {prop: set(known[prop] or ()) for prop in known})
            older = self._from_files({prop: key for prop, key in keys.items() if key not in entered})
            for prop, values in older.items() if self._measures else ():
                enter(prop, values)
            found[section.name] = SurrogateValues(
                section.name,
                properties,
                known | older,
                enter,
                lambda surrogate=surrogate: self._load(surrogate),
                study.progress,
            )
        return found

    def _entered(self) -> dict[str, Known]:
        """Return the values that the ledger has, by the key of a surrogate and a property. Several drivers may have
        measured the same ones: the first count."""
        found: dict[str, Known] = {}
        with self._study.ledger(create=False) as ledger:
            for entry in ledger.entries(self._study.name, KIND):
                values = _values_of(entry.content)
                found[entry.name] = None if values is None else values | (found.get(entry.name) or {})
        return found

    def _from_files(self, keys: Mapping[str, str]) -> dict[str, Known]:
        """Return the values in files, as earlier versions kept them. They count as long as the study has no manifest,
        with which a writer enters them."""
        found: dict[str, Known] = {}
        for prop, key in keys.items() if is_older(self._study) else ():
            file = self._study.cache.path("surrogate", key, ".json")
            if file.exists():
                found[prop] = read_json(file, _values_of)
        return found

    def _enter(
        self, name: str, keys: Mapping[str, str], entered: dict[str, set[str]], prop: str, values: Known
    ) -> None:
        """Enter those of a property's ``values`` that are not ``entered`` yet."""
        new = None if values is None else {text: values[text] for text in values.keys() - entered.get(prop, set())}
        if prop in entered and not new:
            return
        content = {"surrogate": name, "property": prop, "values": new}
        with self._study.ledger() as ledger:
            ledger.enter(self._study.name, Entry(KIND, keys[prop], content, utc_now()), lambda known, evaluated: True)
        entered[prop] = set(values or ())

    def _load(self, surrogate: ImageSurrogate) -> Loaded:
        """Return ``surrogate``, ready to stand in for coalitions' models, with what measures its images."""
        study, prepared = self._study, self._study.prepared
        material = Material(
            study.contributions,
            study.config.sampling,
            study.cache.folder,
            study.progress,
            base=lambda: prepared.base,
            generated=prepared.generated_images,
            retraining=study.recipe.retraining,
        )

        def prepare() -> None:
            with located(f"{study.file}: surrogates"), limited_threads(study.config.threads):
                surrogate.prepare(material)

        study.cache.made_once("surrogates", "the surrogates", prepare)
        return surrogate, prepared.properties, prepared.extractors


def _values_of(content: Any) -> Known:
    """Return the values in an entry, or in a file of an earlier version; refuse what are none."""
    values = content.get("values", ()) if isinstance(content, dict) else ()
    if values is None:
        return None
    if not isinstance(values, dict) or not all(type(each) is float and math.isfinite(each) for each in values.values()):
        raise ChangedRecord("the record was changed: a surrogate's values are no numbers by coalition")
    return values
