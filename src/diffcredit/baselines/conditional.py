"""Shapley values of the property on images that the base model makes from the contributors' captions."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from diffcredit.baselines.base import Crediting, Evidence
from diffcredit.credit import surrogate_credits
from diffcredit.diffusion.settings import PositiveInt
from diffcredit.errors import UserError
from diffcredit.surrogates import SurrogateValues, tabulate
from diffcredit.surrogates.conditional import Conditional
from diffcredit.util.arrays import FloatArray
from diffcredit.util.seeds import derive_seed


@dataclass
class ConditionalShapley(Crediting):
    """The Shapley values of the surrogate :class:`Conditional`, without any retraining (SurrogateSHAP).

    The empty coalition has no captions, so that G(∅), the level of the credits, is set to 0; only their differences
    have a meaning.
    """

    coalitions: PositiveInt = 1000
    """All coalitions are used if there are at most that many, else a sample of that many."""

    name = "conditional_sampling"
    title = "Conditional sampling (SurrogateSHAP)"
    category = "surrogate"
    of_property = True

    def credits(self, evidence: Evidence) -> FloatArray:
        prop, sampling = evidence.required_property(self.name), evidence.sampling
        if sampling is None:
            raise UserError(f"{self.name}: needs to know how to sample")
        model, surrogate = evidence.model(self.name), Conditional(self.coalitions)
        with TemporaryDirectory() as temporary:
            folder = evidence.folder or Path(temporary)
            surrogate.sample(model, evidence.contributions, sampling, folder, evidence.progress)
            # images are expensive and cached; values are measured again, since the property may have changed
            files = {prop.name: Path(temporary) / "values.json"}
            values = SurrogateValues(
                self.name, files, lambda: (surrogate, [prop], evidence.extractors), evidence.progress
            )
            if not values.stands_in_for(prop.name):
                raise UserError(
                    f"{self.name}: {prop.name!r} measures the model itself or images in the order of their prompts; "
                    "properties of any set of images are accepted"
                )
            seed = derive_seed(evidence.seed, "surrogates")
            table = tabulate(values.game(prop.name), evidence.contributions.n, self.coalitions, seed)
        return surrogate_credits(table.coalitions, table.values, table.full, table.size_distribution).values
