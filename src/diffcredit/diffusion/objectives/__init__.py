"""Objectives: how images are noised, what the network is to predict, and how its predictions become images.

Two families: a noise schedule (:mod:`~diffcredit.diffusion.objectives.noise_schedule`, with ε-, v- or x-prediction) and
flow matching (:mod:`~diffcredit.diffusion.objectives.flow`).
"""

from collections.abc import Mapping
from typing import Any

from diffcredit.diffusion.objectives.base import Objective, Sampler
from diffcredit.diffusion.objectives.flow import FlowMatching
from diffcredit.diffusion.objectives.noise_schedule import NoiseSchedule

__all__ = ["FlowMatching", "NoiseSchedule", "Objective", "Sampler", "objective_from"]


def objective_from(config: Mapping[str, Any]) -> Objective:
    """Return the objective with this ``config``, as :attr:`Objective.config` gives it."""
    return FlowMatching.from_config(config) if "density" in config else NoiseSchedule(config)
