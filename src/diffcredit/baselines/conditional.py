"""Shapley values of the property on images that the base model makes from the contributors' captions."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from diffcredit.baselines.base import Crediting, Evidence
from diffcredit.diffusion.settings import PositiveInt, Sampling
from diffcredit.errors import UserError
from diffcredit.properties import as_property
from diffcredit.properties.base import needs_model
from diffcredit.surrogates import Material, SurrogateValues, own_credits
from diffcredit.surrogates.pools import Conditional, captions_of
from diffcredit.util.arrays import FloatArray
from diffcredit.util.seeds import derive_seed


@dataclass
class ConditionalShapley(Crediting):
    """The Shapley values of the surrogate :class:`Conditional`, without any retraining (SurrogateSHAP). G(∅) is set
    to 0, since nobody has no captions; only differences of credits have a meaning."""

    coalitions: PositiveInt = 1000
    """All coalitions are used if there are at most that many, else a sample of that many."""

    name = "conditional_sampling"
    title = "Conditional sampling (SurrogateSHAP)"
    category = "surrogate"
    of_property = True

    def check(self, evidence: Evidence) -> None:
        prop = as_property(evidence.required_property(self.name))
        captions_of(evidence.model(self.name), evidence.contributions)
        if needs_model(prop) or prop.ordered:
            raise UserError(
                f"{self.name}: {prop.name!r} measures the model itself or images in the order of their prompts; "
                "properties of any set of images are accepted"
            )
        self._sampling(evidence)

    def seconds(self, evidence: Evidence, a_pass: float) -> dict[str, float]:
        sampling = self._sampling(evidence)
        forward = len(evidence.contributions.groups) * sampling.images * sampling.steps
        return {self.name: forward * a_pass / 3}  # forward alone is a third of a pass

    def _sampling(self, evidence: Evidence) -> Sampling:
        if evidence.sampling is None:
            raise UserError(f"{self.name}: needs to know how to sample")
        return evidence.sampling

    def credits(self, evidence: Evidence) -> FloatArray:
        self.check(evidence)
        prop, sampling = evidence.prop, self._sampling(evidence)
        model, surrogate = evidence.model(self.name), Conditional(self.coalitions)
        with TemporaryDirectory() as temporary:
            folder = evidence.folder or Path(temporary)
            given, images = evidence.contributions, evidence.generated
            surrogate.prepare(Material(given, sampling, folder, evidence.progress, lambda: model, lambda: images))
            # images are expensive and cached; values are measured again, since the property may have changed
            values = SurrogateValues(
                self.name,
                [prop.name],
                {},
                lambda name, measured: None,
                lambda: (surrogate, [prop], evidence.extractors),
                evidence.progress,
            )
            seed = derive_seed(evidence.seed, "surrogates")
            return own_credits(values.game(prop.name), given.n, self.coalitions, seed).values
