"""Properties of CLIP embeddings: aesthetic scores by the LAION predictors, and the match of images with texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.features import EXTRACTORS, Extractor, Features, FeaturesOption
from diffcredit.features.base import option_name, unit_rows
from diffcredit.features.weights import PublishedWeights, read_state
from diffcredit.properties.base import Context, State
from diffcredit.properties.kinds import MeanProperty, PercentileProperty
from diffcredit.util.plugins import overridden

KEY = "aesthetic.weights"
PARTS = ("weight", "bias")
Head = Literal["linear", "mlp"]

# prefixes of each head's layers in its file; weight (out, in) and bias (out,) follow; scoring ignores dropout between
LAYERS: dict[Head, tuple[str, ...]] = {
    "linear": ("",),
    "mlp": ("layers.0.", "layers.2.", "layers.4.", "layers.6.", "layers.7."),
}

PUBLISHED: dict[Head, PublishedWeights] = {
    "linear": PublishedWeights(
        "https://github.com/LAION-AI/aesthetic-predictor/raw/main/sa_0_4_vit_l_14_linear.pth",
        "2cd4e60f4f24ae3bcd57b847b13c1f3ba27edc28cc1a7f9ce74ee9f421243cba",
        "MIT",
    ),
    "mlp": PublishedWeights(
        "https://github.com/christophschuhmann/improved-aesthetic-predictor/raw/main/"
        "sac%2Blogos%2Bava1-l14-linearMSE.pth",
        "21dd590f3ccdc646f0d53120778b296013b096a035a2718c9cb0d511bff0f1e0",
        "Apache-2.0",
    ),
}

BUNDLED = Path(__file__).parent / "laion" / PUBLISHED["linear"].name


@dataclass
class Aesthetic(PercentileProperty):
    """A ``percentile`` (0 to 100, linearly interpolated) of the images' aesthetic scores, or with None their mean.

    The score of an image with CLIP embedding x is head(x/‖x‖), about 1 to 10. Heads: ``linear``, of
    LAION-AI/aesthetic-predictor, or ``mlp``, of christophschuhmann/improved-aesthetic-predictor; both are for the 768
    dimensions of CLIP ViT-L/14. ``weights`` names a file with a head of your own, of the same layers.
    """

    head: Head = "linear"
    percentile: Annotated[float, Ge(0), Le(100)] | None = 90.0
    weights: str | None = None
    features: FeaturesOption = "clip"

    name = "aesthetic"
    unit = "points out of 10"
    differences = ("pictures would be rated {} lower", "pictures would be rated {} higher")

    @property
    def title(self) -> str:
        return f"Aesthetic score ({'mean' if self.percentile is None else f'percentile {self.percentile:g}'})"

    @property
    def explanation(self) -> str:
        which = "This is their mean."
        if self.percentile is not None:
            which = f"{self.percentile:g} % of them score lower than this."
        return f"How much people would like the generated images, as a model of ratings from 1 to 10 predicts. {which}"

    def check(self, contributions: Contributions, images: int) -> None:
        self._layers()

    def check_extractor(self, extractor: Extractor, contributions: Contributions) -> None:
        needed = len(affine_map(self.head, self._layers())[0])
        if extractor.dimensions != needed:
            hint = ", those of CLIP ViT-L/14" if self.weights is None else ""
            found = f"{self.features!r} has {extractor.dimensions} dimensions"
            raise UserError(f"aesthetic.features: {found}; the head needs {needed}{hint}")

    def fit(self, context: Context) -> State:
        self.check_extractor(context.extractors.get(self.features), context.contributions)
        return self._layers()

    def _layers(self) -> State:
        """Read the head's arrays, a chain of affine maps to one number, from ``weights`` or the published file."""
        extractor = option_name(self.features)
        if self.weights is None and extractor in EXTRACTORS and extractor != "clip":
            raise UserError(
                f"aesthetic.features: the published heads are not for {extractor!r}; accepted: clip, a plug-in of "
                "CLIP ViT-L/14, or any extractor with a head of your own in aesthetic.weights"
            )
        if self.weights is not None:
            file = Path(self.weights)
        elif self.head == "linear":
            file = BUNDLED
            PUBLISHED[self.head].verify(file, KEY)
        else:
            file = PUBLISHED[self.head].file(KEY)
        layers = {name: tensor.float().numpy() for name, tensor in read_state(file, KEY).items()}
        needed = [f"{prefix}{kind}" for prefix in LAYERS[self.head] for kind in PARTS]
        if set(layers) != set(needed):
            expected = f"the {self.head} head has {', '.join(needed)}"
            raise UserError(f"{KEY}: {file} holds {', '.join(sorted(layers))}; {expected}")
        outputs = 1
        for prefix in reversed(LAYERS[self.head]):
            weight, bias = (layers[f"{prefix}{kind}"].shape for kind in PARTS)
            if len(weight) != 2 or weight[0] != outputs or bias != (outputs,):
                found = f"{prefix}weight of shape {weight} and {prefix}bias of shape {bias}"
                raise UserError(f"{KEY}: {file}: {found}; ({outputs}, …) and ({outputs},) are expected")
            outputs = weight[1]
        return layers

    def restore(self, state: State) -> None:
        self._weight, self._bias = affine_map(self.head, state)

    def of_each(self, features: Features) -> NDArray[np.float64]:
        """Return the score w·x/‖x‖ + b of each image, (m,)."""
        return unit_rows(features.vectors) @ self._weight + self._bias

    def measure_features(self, features: Features) -> float:
        return self._summary(features)


def affine_map(head: Head, layers: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.float64], float]:
    """Return w (d,) and b of the score w·x + b.

    Neither head has activations between its layers, so that W_L (… (W_1 x + b_1) …) + b_L is one affine map.
    """
    first, *others = LAYERS[head]
    weight = layers[f"{first}weight"].astype(np.float64)
    bias = layers[f"{first}bias"].astype(np.float64)
    for prefix in others:
        step = layers[f"{prefix}weight"].astype(np.float64)
        weight, bias = step @ weight, step @ bias + layers[f"{prefix}bias"]
    return weight[0], float(bias[0])


@dataclass
class ClipSimilarity(MeanProperty):
    """The mean cosine x·t / (‖x‖‖t‖) between the embeddings x of images and t of a text.

    The text is ``prompt`` or, with None, the prompt that each image was generated for. Where prompts differ, the
    standard error is rather too large: part of the spread is between prompts, which other images would share.
    """

    prompt: str | None = None
    features: FeaturesOption = "clip"

    name = "clip_similarity"
    unit = "cosine"
    differences = ("pictures would fit their texts {} less", "pictures would fit their texts {} better")
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
        if not overridden(extractor.embed_texts, Extractor.embed_texts):
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
                "clip_similarity.prompt: missing; images that were not generated for one need a text for all"
            )
        return self._each(features)
