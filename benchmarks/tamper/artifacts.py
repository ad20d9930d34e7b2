"""Changes to files that a study made beside its ledger: surrogates' values in ``models/``, and ``validation/``."""

import itertools
import json
import shutil
import warnings
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import yaml

from benchmarks.tamper.copies import Copy
from benchmarks.tamper.judging import Read
from benchmarks.tamper.shown import Shown, shown
from benchmarks.tamper.untouched import NOISE, WORTHS, Untouched
from benchmarks.tamper.values import Impossible, other_json
from diffcredit.study.study import Study
from diffcredit.util.artifacts import write_text
from diffcredit.validation.validate import kept_sections

SURROGATE, PART = "pools", "convergence"
FOLDERS = ("models", "validation")


class Evidenced(Copy):
    """A copy whose reader is shown the evidence for its credits too."""

    def reads(self) -> list[Read]:
        return [*super().reads(), partial(shown_evidence, self.file)]


class Artifacts:
    """Copies of a study with a surrogate, whose values are made up, and with a part of its validation."""

    def __init__(self, untouched: Untouched, folder: Path) -> None:
        self._untouched, self._folder, self._source = untouched, folder, folder.with_name(f"{folder.name}, untouched")
        shutil.copytree(untouched.file.parent, self._source)
        file = self._source / "study.yaml"
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
        file.write_text(yaml.safe_dump({**settings, "surrogates": [SURROGATE]}, sort_keys=False), encoding="utf-8")
        study = Study.load(file)
        write_surrogate(study)
        study.validate([PART])

    def fresh(self) -> Evidenced:
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._source, self._folder)
        return Evidenced(self._folder, "", self._untouched.head)

    def expected(self) -> Shown:
        file = self._source / "study.yaml"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return shown(file) | shown_evidence(file)


def shown_evidence(file: Path) -> Shown:
    """The parts of the validation, as the report shows them."""
    return {f"evidence of {each.part}": repr(each) for each in kept_sections(Study.load(file))}


def write_surrogate(study: Study) -> None:
    """Write values of the surrogate for every coalition: those of the true game, a little off."""
    random = np.random.default_rng(3)
    worths = np.array([WORTHS[name] for name in study.contributions.contributors]) * 0.8
    for values in study.surrogates._values.values():
        for prop, file in values._files.items():
            sign = -1 if prop == "heldout_loss" else 1
            table = {
                "".join(map(str, members)): sign * float(worths @ members + NOISE * random.normal())
                for members in itertools.product((0, 1), repeat=len(worths))
            }
            write_text(file, json.dumps({"surrogate": SURROGATE, "values": table}))


def change_surrogate(copy: Copy, random: Random) -> str:
    """Change a file in ``models/``."""
    return _change_file(copy, "models", random)


def change_validation(copy: Copy, random: Random) -> str:
    """Change a file in ``validation/``."""
    return _change_file(copy, "validation", random)


def _change_file(copy: Copy, folder: str, random: Random) -> str:
    """Change a file's JSON or a byte of it, cut it off or remove it."""
    below = copy.folder / "results" / folder
    file = random.choice(sorted(each for each in below.rglob("*") if each.is_file()))
    content = file.read_bytes()
    act = random.choice(["json", "json", "json", "byte", "cut", "remove"])
    if act == "remove":
        file.unlink()
    elif act == "json":
        if file.suffix != ".json":
            raise Impossible
        compact = json.dumps(json.loads(content), separators=(",", ":"), ensure_ascii=False)
        file.write_text(other_json(compact, random), encoding="utf-8", errors="replace")
    else:
        place = random.randrange(len(content))
        flipped = bytes([content[place] ^ (1 << random.randrange(7))])
        file.write_bytes(content[:place] + (flipped + content[place + 1 :] if act == "byte" else b""))
    return f"{file.relative_to(copy.folder)}: {act}"
