"""The former place of :mod:`diffcredit.retraining.base`, from which plug-ins import."""

from diffcredit.retraining.base import Rehearsal, Retraining
from diffcredit.retraining.base import RetrainingContext as Ground

__all__ = ["Ground", "Rehearsal", "Retraining"]
