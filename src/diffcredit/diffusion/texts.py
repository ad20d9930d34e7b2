"""The text encoders of a pipeline, as the conditioner of its network: loaded when a text is to be encoded."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from diffcredit.diffusion.conditions import NOTHING, Conditioner, Conditions
from diffcredit.diffusion.denoisers.base import TextDenoiser
from diffcredit.diffusion.pretrained import load_pretrained, load_tokenizer, quiet, weights_fingerprint
from diffcredit.errors import UserError
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.plugins import code_of

MISSING_PACKAGES = 'text-to-image models need transformers and peft: pip install "diffcredit[lora]"'


class TextEncoders(Conditioner):
    """The text encoders in a pipeline's ``folder``, in numbers of ``dtype``. ``index`` is its ``model_index.json``.

    They are read at the first text that is not known, are on the device only while they encode, and are then given
    back where the network has a bf16 base: the encoders of such pipelines are as large as the network.
    """

    def __init__(self, folder: Path, denoiser: TextDenoiser, index: Mapping[str, Any], dtype: torch.dtype) -> None:
        super().__init__()
        self.folder, self.denoiser, self.index, self.dtype = folder, denoiser, index, dtype
        self._pipeline: Any = None

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the text encoders and of how they are used."""
        folders = [self.folder / name for name in self.denoiser.parts]
        parts = {folder.name: weights_fingerprint(folder) for folder in folders if folder.is_dir()}
        told = {name: self.index[name] for name in self.denoiser.told if name in self.index}
        kind = [self.index["_class_name"], type(self.denoiser).__name__, code_of(self.denoiser)]
        return fingerprint([kind, parts, told, str(self.dtype)])

    def encode(self, texts: Sequence[str | None], pixels: int, device: torch.device) -> Iterable[Conditions]:
        pipeline = self._pipeline or self._load()
        try:
            pipeline.to(device)
            for text in texts:
                if text is NOTHING:
                    yield self.denoiser.nothing(pipeline, pixels)
                else:
                    yield self.denoiser.encode(pipeline, text, pixels)
        finally:
            self._pipeline = None if self.dtype == torch.bfloat16 else pipeline.to("cpu")

    def _load(self) -> Any:
        import diffusers

        parts = {name: self._part(name, accepted) for name, accepted in self.denoiser.parts.items()}
        for name in [name for name in parts if name.startswith("tokenizer")]:
            encoder = parts.get(name.replace("tokenizer", "text_encoder"))
            known = getattr(getattr(encoder, "config", None), "vocab_size", None)
            if parts[name] is not None and known is not None and (tokens := len(parts[name])) > known:
                raise UserError(f"{self.folder / name}: {tokens} tokens; the text encoder knows {known}")
        with quiet():
            return self.denoiser.text_pipeline(getattr(diffusers, self.index["_class_name"]), parts, self.index)

    def _part(self, name: str, accepted: Sequence[str]) -> Any:
        """Return a text encoder or tokenizer; None where the pipeline was saved without it."""
        try:
            import transformers
        except ImportError:
            raise UserError(MISSING_PACKAGES) from None
        where = self.folder / name
        if name not in self.index and not where.is_dir():
            return None
        _, kind = self.index.get(name, (None, accepted[0]))
        if kind is None:
            return None
        if kind not in accepted:
            raise UserError(f"{self.folder / 'model_index.json'}: {name} {kind!r}; accepted: {', '.join(accepted)}")
        if "Tokenizer" in kind or "Processor" in kind:
            return load_tokenizer(getattr(transformers, kind), where)
        return self._loaded(getattr(transformers, kind), where)

    def _loaded(self, kind: Any, folder: Path) -> Any:
        return load_pretrained(kind, folder, self.dtype).requires_grad_(False)
