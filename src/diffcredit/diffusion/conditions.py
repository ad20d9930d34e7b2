"""Conditions of a network: a text or a class label, as a dict of tensors.

A network takes one or several tensors for each image: hidden states of a text with their mask, pooled states, the size
of the image, a class. Each is computed once for a text, alone, so that no bit of it depends on other texts; its shape
is the same for all texts.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from diffcredit.diffusion.kept_conditions import files_of, read_conditions, write_conditions
from diffcredit.errors import UserError
from diffcredit.util.artifacts import fingerprint

Conditions = dict[str, Tensor]
NOTHING = None
"""In place of a text: the condition of classifier-free guidance that asks for no image in particular."""


def selected(conditions: Mapping[str, Tensor], index: Tensor) -> Conditions:
    """Return the conditions at ``index`` (k,), given several (m, …); a tensor on the CPU is moved to the index's
    device."""
    return {
        name: each.index_select(0, index)
        if each.device == index.device
        else each.index_select(0, index.to(each.device)).to(index.device, non_blocking=True)
        for name, each in conditions.items()
    }


def joined(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> Conditions:
    """Return the conditions of two batches, one after the other."""
    return {name: torch.cat([each, second[name]]) for name, each in first.items()}


class Conditioner(ABC):
    """Makes conditions of texts, each once, and keeps them on the CPU and in a folder, if it is given one.

    ``pixels`` is the side of the images: some networks are told it.
    """

    fingerprint: str
    """SHA-256 of all that conditions depend on beside the text."""

    costly: ClassVar[bool] = True
    """Whether conditions are worth keeping for other processes."""

    kept_in: Path | None = None
    """The folder where they are kept, if any."""

    def __init__(self) -> None:
        # the tensors (k, …) that a text's condition is in, and its place there
        self._known: dict[tuple[str | None, int], tuple[Conditions, int]] = {}
        self._read: set[Path] = set()

    @abstractmethod
    def encode(self, texts: Sequence[str | None], pixels: int, device: torch.device) -> Iterable[Conditions]:
        """Yield the condition of each of ``texts``, computed on ``device``, without a leading dimension."""

    def embed(self, texts: Sequence[str | None], pixels: int, device: torch.device | str = "cpu") -> Conditions:
        """Return the conditions (k, …) of k ``texts`` on ``device``. They must not be changed in place."""
        if self._missing(texts, pixels):
            self._read_kept(pixels)
        if new := self._missing(texts, pixels):
            self._compute(new, pixels, torch.device(device))
        found = [self._known[text, pixels] for text in texts]
        block = found[0][0]
        if all(each is block for each, _ in found) and [place for _, place in found] == list(range(_length(block))):
            return {name: each.to(device) for name, each in block.items()}  # all that were made together: no copy
        return {name: torch.stack([own[name][place] for own, place in found]).to(device) for name in block}

    def _missing(self, texts: Sequence[str | None], pixels: int) -> list[str | None]:
        return [text for text in dict.fromkeys(texts) if (text, pixels) not in self._known]

    def _compute(self, texts: list[str | None], pixels: int, device: torch.device) -> None:
        """Compute the conditions of ``texts``, and keep them."""
        block: Conditions = {}
        with torch.no_grad():
            made = zip(texts, self.encode(texts, pixels, device), strict=True)
            for place, (_, condition) in enumerate(made):
                for name, each in condition.items():
                    if place == 0:
                        block[name] = torch.empty(len(texts), *each.shape, dtype=each.dtype)
                    block[name][place] = each
        if self.kept_in is not None:
            file = write_conditions(self.kept_in, self._identity(pixels), texts, block)
            self._read.add(file)
            _, block = read_conditions(file, self._identity(pixels))  # the file's memory in place of our own
        self._remember(texts, pixels, block)

    def _read_kept(self, pixels: int) -> None:
        """Read the conditions that other processes have kept."""
        for file in [] if self.kept_in is None else files_of(self.kept_in, self._identity(pixels)):
            if file not in self._read:
                self._read.add(file)
                texts, block = read_conditions(file, self._identity(pixels))
                self._remember(texts, pixels, block)

    def _remember(self, texts: Sequence[str | None], pixels: int, block: Conditions) -> None:
        for place, text in enumerate(texts):
            self._known.setdefault((text, pixels), (block, place))

    def _identity(self, pixels: int) -> str:
        return fingerprint([self.fingerprint, pixels])


def _length(block: Conditions) -> int:
    return len(next(iter(block.values())))


class ClassLabels(Conditioner):
    """The place of a label among ``names``; nothing is the place after the last."""

    costly = False

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        self.fingerprint = fingerprint(["class labels", self.names])

    def encode(self, texts: Sequence[str | None], pixels: int, device: torch.device) -> Iterable[Conditions]:
        for text in texts:
            yield {"class_labels": torch.tensor(self.place(text), device=device)}

    def place(self, text: str | None) -> int:
        """Return the class of a label."""
        if text is NOTHING:
            return len(self.names)
        if text not in self.names:
            known = ", ".join(self.names[:8]) + (", …" if len(self.names) > 8 else "")
            raise UserError(f"the label {text!r} is unknown; the model's {len(self.names)} classes: {known}")
        return self.names.index(text)
