"""Changes to files of results that a study has beside its ledger: ``baselines/`` and ``validation/``."""

import json
import shutil
import warnings
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.tamper.copies import Copy
from benchmarks.tamper.judging import Read
from benchmarks.tamper.shown import Shown, shown
from benchmarks.tamper.untouched import Untouched
from benchmarks.tamper.values import Impossible, other_json
from diffcredit.baselines.study import kept_baselines, run_baselines
from diffcredit.study.study import Study
from diffcredit.validation.validate import kept_sections

BASELINES, PART = ("image_count", "pixel_similarity"), "convergence"


class Evidenced(Copy):
    """A copy whose reader is shown the evidence for its credits too."""

    def reads(self) -> list[Read]:
        return [*super().reads(), partial(shown_evidence, self.file)]


class Artifacts:
    """Copies of a study with baselines and a part of its validation."""

    def __init__(self, untouched: Untouched, folder: Path) -> None:
        self._untouched, self._folder, self._source = untouched, folder, folder.with_name(f"{folder.name}, untouched")
        shutil.copytree(untouched.file.parent, self._source)
        study = Study.load(self._source / "study.yaml")
        run_baselines(study, [{"name": name} for name in BASELINES])
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
    """The parts of the validation and the baselines, as the report shows them."""
    study = Study.load(file)
    parts = {f"evidence of {each.part}": repr(each) for each in kept_sections(study)}
    return parts | {f"baseline {each.found.name}": repr(vars(each)) for each in kept_baselines(study)}


def change_baselines(copy: Copy, random: Random) -> str:
    """Change a file in ``baselines/``."""
    return _change_file(copy, "baselines", random)


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
