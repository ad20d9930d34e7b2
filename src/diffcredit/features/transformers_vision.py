"""Any vision model of Hugging Face's transformers."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Ge

from diffcredit.errors import UserError
from diffcredit.features.base import Images, Precision
from diffcredit.features.network import NetworkExtractor

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

CLASS_TOKENS = ("cls_token", "class_embedding")  # how the models name its parameter


@dataclass
class TransformersVision(NetworkExtractor):
    """A vision model's summary of an image and, from an image classifier (…ForImageClassification), the logits.

    The model's own image processor resizes images. ``model`` is a folder or a hub id. ``pooling`` chooses the vector:

    - ``cls``: the class token after the last layer;
    - ``mean``: the mean of all tokens or positions after it;
    - ``auto``: the input of a classifier's head; the embedding, where images share a space with texts; or else the
      first there is of the model's pooled output, the class token and the mean.
    """

    model: str
    pooling: Literal["auto", "cls", "mean"] = "auto"
    batch_size: Annotated[int, Ge(1)] = 32
    precision: Precision = "float32"

    label = "transformers model"

    def load(self, device: str) -> None:
        from diffcredit.features.torch_features import Checkpoint, transformers_package

        package = transformers_package("transformers")
        self._checkpoint = Checkpoint.find(self.model)
        architectures = self._checkpoint.config.get("architectures") or [""]
        self._classifies = str(architectures[0]).endswith("ForImageClassification")
        kind = package.AutoModelForImageClassification if self._classifies else package.AutoModel
        # many are published without the pooling that transformers would put on top
        network, self._whole = self._checkpoint.load(kind, optional="pooler.")
        self._network = network.to(device)
        self._processor = self._checkpoint.image_processor()
        self._device = device
        self._identity: dict[str, Any] = {**self._checkpoint.identity(), "resize": self._processor.described()}
        self._try()

    def _described(self) -> dict[str, Any]:
        return {**self._identity, "pooling": self.pooling}

    @property
    def dimensions(self) -> int:
        return self._dimensions

    @property
    def classes(self) -> int | None:
        return self._network.config.num_labels if self._classifies else None

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the classes in the checkpoint's config."""
        if not self._classifies:
            return None
        return tuple(self._network.config.id2label[index] for index in range(self._network.config.num_labels))

    def _forward(self, images: Images) -> "tuple[Tensor, Tensor | None]":
        pixels = self._processor(images, self._device)
        return self._classified(pixels) if self._classifies else (self._summary(pixels), None)

    def _summary(self, pixels: "Tensor") -> "Tensor":
        """Return the vectors (m, d) that ``pooling`` chooses."""
        embed = getattr(self._network, "get_image_features", None)
        found = embed(pixels) if embed is not None else self._network(pixels)
        if self.pooling == "auto":
            pooled = getattr(found, "pooler_output", found if embed is not None else None)
            if pooled is not None and self._whole:
                return _vectors(pooled)
        return self._states(found)

    def _classified(self, pixels: "Tensor") -> "tuple[Tensor, Tensor]":
        """Return the vectors (m, d) that ``pooling`` chooses, and the logits (m, k)."""
        if self.pooling != "auto":
            with _seen(self._network.base_model, outputs=True) as outputs:
                logits = self._network(pixels).logits
            return self._states(outputs[0]), logits
        head = getattr(self._network, "classifier", None)
        if head is None:
            raise UserError(
                f"features.pooling: 'auto'; {type(self._network).__name__} has no head named classifier; accepted: "
                "'cls' and 'mean'"
            )
        with _seen(head, outputs=False) as inputs:
            logits = self._network(pixels).logits
        return _vectors(inputs[0]), logits

    def _states(self, found: Any) -> "Tensor":
        """Return the class token of the last hidden states, or their mean; for ``auto`` the token if there is one.

        States are of tokens, (m, tokens, d), or of positions, (m, d, h, w).
        """
        states = getattr(found, "last_hidden_state", None)
        if states is None:
            raise UserError(
                f"features.pooling: {self.pooling!r}; {type(self._network).__name__} returns no last hidden states; "
                "accepted: 'auto'"
            )
        names = (name for name, _ in self._network.named_parameters())
        has_token = states.ndim == 3 and any(name.endswith(CLASS_TOKENS) for name in names)
        if self.pooling == "cls" and not has_token:
            raise UserError(
                f"features.pooling: 'cls'; {type(self._network).__name__} has no class token; accepted: 'auto' and "
                "'mean'"
            )
        if has_token and self.pooling != "mean":
            return states[:, 0]
        return states.mean(dim=1 if states.ndim == 3 else (2, 3))

    def _try(self) -> None:
        """Extract one image twice, to refuse a model that is no extractor before anything is trained."""
        from diffcredit.features.torch_features import KEY

        whose = f"{KEY}: {self._checkpoint.folder}: {type(self._network).__name__}"
        image = np.arange(64 * 64 * 3).reshape(1, 64, 64, 3).astype(np.uint8)
        try:
            first, again = (self.extract(image).vectors for _ in range(2))
        except UserError:
            raise
        except Exception as error:  # each model raises its own error where images alone are not enough
            reason = " ".join(str(error).split())[:300]
            raise UserError(f"{whose} cannot be given images alone ({reason})") from error
        if not np.allclose(first, again, rtol=0, atol=1e-3 * np.abs(first).max()):
            raise UserError(
                f"{whose} has other features for the same image again, as masked autoencoders do; accepted: models "
                "without random draws"
            )
        self._dimensions = first.shape[1]


def _vectors(pooled: "Tensor") -> "Tensor":
    """Flatten (m, d) or, from convolutional networks, (m, d, 1, 1) to (m, d)."""
    return pooled.flatten(1)


@contextmanager
def _seen(module: "Module", *, outputs: bool) -> "Generator[list[Any]]":
    """Record what ``module`` returns within the context, or (not ``outputs``) what it is given."""
    seen: list[Any] = []
    if outputs:
        handle = module.register_forward_hook(lambda _module, _given, returned: seen.append(returned))
    else:
        handle = module.register_forward_pre_hook(lambda _module, given: seen.append(given[0]))
    try:
        yield seen
    finally:
        handle.remove()
