"""A study with a payout policy whose ledger holds made-up values: contributors' true credits are known, nothing is
trained."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diffcredit.study.entered import enter_stated
from diffcredit.study.manifest import enter_images, enter_terms
from diffcredit.study.published import publish
from diffcredit.study.study import Study
from tiny_study import changed, images_of, write_study
from validated_study import additive, enter, record

WORTHS = {"ann": 4.0, "bob": 2.5, "cy": 1.0, "dee": -1.0}
POLICY: dict[str, Any] = {
    "property": "colourfulness",
    "fixed": "equal",
    "merit": "help",
    "r": 0.4,
    "currency": "EUR",
}
PROPERTIES = ["colourfulness", {"name": "heldout_loss", "time_steps": 2}]


def stated(
    folder: Path,
    changes: Mapping[str, Any] | None = None,
    *,
    names: tuple[str, ...] = tuple(WORTHS),
    images: int = 2,
) -> Path:
    """``study.yaml`` in ``folder`` with images of ``names`` and the policy, nothing evaluated."""
    images_of(folder / "images", list(names), each=images)
    settings = {
        "contributions": {"path": "images", "resolution": 16},
        "properties": PROPERTIES,
        "stop": {"evaluations": 30},
        "payout": POLICY,
    }
    return write_study(folder, changed(settings, dict(changes or {})))


def evaluated(
    file: Path, worths: Mapping[str, float] | None = None, *, noise: float = 0.1, game: Callable | None = None
) -> Path:
    """Enter the stated policy and made-up evaluations until the study is finished, as a run does. ``worths`` are by
    player; of the held-out loss, of which less is better, they are negative."""
    study = Study.load(file)
    players = study.contributions.contributors
    given = WORTHS if worths is None else worths
    game = game or additive(np.array([given[name] for name in players]), noise)
    games = {"colourfulness": game, "heldout_loss": game}
    with study.ledger() as ledger:
        ledger.register_study(study.name, {"contributors": list(players)})
        enter_stated(study, ledger, ["colourfulness", "heldout_loss"])
        enter(ledger, study.recipe, games, ["heldout_loss"])
    while tasks := list(study.schedule().pending()):
        record(study.recipe, tasks, games, lower=["heldout_loss"])
    return file


def published(file: Path) -> Path:
    """Enter what a run enters beside evaluations, and publish the credits."""
    study = Study.load(file)
    with study.ledger() as ledger:
        enter_images(study, ledger, study.contributions)
        enter_terms(study, ledger)
    publish(study)
    return file
