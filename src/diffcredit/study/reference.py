"""The reference: what contributors are compared with, the value of a property without any of them.

Credits sum to F(all) − F(reference). The reference sets the level that all credits share and nothing else: a game's
coalitions and what distinguishes contributors do not depend on it, so that another reference needs no coalition again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from diffcredit.errors import UserError
from diffcredit.execution import Task
from diffcredit.ledger import Evaluation, Game
from diffcredit.ledger.purposes import REFERENCE_REPLICATES

if TYPE_CHECKING:
    from diffcredit.study.config import StudyConfig

ADAPTED = "lora"  # the family whose model without contributors is the pretrained pipeline, whatever it is called
Kind = Literal["house", "untrained", "pretrained", "stated"]


@dataclass(frozen=True)
class Reference:
    """A study's reference: its ``kind``, and ``words`` for people. ``has_house``: the empty coalition has the house
    images. ``stated``: the study file's numbers. ``evaluated``: it is a model that is no coalition's, and has an
    evaluation of its own."""

    kind: Kind
    words: str
    has_house: bool = False
    stated: Mapping[str, float] = field(default_factory=dict)
    evaluated: bool = False

    def tasks(self, n: int) -> list[Task]:
        """Return the reference's own evaluation, if it has one."""
        return [Task("0" * n, REFERENCE_REPLICATES[self.kind], "reference")] if self.evaluated else []

    def nobody(self, game: Game) -> float | Sequence[float]:
        """Return F(∅) of a game as ``estimate`` takes it: an untrained network's is known without noise."""
        return game.empty if self.has_house or not game.empty else game.empty[0]

    def value(self, prop: str, evaluations: Sequence[Evaluation], game: Game) -> float | Sequence[float]:
        """Return F(reference) of a property as ``estimate`` takes F(∅)."""
        if self.kind == "stated":
            if prop not in self.stated:
                raise UserError(f"reference: no number is stated for {prop}")
            return self.stated[prop]
        if not self.evaluated:
            return self.nobody(game)
        replicate = REFERENCE_REPLICATES[self.kind]
        for each in evaluations:
            if (each.purpose, each.replicate) == ("reference", replicate) and prop in each.measured:
                return each.measured[prop]
        raise UserError(f"reference: {self.words} is not evaluated yet; diffcredit run does that")


def reference_of(config: "StudyConfig") -> Reference:
    """Return the reference of a study file. It says ``house`` or ``untrained`` where the file does not."""
    given, has_house = config.reference, config.has_house
    if isinstance(given, Mapping):
        return Reference("stated", "the value stated in the study file", has_house, dict(given))
    kind: Kind = given or ("house" if has_house else "untrained")
    if kind == "house":
        return Reference(kind, "the model of the house images alone", has_house)
    if config.model.family == ADAPTED:
        return Reference(kind, "the pipeline without an adapter", has_house, evaluated=has_house)
    if kind == "pretrained":
        return Reference(kind, "the pretrained model as it came", has_house, evaluated=True)
    return Reference(kind, "the untrained network", has_house, evaluated=has_house)
