"""Shapley values of the property on what the base model makes of the contributors' captions."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from diffcredit.baselines.protocol import Category, Evidence
from diffcredit.credit import surrogate_credits
from diffcredit.diffusion.settings import PositiveInt
from diffcredit.errors import UserError
from diffcredit.surrogates import SurrogateValues, tabulate
from diffcredit.surrogates.conditional import Conditional
from diffcredit.util.arrays import FloatArray
from diffcredit.util.seeds import derive_seed


@dataclass
class ConditionalShapley:
    """The Shapley values of the surrogate :class:`Conditional` alone, without any retraining (SurrogateSHAP): of all
    coalitions where these are ``coalitions`` at most, else estimated from so many. Nobody's captions are no captions,
    so that the level of the credits, G(∅), is arbitrary (0); their differences are not."""

    coalitions: PositiveInt = 1000

    name: ClassVar[str] = "conditional_sampling"
    title: ClassVar[str] = "Conditional sampling (SurrogateSHAP)"
    category: ClassVar[Category] = "surrogate"
    of_property: ClassVar[bool] = True

    def credits(self, evidence: Evidence) -> FloatArray:
        prop, sampling = evidence.prop, evidence.sampling
        if prop is None or sampling is None:
            raise UserError(f"{self.name}: needs the property that contributors are credited for, and how to sample")
        model, surrogate = evidence.model(self.name), Conditional(self.coalitions)
        with TemporaryDirectory() as temporary:
            folder = evidence.folder or Path(temporary)
            surrogate.sample(model, evidence.contributions, sampling, folder, evidence.progress)
            # images are dear and kept; values are measured anew, for the property may have changed
            files = {prop.name: Path(temporary) / "values.json"}
            values = SurrogateValues(
                self.name, files, lambda: (surrogate, [prop], evidence.extractors), evidence.progress
            )
            if not values.stands_in_for(prop.name):
                raise UserError(
                    f"{self.name}: {prop.name!r} measures the model itself or images in the order of their prompts; a "
                    "property of any images is accepted"
                )
            seed = derive_seed(evidence.seed, "surrogates")
            table = tabulate(values.game(prop.name), evidence.contributions.n, self.coalitions, seed)
        return surrogate_credits(table.coalitions, table.values, table.full, table.size_distribution).values
