"""The study's record: what it takes to compute its tables again, without CIFAR-100's images and without a GPU, and to
go on with it on another machine.

    python -m benchmarks.cifar20.record            # makes it anew from the study's results
    python -m benchmarks.cifar20.record --unpack   # the results of it, on a machine that has none

It has the ledgers as ``diffcredit export`` writes them, of the study, of the paper's own draws and of unlearning, the
baselines' credits, the surrogates' values, those parts of the evidence that look at images, and the base model with its
pruned copy, which evaluations start from.
"""

import argparse
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml

from benchmarks.evidence.runs import baselines
from diffcredit.baselines import BaselineCredits
from diffcredit.baselines.study import StudyBaseline, helpfulness
from diffcredit.cli.export import export
from diffcredit.errors import UserError
from diffcredit.ledger import Ledger
from diffcredit.ledger.archive import read_archive
from diffcredit.study.recipe import Recipe
from diffcredit.study.study import Study
from diffcredit.util.artifacts import atomic_file
from diffcredit.validation.data import ValidationData
from diffcredit.validation.presentation.writing import read_section, write_section
from diffcredit.validation.statistics.records import RecipeGame, game_credits

STUDY = Path(__file__).parents[2] / "studies" / "cifar20-h200" / "study.yaml"
PAPER = STUDY.with_name("paper.yaml")
"""The same study with coalitions as the paper draws them."""
UNLEARNING = STUDY.with_name("unlearning.yaml")
"""How near recipes come to retraining."""
RECORD = STUDY.parent / "record"
CLASSES = STUDY.parent / "classifier.json"
"""What contributors' images show, in the order of their numbers, and how well the classifier knows it."""
LEDGER, DRAWN, UNLEARNED = "ledger.zip", "paper.zip", "unlearning.zip"
CREDITS, METHODS, SURROGATES, SEEN, MODELS = "baselines.csv", "baselines", "surrogates", "validation", "models"
STARTS = "base-*", "sparse-*"
"""Models that evaluations start from."""
PAPERS = "the paper's"
"""The kind of credits by its own draws and its own estimator."""
GENERATED, GIVEN = ("images", "counterfactual", "unlearning"), ("contributors",)
"""Parts of the evidence that look at images: at models' own, and at contributors', which may not be passed on."""
LOOKING = (*GENERATED, *GIVEN)


def pack(study: Study, record: Path, paper: Study | None = None, unlearning: Study | None = None) -> None:
    """Makes ``record`` hold what the results of ``study`` have, and those of the ``paper``'s draws and of
    ``unlearning`` if there are any."""
    if record.exists():
        shutil.rmtree(record)
    (record / SURROGATES).mkdir(parents=True)
    export(str(study.file), record / LEDGER)
    others = [(each, name) for each, name in ((paper, DRAWN), (unlearning, UNLEARNED)) if each and _begun(each)]
    for each, name in others:
        export(str(each.file), record / name)
    if (study.folder / CREDITS).exists():
        shutil.copy(study.folder / CREDITS, record / CREDITS)
    if (study.folder / METHODS).exists():
        shutil.copytree(study.folder / METHODS, record / METHODS, ignore=lambda _, names: _not_json(names))
    models = study.cache.folder
    for file in sorted(models.glob("surrogate-*.json")):
        shutil.copy(file, record / SURROGATES / file.name)
    for folder in (folder for start in STARTS for folder in models.glob(start)):
        shutil.copytree(folder, record / MODELS / folder.name)
    for part in LOOKING:
        for each in (study, *(each for each, _ in others)):
            if (each.folder / SEEN / part).exists():
                section = read_section(each.folder / SEEN / part)
                write_section(replace(section, photographs=()) if part in GIVEN else section, record / SEEN / part)


def unpack(record: Path, study: Study, paper: Study, unlearning: Study) -> None:
    """The other way round: results that `work.py` and ``diffcredit`` go on with."""
    archives = ((study, LEDGER), (paper, DRAWN), (unlearning, UNLEARNED))
    for each, _ in archives:
        if _begun(each):
            raise UserError(f"{each.folder / 'ledger.db'}: already exists; unpacking is for a machine without results")
    for each, name in archives:
        if (record / name).exists():
            _restore(record / name, each.folder)
    models = study.cache.folder
    for name, place in {SURROGATES: models, MODELS: models, METHODS: study.folder / METHODS}.items():
        if (record / name).exists():
            shutil.copytree(record / name, place, dirs_exist_ok=True)
    shutil.copytree(record / SEEN, study.folder / SEEN, dirs_exist_ok=True)
    shutil.copy(record / CREDITS, study.folder / CREDITS)


def _begun(study: Study) -> bool:
    return (study.folder / "ledger.db").exists()


def _not_json(names: Sequence[str]) -> list[str]:
    return [name for name in names if not name.endswith(".json")]


def _restore(archive: Path, folder: Path) -> dict[str, Any]:
    """The ledger of ``archive`` in ``folder``, and the study's settings."""
    rows, head, settings = read_archive(archive)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / "ledger.db") as temporary:
        temporary.unlink()  # the database makes it
        with Ledger.open(temporary) as ledger:
            ledger.restore(rows, head)
    return settings


class Unchanging(ValidationData):
    """Of a ledger that nobody writes to: what it says is read once."""

    @cache  # noqa: B019 - both are gone with the page
    def game(self, recipe: Recipe, prop: str) -> RecipeGame | None:
        return super().game(recipe, prop)


@contextmanager
def recorded(record: Path) -> Iterator[ValidationData]:
    """The contest of the study as it was recorded, in a folder of its own."""
    with TemporaryDirectory() as place:
        study = restored(record / LEDGER, Path(place) / "study")
        for file in (record / SURROGATES).glob("*.json"):
            shutil.copy(file, study.cache.folder / file.name)
        kept = record / CREDITS
        others = baselines(study, kept) if kept.exists() else []
        if (record / DRAWN).exists():
            others += papers_own(ValidationData(restored(record / DRAWN, Path(place) / "paper"), baselines=[]))
        yield Unchanging(study, baselines=others)


def restored(archive: Path, folder: Path) -> Study:
    """An exported study. Of its contributions there is one black image each: tables ask only who took part."""
    settings = _restore(archive, folder)
    (folder / MODELS).mkdir()
    with Ledger.open(folder / "ledger.db") as ledger:
        contributors = ledger.settings(settings["name"])["contributors"]
    names = np.array([int(name) if name.isdecimal() else name for name in contributors])
    black = np.zeros((len(names), 8, 8, 3), np.uint8)
    np.savez(folder / "black.npz", images=black, who=names)
    contributions = {"source": "npz", "path": "black.npz", "contributor": "who", "resolution": 32}
    settings |= {"contributions": contributions, "results": ".", "artifacts": ".", "device": "cpu"}
    (folder / "study.yaml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    for code in STUDY.parent.glob("*.py"):  # where properties may come from
        shutil.copy(code, folder / code.name)
    study = Study.load(folder)
    study.compared = True  # its images stand in for those that the ledger knows
    return study


def papers_own(contest: ValidationData) -> list[StudyBaseline]:
    """Credits by the paper's own draws, the first hundred, two hundred, and so on up to all: by its estimator, and by
    ours, which separates the effect of the draws from that of the estimator."""
    found = []
    for prop, about in contest.properties.items():
        game = contest.game(contest.study.recipe, prop)
        if game is None:
            continue
        every = len(game.values)
        for estimator, count in product(("kernelshap", "shapley"), (*range(100, every, 100), every)):
            # of the property itself, as a baseline's: the game's values are helpfulness
            credits = helpfulness(game_credits(game, estimator, slice(count)), about.higher_is_better)
            seconds = float(np.nansum(game.seconds[:count]))
            own = BaselineCredits(f"{estimator}, {count} of the paper's draws", "", credits, seconds=seconds)
            kind = PAPERS if estimator == "kernelshap" else "shapley"
            found.append(StudyBaseline("The paper's", kind, prop, own, about.higher_is_better))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="The record of studies/cifar20-h200.")
    parser.add_argument("--unpack", action="store_true", help="make the results of it, to go on with")
    studies = [Study.load(file) for file in (STUDY, PAPER, UNLEARNING)]
    if parser.parse_args().unpack:
        try:
            unpack(RECORD, *studies)
        except UserError as error:
            raise SystemExit(str(error)) from None
        return
    pack(studies[0], RECORD, *studies[1:])
    for file in sorted(RECORD.rglob("*")):
        if file.is_file():
            print(f"{file.relative_to(RECORD)}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
