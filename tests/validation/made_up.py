"""Games of recipes with known values and seconds."""

import numpy as np

from diffcredit.coalitions import make_design
from diffcredit.testing.games import all_coalitions
from diffcredit.validation.parts import PARTS
from diffcredit.validation.presentation.sections import PartResult
from diffcredit.validation.statistics import RecipeGame, Truth


def recipe_game(
    game,
    coalitions,
    *,
    recipe="sparsified",
    method="sparsified",
    steps=1000,
    design="uniform",
    training=4.0,
    sampling=6.0,
    preparation=0.0,
):
    """``game`` evaluated on ``coalitions`` and once on each endpoint."""
    m, n = coalitions.shape
    return RecipeGame(
        recipe=recipe,
        method=method,
        steps=steps,
        size_distribution=design,
        coalitions=coalitions,
        values=game(coalitions),
        empty=tuple(game(np.zeros((1, n), bool))),
        full=tuple(game(np.ones((1, n), bool))),
        training_seconds=np.broadcast_to(np.asarray(training, float), m),
        sampling_seconds=np.broadcast_to(np.asarray(sampling, float), m),
        preparation=preparation,
    )


def uniform(n, m, seed=0):
    return make_design("uniform", seed).draw(n, 0, m)


def truth_of(game, n, count=60, share=0.5, seeds=1, seed=7):
    coalitions = make_design(f"subset({share})", seed).draw(n, 0, count)
    return Truth(share, coalitions, np.stack([game(coalitions) for _ in range(seeds)], axis=1))


def inner_coalitions(n):
    """All but the empty and the full one."""
    return all_coalitions(n)[1:-1]


def section_of(part, numbers, photographs=()):
    """The section of a part with these numbers."""
    return PARTS[part].section(PartResult(numbers, tuple(photographs)))
