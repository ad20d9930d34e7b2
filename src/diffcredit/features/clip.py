"""CLIP (Radford et al., 2021): images and texts in one space."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from diffcredit.errors import UserError, located
from diffcredit.features.base import Images, Precision
from diffcredit.features.network import NetworkExtractor

if TYPE_CHECKING:
    from torch import Tensor

TOKENIZER = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json")


@dataclass
class CLIP(NetworkExtractor):
    """The projected embedding of images, not normalised; the model's own image processor resizes them.

    ``model`` is a folder or a hub id of a CLIP model of transformers.
    """

    model: str = "openai/clip-vit-large-patch14"
    batch_size: Annotated[int, Ge(1)] = 32
    precision: Precision = "float32"

    label = "CLIP"

    @property
    def dimensions(self) -> int:
        return self._network.config.projection_dim

    def load(self, device: str) -> None:
        from diffcredit.features.torch_features import Checkpoint, transformers_package

        kind = transformers_package("clip").CLIPModel
        self._checkpoint = Checkpoint.find(self.model, "clip")
        self._network = self._checkpoint.load(kind)[0].to(device)
        self._processor = self._checkpoint.image_processor()
        self._device = device
        self._identity: dict[str, Any] = {
            **self._checkpoint.identity(),
            "resize": self._processor.described(),
            "layer": "projected embedding",
            "tokenizer": self._tokenizer_hash(),
        }

    def _described(self) -> dict[str, Any]:
        return self._identity

    def _forward(self, images: Images) -> "tuple[Tensor, None]":
        return _pooled(self._network.get_image_features(self._processor(images, self._device))), None

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return projected embeddings (len(texts), d), not normalised; texts longer than the model takes are cut."""
        from diffcredit.features.torch_features import as_array, inference

        tokenizer = self._tokenizer()
        parts = []
        for start in range(0, len(texts), self.batch_size):
            tokens = tokenizer(
                list(texts[start : start + self.batch_size]),
                padding="max_length",
                max_length=self._network.config.text_config.max_position_embeddings,
                truncation=True,
                return_tensors="pt",
            ).to(self._device)
            with inference(self.precision, self._device):
                found = self._network.get_text_features(tokens["input_ids"], tokens["attention_mask"])
            parts.append(as_array(_pooled(found)))
        return np.concatenate(parts)

    def _tokenizer(self) -> Any:
        """Load the tokenizer, which only texts need."""
        from transformers import CLIPTokenizer

        from diffcredit.diffusion.pretrained import loading, quiet
        from diffcredit.features.torch_features import KEY

        folder = self._checkpoint.folder
        there = {file.name for file in folder.iterdir()}
        if "tokenizer.json" not in there and not {"vocab.json", "merges.txt"} <= there:  # it would know no word
            raise UserError(f"{KEY}: {folder}: has neither tokenizer.json nor vocab.json and merges.txt")
        with located(KEY), loading(CLIPTokenizer, folder), quiet():
            return CLIPTokenizer.from_pretrained(folder, local_files_only=True)

    def _tokenizer_hash(self) -> str:
        from diffcredit.features.torch_features import KEY
        from diffcredit.features.weights import file_hash
        from diffcredit.util.artifacts import fingerprint

        folder = self._checkpoint.folder
        return fingerprint({name: file_hash(folder / name, KEY) for name in TOKENIZER if (folder / name).is_file()})


def _pooled(found: Any) -> "Tensor":
    """Return the embeddings (m, d), which transformers 4 returned directly."""
    return getattr(found, "pooler_output", found)
