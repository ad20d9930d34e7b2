"""Pruning: a smaller model that keeps what matters most: channels, or heads, MLP units and blocks of a transformer, or
LoRA rank pairs."""

from diffcredit.retraining.pruning.channels import prune
from diffcredit.retraining.pruning.ranks import prune_ranks
from diffcredit.retraining.pruning.sparsity import Sparsity
from diffcredit.retraining.pruning.transformers import prune_transformer

__all__ = ["Sparsity", "prune", "prune_ranks", "prune_transformer"]
