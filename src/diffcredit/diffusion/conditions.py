"""What a network is conditioned on: a text or a class label, as a dict of tensors.

A network takes one or several tensors for each image: hidden states of a text with their mask, pooled states, the size
of the image, a class. Each is computed once for a text, alone, so that no bit of it depends on other texts; its shape
is the same for all texts.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

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
    """Makes conditions of texts, and keeps them on the CPU.

    ``pixels`` is the side of the images: some networks are told it.
    """

    fingerprint: str
    """SHA-256 of all that conditions depend on beside the text."""

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, int], Conditions] = {}

    @abstractmethod
    def encode(self, texts: Sequence[str | None], pixels: int, device: torch.device) -> Iterable[Conditions]:
        """Yield the condition of each of ``texts``, computed on ``device``, without a leading dimension."""

    def embed(self, texts: Sequence[str | None], pixels: int, device: torch.device | str = "cpu") -> Conditions:
        """Return the conditions (k, …) of k ``texts`` on ``device``; each is computed once."""
        new = [text for text in dict.fromkeys(texts) if (text, pixels) not in self._known]
        if new:
            with torch.no_grad():
                for text, condition in zip(new, self.encode(new, pixels, torch.device(device)), strict=True):
                    self._known[text, pixels] = {name: each.cpu() for name, each in condition.items()}
        found = [self._known[text, pixels] for text in texts]
        return {name: torch.stack([each[name] for each in found]).to(device) for name in found[0]}


class ClassLabels(Conditioner):
    """The place of a label among ``names``; nothing is the place after the last."""

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
