"""How well images match texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.features import Extractor, Features, FeaturesOption
from diffcredit.properties.base import Context, State
from diffcredit.properties.bootstrap import mean_error
from diffcredit.properties.directions import unit_rows


@dataclass
class ClipSimilarity:
    """The mean cosine x·t / (‖x‖‖t‖) between the embeddings x of the images and t of a text: of ``prompt``, or with
    None of the prompt that each image was generated for.

    CLIPScore, as torchmetrics has it, is 100 times this mean, or 0 where it is negative.
    """

    prompt: str | None = None
    features: FeaturesOption = "clip"

    name = "clip_similarity"
    higher_is_better = True
    unit = "cosine"
    range = (-1.0, 1.0)
    bias = "None, as it is a mean over the images."

    @property
    def title(self) -> str:
        return "Match with the prompts" if self.prompt is None else f"Match with “{self.prompt}”"

    @property
    def explanation(self) -> str:
        text = "the prompts they were generated for" if self.prompt is None else f"the text “{self.prompt}”"
        return (
            f"How well the generated images match {text}, as CLIP sees it. Unrelated images have about 0.15, good "
            "matches 0.25 and more."
        )

    @property
    def ordered(self) -> bool:
        return self.prompt is None

    def check_extractor(self, extractor: Extractor, contributions: Contributions) -> None:
        if not hasattr(extractor, "embed_texts"):
            raise UserError(
                f"clip_similarity.features: {self.features!r} embeds no texts; accepted: clip, or a plug-in "
                "with embed_texts"
            )

    def check_prompts(self, prompts: Sequence[str] | None) -> None:
        if self.prompt is None and prompts is None:
            raise UserError(
                "clip_similarity.prompt: missing, and the model follows no prompts; give the text that the "
                "images are to match"
            )

    def fit(self, context: Context) -> State:
        extractor: Any = context.extractors.get(self.features)
        self.check_extractor(extractor, context.contributions)
        self.check_prompts(context.prompts)
        embed = extractor.embed_texts
        if self.prompt is not None:
            return {"texts": unit_rows(embed([self.prompt]))}
        assert context.prompts is not None  # as checked
        distinct = sorted(set(context.prompts))
        position = {prompt: index for index, prompt in enumerate(distinct)}
        return {
            "texts": unit_rows(embed(distinct)),
            "followed": np.array([position[prompt] for prompt in context.prompts], np.int64),
        }

    def restore(self, state: State) -> None:
        self._texts: NDArray[np.float64] = state["texts"]
        self._followed: NDArray[np.int64] | None = state.get("followed")

    def cosines(self, features: Features) -> NDArray[np.float64]:
        """Of each image with its text, (m,)."""
        if self._followed is None:
            return unit_rows(features.vectors) @ self._texts[0]
        if len(features) != len(self._followed):
            raise UserError(
                f"clip_similarity: {len(features)} images for {len(self._followed)} prompts; each image must be there, "
                "in the order of the seeds, unless clip_similarity.prompt gives one text for all"
            )
        return (unit_rows(features.vectors) * self._texts[self._followed]).sum(axis=1)

    def of_each(self, features: Features) -> NDArray[np.float64]:
        """The cosine of each image with ``prompt``, (m,), of any images."""
        if self.prompt is None:
            raise UserError(
                "clip_similarity.prompt: missing; images that were not generated for a prompt are compared with one "
                "text for all"
            )
        return self.cosines(features)

    def measure_features(self, features: Features) -> float:
        return float(self.cosines(features).mean())

    def standard_error(self, features: Features) -> float:
        """That of a mean. Where prompts differ, so do their cosines, which other images would share: the error is then
        rather too large than too small."""
        return mean_error(self.cosines(features))
