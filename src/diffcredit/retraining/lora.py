"""LoRA fine-tuning: train low-rank updates of the attention, then add them to the weights."""

import importlib
from dataclasses import dataclass
from typing import Annotated, Any, cast

import torch
from annotated_types import Ge, Gt, Lt
from torch import nn

from diffcredit.contributions import Contributions
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.settings import Rank, Training
from diffcredit.errors import UserError
from diffcredit.retraining.base import Rehearsal, RetrainingContext
from diffcredit.retraining.fine_tune import FineTune
from diffcredit.retraining.pruning import Sparsity
from diffcredit.retraining.pruning.ranks import has_adapters
from diffcredit.retraining.pruning.sparsity import rehearsal_of, start_of
from diffcredit.util.seeds import derive_seed

PROJECTIONS = ("to_q", "to_k", "to_v")
ADAPTER = "coalition"


@dataclass
class LoRA(FineTune):
    """Fine-tune as :class:`FineTune` does, but only A (r, in) and B (out, r) of an update W + (``alpha``/r) B A of rank
    r = ``rank`` of every query, key and value projection W (Hu et al. 2022).

    A is drawn with the evaluation's seed and B starts at zero. ``dropout`` is the share of the update's inputs that are
    dropped in training. The update is then added to the weights, so a coalition's model has no adapter. It starts from
    the base model, or from the ``sparse`` one.
    """

    rank: Rank = 16
    alpha: Annotated[float, Gt(0)] = 32.0
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.05
    sparse: Sparsity | None = None

    def prepare(self, context: RetrainingContext) -> None:
        _check(context.base.network)
        start = start_of(context, self.sparse)
        self._frozen = _frozen(start)
        self.start_from(start, context)

    def rehearse(self, start: DiffusionModel, training: Training, contributions: Contributions) -> Rehearsal:
        _check(start.network)
        rehearsal = rehearsal_of(start, training, self.sparse, coalition=self.training(training))
        adapted = self._adapted(_frozen(rehearsal.model), seed=0)
        return Rehearsal(adapted, rehearsal.preparation, rehearsal.coalition, together=True)

    def begin(self, seed: int) -> DiffusionModel:
        return self._adapted(self._frozen, derive_seed(seed, "adapter"))

    def end(self, model: DiffusionModel) -> DiffusionModel:
        adapted, model = model, self.start.clone()
        with torch.no_grad():
            for name, layer in adapted.network.named_modules():
                if ADAPTER in getattr(layer, "lora_A", {}):
                    model.network.get_parameter(f"{name}.weight").add_(cast(Any, layer).get_delta_weight(ADAPTER))
        if isinstance(adapted, DiffusionModel):  # a plug-in need not record how its weights were computed
            model.made = adapted.made
        return model

    def _adapted(self, frozen: DiffusionModel, seed: int) -> DiffusionModel:
        """Return a copy of ``frozen`` that shares its weights and has a fresh adapter, the only trainable part."""
        peft = _peft()
        config = peft.LoraConfig(
            r=self.rank, lora_alpha=self.alpha, lora_dropout=self.dropout, target_modules=list(PROJECTIONS)
        )
        model = frozen.clone()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # the CPU's, from which peft draws
            peft.inject_adapter_in_model(config, model.network, ADAPTER)
        return model.to(frozen.device)


def _frozen(start: DiffusionModel) -> DiffusionModel:
    """Return a copy without trainable parameters, so that its own copies share all weights."""
    frozen = start.clone()
    frozen.network.requires_grad_(False)
    return frozen


def _check(network: nn.Module) -> None:
    if has_adapters(network):
        raise UserError(
            "method: 'lora' is for models without an adapter; this one is trained by its adapter "
            "alone, which 'fine_tune' trains on"
        )
    if not any(name.endswith(PROJECTIONS) for name, _ in network.named_modules()):
        raise UserError(
            f"method: 'lora' trains the attention's {', '.join(PROJECTIONS)}, and this network has no "
            "attention; accepted: a model.preset with attention, or another method"
        )
    _peft()


def _peft() -> Any:
    try:
        return importlib.import_module("peft")
    except ImportError:
        raise UserError("method: 'lora' needs the package peft: pip install \"diffcredit[lora]\"") from None
