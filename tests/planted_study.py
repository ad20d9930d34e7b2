"""A study whose ledger holds made-up values: credits with known answers, nothing trained."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from diffcredit.coalitions import encode, make_design
from diffcredit.ledger import Evaluation, Ledger, PropertyRecord, RecipeRecord, Value
from tiny_study import write_study


def plant(
    folder: Path,
    contributors: Sequence[str],
    games: dict[str, Callable[[np.ndarray], float]],
    *,
    recipe: str = "sparsified",
    steps: int = 1,
    evaluations: int = 40,
    lower: Sequence[str] = (),
) -> Path:
    """``study.yaml`` in ``folder``, with ``games`` (each property's value for a coalition, (n,) booleans) evaluated;
    called again, another recipe of the same study. Of the properties ``lower`` less is better."""
    file = write_study(folder)
    n = len(contributors)
    settings = {"retraining": {"method": recipe, "steps": steps}, "seed": 0}
    with Ledger.open(folder / "results" / "ledger.db") as ledger:
        ledger.register_study("tiny", {"contributors": list(contributors)})
        ledger.register_recipe("tiny", RecipeRecord(recipe, settings))
        for name in games:
            ledger.register_property("tiny", PropertyRecord(name, {}, name not in lower))
        drawn = make_design("uniform", 0).draw(n, 0, evaluations)
        seen: Counter[str] = Counter()
        for purpose, coalitions in (("endpoint", np.array([[False] * n, [True] * n])), ("estimate", drawn)):
            for coalition in coalitions:
                text = encode(coalition)
                values = tuple(Value(name, float(game(coalition))) for name, game in games.items())
                evaluation = Evaluation(text, seen[text], purpose, "done", values, None, {}, {}, "", "", "")
                ledger.record("tiny", recipe, evaluation)
                seen[text] += 1
    return file


def additive(weights: Sequence[float], noise: float = 0.0, seed: int = 0) -> Callable[[np.ndarray], float]:
    """A game whose Shapley values are ``weights``, measured with normal noise."""
    random = np.random.default_rng(seed)
    return lambda coalition: float(np.asarray(weights)[coalition].sum() + noise * random.normal())
