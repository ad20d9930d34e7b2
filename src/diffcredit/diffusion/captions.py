"""Captions: the order in which they are generated, and an encoder for networks that are trained from scratch."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diffcredit.diffusion.conditions import Conditioner, Conditions
from diffcredit.diffusion.pretrained import (
    folder_of,
    load_pretrained,
    load_tokenizer,
    loading,
    read_json,
    weights_fingerprint,
)
from diffcredit.errors import UserError
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.seeds import derive_seed

TOKENS = 32  # of a caption; more are cut off, since captions of training images are short
KINDS = {  # text encoders of transformers, with their tokenizers
    "BertModel": "BertTokenizerFast",
    "CLIPTextModel": "CLIPTokenizerFast",
    "T5EncoderModel": "T5TokenizerFast",
}


def mixed(texts: Iterable[str]) -> list[str]:
    """Return the distinct ``texts`` in a mixed order, so that a few images already follow texts of all kinds; other
    texts do not change the order."""
    return sorted(set(texts), key=lambda text: derive_seed("prompt", text))


class CaptionEncoder(Conditioner):
    """A text encoder of transformers in ``folder``: hidden states of ``TOKENS`` tokens (of fewer where it takes no
    more), 0 where there is none, and their mean."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        config = read_json(folder / "config.json")
        kind = next(iter(config.get("architectures") or [None]))
        if kind not in KINDS:
            file = folder / "config.json"
            raise UserError(f"{file}: architectures {kind!r}; accepted: {', '.join(KINDS)}")
        self.kind: str = kind
        self.reference = folder
        self.tokens = min(TOKENS, config.get("max_position_embeddings", TOKENS))
        self.fingerprint = fingerprint(["captions", weights_fingerprint(folder), self.tokens])

    @cached_property
    def _encoder(self) -> Any:
        """The network, read at the first caption that is not known."""
        return load_pretrained(self.network, self.reference).requires_grad_(False)

    @property
    def network(self) -> Any:
        """The class of the text encoder."""
        return self._transformers(self.kind)

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self._transformers(KINDS[self.kind]), self.reference)

    @staticmethod
    def _transformers(name: str) -> Any:
        import transformers

        return getattr(transformers, name)

    @property
    def widths(self) -> dict[str, int]:
        """The widths of hidden and pooled states."""
        with loading(self.network, self.reference):
            width = self.network.config_class.from_pretrained(self.reference, local_files_only=True).hidden_size
        return {"hidden": width, "pooled": width}

    def encode(self, texts: Sequence[str | None], pixels: int, device: torch.device) -> Iterable[Conditions]:
        self._encoder.to(device)
        try:
            for text in texts:
                yield self._states(text or "", device)
        finally:
            self._encoder.to("cpu")

    def _states(self, text: str, device: torch.device) -> Conditions:
        options: Mapping[str, Any] = {"padding": "max_length", "max_length": self.tokens, "truncation": True}
        tokens = self._tokenizer(text, return_tensors="pt", **options).to(device)
        seen: Tensor = tokens.attention_mask[0, :, None].float()
        hidden = self._encoder(tokens.input_ids, attention_mask=tokens.attention_mask)[0][0].float() * seen
        return {"encoder_hidden_states": hidden, "pooled_projections": hidden.sum(0) / seen.sum().clamp(min=1)}


@lru_cache(maxsize=2)
def caption_encoder(reference: str) -> CaptionEncoder:
    """Return the encoder in a folder or of a hub id."""
    return CaptionEncoder(folder_of(reference))
