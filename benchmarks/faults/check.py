"""What is left of a campaign: its ledger and its artifacts against those of the same study that nobody disturbed."""

import math
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sqlalchemy import create_engine, text

from benchmarks.faults import planted
from benchmarks.faults.campaign import Campaign, wanted
from benchmarks.faults.drivers import ENVIRONMENT
from benchmarks.faults.evaluator import KEPT
from benchmarks.faults.planted import key
from benchmarks.faults.study import FaultyStudy, write_study
from diffcredit.execution import InProcess
from diffcredit.ledger import Evaluation
from diffcredit.util.sanitize import last_line
from diffcredit.util.store import Store


@dataclass(frozen=True)
class Verdict:
    """Counts; all but ``wanted``, ``failed`` and ``parts`` are 0 where nothing was lost.

    ``failed``: attempts by the kind of fault that made them fail. ``parts``: files that interrupted uploads left at
    the store, of which no artifact consists. ``credits``: the largest difference of a credit or its standard error.
    """

    wanted: int
    lost: int
    duplicated: int
    wrong: int
    not_wanted: int
    unexplained: int
    claims: int
    artifacts: int
    chain: int
    verify: int
    credits: float
    failed: dict[str, int]
    parts: int

    @property
    def sound(self) -> bool:
        counts = (self.lost, self.duplicated, self.wrong, self.not_wanted, self.unexplained, self.claims)
        return not any((*counts, self.artifacts, self.chain, self.verify)) and self.credits < 1e-12


def undisturbed(folder: Path, evaluations: int) -> FaultyStudy:
    """The study of so many evaluations, in this process."""
    study = FaultyStudy(write_study(folder, evaluations), 0.0)
    for _ in study.evaluate(InProcess()):
        pass
    return study


def judged(campaign: Campaign, folder: Path) -> Verdict:
    """``folder``: for the undisturbed run."""
    study = campaign.study
    twin = undisturbed(folder, study.config.stop.rule.max_evaluations() or 0)
    with study.ledger(create=False) as ledger:
        problems = ledger.audit(study.name).problems
    tasks, attempts = wanted(twin), [] if problems else study.evaluations()  # a changed record is not read
    done = Counter(key(each) for each in attempts if each.status == "done")
    right = {key(each): _bits(each) for each in twin.evaluations("done")}
    reasons = [_reason(each, campaign.planted) for each in attempts if each.status == "failed"]
    return Verdict(
        wanted=len(tasks),
        lost=sum(task not in done for task in tasks),
        duplicated=sum(done.values()) - len(done),
        wrong=sum(_bits(each) != right.get(key(each)) for each in attempts if each.status == "done"),
        not_wanted=sum(key(each) not in tasks for each in attempts),
        unexplained=reasons.count(None),
        claims=_claims(campaign.place.ledger),
        artifacts=_unequal_artifacts(study, twin),
        chain=len(problems),
        verify=_verify(campaign.folder),
        credits=math.inf if problems else _difference(study, twin),
        failed=dict(Counter(reason for reason in reasons if reason is not None)),
        parts=len(list((campaign.folder / "shared").rglob("*.part"))),
    )


def _bits(evaluation: Evaluation) -> tuple[tuple[str, bytes], ...]:
    return tuple(sorted((each.property, struct.pack("<d", each.value)) for each in evaluation.values))


def _reason(failure: Evaluation, faults: dict[str, str]) -> str | None:
    """The kind of fault that a failed attempt is due to; None where none of ours would have made it fail so."""
    kind = faults.get(key(failure))
    return kind if kind in planted.FAILING and planted.FAILING[kind] in last_line(failure.error) else None


def _claims(ledger: str) -> int:
    """Rows, past diffcredit's own code."""
    engine = create_engine(ledger if "://" in ledger else f"sqlite:///{ledger}")
    with engine.connect() as connection:
        count = connection.execute(text("SELECT count(*) FROM claims")).scalar_one()
    engine.dispose()
    return count


def _unequal_artifacts(study: FaultyStudy, twin: FaultyStudy) -> int:
    """Kept images that one has and the other lacks, or that differ."""
    stores = [Store(each.config.artifacts or "") for each in (study, twin)]
    names = [set(store.list(KEPT.as_posix())) for store in stores]
    unequal = len(names[0] ^ names[1])
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(names[0] & names[1]):
            contents = []
            for side, store in enumerate(stores):
                path = Path(folder) / f"{number}-{side}"
                store.fetch(f"{KEPT.as_posix()}/{name}", path)
                contents.append(path.read_bytes())
            unequal += contents[0] != contents[1]
    return unequal


def _verify(folder: Path) -> int:
    """The exit code of ``diffcredit verify``."""
    command = [sys.executable, "-m", "diffcredit", "verify", str(folder)]
    disk = {"DIFFCREDIT_OUTSIDE": tempfile.gettempdir()}  # the small one, on which the ledger may lie
    return subprocess.run(command, env=ENVIRONMENT | disk, stdout=subprocess.DEVNULL).returncode


def _difference(study: FaultyStudy, twin: FaultyStudy) -> float:
    ours, theirs = study.credits(), twin.credits()
    assert ours.keys() == theirs.keys()
    return max(
        float(np.abs(np.subtract(getattr(ours[name], part), getattr(theirs[name], part))).max())
        for name in ours
        for part in ("values", "standard_error")
    )
