"""The study's record: what it takes to compute its tables again, without CIFAR-100's images and without a GPU.

    python -m benchmarks.cifar20.record

makes it anew from the study's results: the ledger as ``diffcredit export`` writes it, that of the paper's own draws,
the baselines' credits, the surrogates' values, and those parts of the evidence that look at images.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import yaml

from benchmarks.evidence.runs import baselines
from diffcredit.baselines import BaselineCredits
from diffcredit.cli.export import export
from diffcredit.contest import Contest
from diffcredit.ledger import Ledger
from diffcredit.ledger.archive import read_archive
from diffcredit.study import Study
from diffcredit.study_baselines import StudyBaseline, helpfulness
from diffcredit.validation.crediting import credits_of
from diffcredit.validation.writing import read_section, write_section

STUDY = Path(__file__).parents[2] / "studies" / "cifar20-h200" / "study.yaml"
PAPER = STUDY.with_name("paper.yaml")
"""The same study with coalitions as the paper draws them."""
RECORD = STUDY.parent / "record"
CLASSES = STUDY.parent / "classifier.json"
"""What contributors' images show, in the order of their numbers, and how well the classifier knows it."""
LEDGER, DRAWN, CREDITS, SURROGATES, SEEN = "ledger.zip", "paper.zip", "baselines.csv", "surrogates", "validation"
PAPERS = "the paper's"
"""The kind of credits by its own draws and its own estimator."""
GENERATED, GIVEN = ("images", "counterfactual", "unlearning"), ("contributors",)
"""Parts of the evidence that look at images: at models' own, and at contributors', which may not be passed on."""
LOOKING = (*GENERATED, *GIVEN)


def pack(study: Study, record: Path, paper: Study | None = None) -> None:
    """Makes ``record`` hold what the results of ``study`` have, and those of the ``paper``'s draws if there are any."""
    if record.exists():
        shutil.rmtree(record)
    (record / SURROGATES).mkdir(parents=True)
    export(str(study.file), record / LEDGER)
    if paper is not None and (paper.folder / "ledger.db").exists():
        export(str(paper.file), record / DRAWN)
    if (study.folder / CREDITS).exists():
        shutil.copy(study.folder / CREDITS, record / CREDITS)
    for file in sorted((study.artifacts / "models").glob("surrogate-*.json")):
        shutil.copy(file, record / SURROGATES / file.name)
    for part in LOOKING:
        if (study.folder / SEEN / part).exists():
            section = read_section(study.folder / SEEN / part)
            write_section(replace(section, photographs=()) if part in GIVEN else section, record / SEEN / part)


@contextmanager
def recorded(record: Path) -> Iterator[Contest]:
    """The contest of the study as it was recorded, in a folder of its own."""
    with TemporaryDirectory() as place:
        study = restored(record / LEDGER, Path(place) / "study")
        for file in (record / SURROGATES).glob("*.json"):
            shutil.copy(file, study.artifacts / "models" / file.name)
        kept = record / CREDITS
        others = baselines(study, kept) if kept.exists() else []
        if (record / DRAWN).exists():
            others += papers_own(Contest(restored(record / DRAWN, Path(place) / "paper"), []))
        yield Contest(study, others)


def restored(archive: Path, folder: Path) -> Study:
    """An exported study. Of its contributions there is one black image each: tables ask only who took part."""
    rows, head, settings = read_archive(archive)
    (folder / "models").mkdir(parents=True)
    with Ledger.open(folder / "ledger.db") as ledger:
        ledger.restore(rows, head)
        contributors = ledger.studies()[settings["name"]]["contributors"]
    names = np.array([int(name) if name.isdecimal() else name for name in contributors])
    black = np.zeros((len(names), 8, 8, 3), np.uint8)
    np.savez(folder / "black.npz", images=black, who=names)
    contributions = {"source": "npz", "path": "black.npz", "contributor": "who", "resolution": 32}
    settings |= {"contributions": contributions, "results": ".", "artifacts": ".", "device": "cpu"}
    (folder / "study.yaml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    for code in STUDY.parent.glob("*.py"):  # where properties may come from
        shutil.copy(code, folder / code.name)
    return Study.load(folder)


def papers_own(contest: Contest) -> list[StudyBaseline]:
    """Credits by the paper's own draws, the first hundred, two hundred, and so on up to all: by its estimator, and by
    ours, which tells what is the draws' and what is the estimator's."""
    found = []
    for prop, about in contest.properties.items():
        game = contest.game(contest.study, prop)
        if game is None:
            continue
        every = len(game.values)
        for estimator, count in product(("kernelshap", "shapley"), (*range(100, every, 100), every)):
            # of the property itself, as a baseline's: the game's values are helpfulness
            credits = helpfulness(credits_of(game, estimator, slice(count)), about.higher_is_better)
            seconds = float(np.nansum(game.seconds[:count]))
            own = BaselineCredits(f"{estimator}, {count} of the paper's draws", "", credits, seconds=seconds)
            kind = PAPERS if estimator == "kernelshap" else "shapley"
            found.append(StudyBaseline("The paper's", kind, prop, own, about.higher_is_better))
    return found


def main() -> None:
    pack(Study.load(STUDY), RECORD, Study.load(PAPER))
    for file in sorted(RECORD.rglob("*")):
        if file.is_file():
            print(f"{file.relative_to(RECORD)}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
