"""Pruning: a smaller model that keeps the channels, or the LoRA rank pairs, that matter most."""

from diffcredit.retraining.pruning.channels import prune
from diffcredit.retraining.pruning.ranks import prune_ranks
from diffcredit.retraining.pruning.sparsity import Sparsity

__all__ = ["Sparsity", "prune", "prune_ranks"]
