"""A study with its validation, whose ledger holds made-up values: games with known answers, nothing trained."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from diffcredit.coalitions import decode
from diffcredit.execution import Task
from diffcredit.ledger import Evaluation, Ledger, PropertyRecord, RecipeRecord, Value
from diffcredit.study.recipe import Recipe
from diffcredit.study.study import Study
from diffcredit.validation.data import ValidationData
from tiny_study import images_of, write_study

NAMES = ("ann", "bob", "cy", "dee", "eve", "flo", "gus", "hal")
WEIGHTS = np.array([4.0, 3.0, 2.5, 2.0, 1.0, 0.5, 0.25, -1.0])
VALIDATION = {"shares": [0.5], "coalitions": 20, "seeds": 2, "evaluations": 30}
OPTIONS = {"colourfulness": {"percentile": None}, "heldout_loss": {"time_steps": 2, "seed": 0, "batch_size": 256}}
SECONDS = {"training": 3.0, "sampling": 1.0}

Game = Callable[[np.ndarray], float]


def validated(folder: Path, changes: Mapping[str, Any] | None = None, names: Sequence[str] = NAMES) -> Path:
    """``study.yaml`` in ``folder``: the tiny study of ``names`` with two properties and a validation, nothing run."""
    images_of(folder / "images", list(names), each=2)
    settings = {
        "contributions": {"path": "images", "resolution": 16},
        "properties": [{"name": "colourfulness"}, {"name": "heldout_loss", "time_steps": 2}],
        "stop": {"evaluations": 30},
        "validation": VALIDATION,
    }
    return write_study(folder, {**settings, **(changes or {})})


def additive(weights: Sequence[float] | np.ndarray = WEIGHTS, noise: float = 0.0, seed: int = 0) -> Game:
    """A game whose credits are ``weights`` by any estimator, measured with normal noise."""
    random = np.random.default_rng(seed)
    return lambda coalition: float(np.asarray(weights)[coalition].sum() + noise * random.normal())


def record(
    recipe: Recipe,
    tasks: Iterable[Task],
    games: Mapping[str, Game],
    *,
    lower: Sequence[str] = (),
    failed: Callable[[Task], bool] = lambda task: False,
    unmeasured: Callable[[Task], bool] = lambda task: False,
    seconds: Mapping[str, float] = SECONDS,
) -> None:
    """Enters evaluations of ``tasks`` by a recipe: helpfulness by each property's game, which is −F of those
    ``lower``."""
    study = recipe.study
    with study.ledger() as ledger:
        enter(ledger, recipe, games, lower)
        for task in tasks:
            values = tuple(
                Value(name, None, error="unmeasured")
                if unmeasured(task)
                else Value(name, (-1 if name in lower else 1) * game(decode(task.coalition)))
                for name, game in games.items()
            )
            lost = failed(task)
            ledger.record(
                study.name,
                recipe.name,
                Evaluation(
                    task.coalition,
                    task.replicate,
                    task.purpose,
                    "failed" if lost else "done",
                    () if lost else values,
                    "Traceback\nValueError: lost" if lost else None,
                    {"device": "cpu"},
                    dict(seconds),
                    "w",
                    "2025-01-01T00:00:00+00:00",
                    "2025-01-01T00:00:04+00:00",
                ),
            )


def enter(ledger: Ledger, recipe: Recipe, games: Iterable[str], lower: Sequence[str] = ()) -> None:
    study = recipe.study
    ledger.register_study(study.name, {"contributors": list(study.contributions.contributors)})
    ledger.register_recipe(study.name, RecipeRecord(recipe.name, recipe.settings))
    for name in games:
        settings = {"name": name, **OPTIONS.get(name, {})}
        ledger.register_property(study.name, PropertyRecord(name, settings, name not in lower))


def planted(
    folder: Path, changes: Mapping[str, Any] | None = None, *, noise: float = 0.0, names: Sequence[str] = NAMES
) -> ValidationData:
    """The data of a study all of whose evaluations are those of an additive game; of ``heldout_loss`` less is
    better, and its game is the same turned round."""
    data = ValidationData(Study.load(validated(folder, changes, names)))
    weights = WEIGHTS[: len(names)]
    for seed, each in enumerate(data.recipes):
        games = {
            name: additive(weights, noise, seed=10 * seed + place)
            for place, name in enumerate(("colourfulness", "heldout_loss"))
        }
        for work in (data.design(each), data.leave_one_out(each)):
            record(each, work.missing(), games, lower=["heldout_loss"])
        if each.name == data.scratch.name:
            record(each, data.truth().missing(), games, lower=["heldout_loss"])
    return data
