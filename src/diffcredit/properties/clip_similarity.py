"""Similarity of images and texts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.features import Extractor, Features, FeaturesOption
from diffcredit.features.base import embeds_texts, unit_rows
from diffcredit.properties.base import Context, State
from diffcredit.properties.kinds import MeanProperty


@dataclass
class ClipSimilarity(MeanProperty):
    """The mean cosine x·t / (‖x‖‖t‖) between the embeddings x of images and t of a text.

    The text is ``prompt`` or, with None, the prompt that each image was generated for. torchmetrics' CLIPScore is 100
    times this mean, or 0 where it is negative. Where prompts differ, the standard error is rather too large: part
    of the spread is between prompts, which other images would share.
    """

    prompt: str | None = None
    features: FeaturesOption = "clip"

    name = "clip_similarity"
    unit = "cosine"
    range = (-1.0, 1.0)

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
        if not embeds_texts(extractor):
            accepted = "clip, or a plug-in with embed_texts"
            raise UserError(f"clip_similarity.features: {self.features!r} embeds no texts; accepted: {accepted}")

    def check_prompts(self, prompts: Sequence[str] | None) -> None:
        if self.prompt is None and prompts is None:
            raise UserError("clip_similarity.prompt: missing, and the model follows no prompts; give the text to match")

    def fit(self, context: Context) -> State:
        extractor = context.extractors.get(self.features)
        self.check_extractor(extractor, context.contributions)
        self.check_prompts(context.prompts)
        if self.prompt is not None:
            return {"texts": unit_rows(extractor.embed_texts([self.prompt]))}
        distinct = sorted(set(context.prompts or ()))
        followed = [distinct.index(prompt) for prompt in context.prompts or ()]
        return {"texts": unit_rows(extractor.embed_texts(distinct)), "followed": np.array(followed, np.int64)}

    def restore(self, state: State) -> None:
        self._texts: NDArray[np.float64] = state["texts"]
        self._followed: NDArray[np.int64] | None = state.get("followed")

    def _each(self, features: Features) -> NDArray[np.float64]:
        """Return the cosine of each image with its text, (m,)."""
        if self._followed is None:
            return unit_rows(features.vectors) @ self._texts[0]
        if len(features) != len(self._followed):
            raise UserError(
                f"clip_similarity: {len(features)} images for {len(self._followed)} prompts; one image each, in the "
                "order of the seeds, is expected, unless clip_similarity.prompt is one text for all"
            )
        return (unit_rows(features.vectors) * self._texts[self._followed]).sum(axis=1)

    def of_each(self, features: Features) -> NDArray[np.float64]:
        """Return the cosine of each image with ``prompt``, (m,), for any images."""
        if self.prompt is None:
            raise UserError(
                "clip_similarity.prompt: missing; images without a prompt are compared with one text for all"
            )
        return self._each(features)
