"""A process that records evaluations is killed again and again; nothing it acknowledged is lost or halved."""

import random
import subprocess
import sys
import time

from diffcredit.ledger import Ledger
from diffcredit.testing.ledgers import RECIPE, STUDY, evaluation

RECORDER = """
import sys
from diffcredit.ledger import Ledger
from diffcredit.testing.ledgers import RECIPE, STUDY, evaluation, register

with Ledger.open(sys.argv[1]) as ledger:
    register(ledger)
    for index in range(int(sys.argv[2]), 2**20):
        ledger.record(STUDY, RECIPE.name, evaluation(f"{index:020b}", index / 3, -index / 7))
        print(index, flush=True)
"""


def test_killed_at_any_moment(tmp_path):
    moments = random.Random(0)
    acknowledged: list[int] = []
    for _ in range(6):
        start = acknowledged[-1] if acknowledged else 0
        command = [sys.executable, "-c", RECORDER, str(tmp_path / "ledger.db"), str(start)]
        recorder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for _ in range(moments.randrange(1, 30)):
            acknowledged.append(int(recorder.stdout.readline()))
        time.sleep(moments.uniform(0, 0.01))
        recorder.kill()
        acknowledged += [int(line) for line in recorder.stdout.read().splitlines()]
        recorder.wait()
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        recorded = ledger.evaluations(STUDY, RECIPE.name)
    indices = [int(item.coalition, 2) for item in recorded]
    assert len(set(indices)) == len(indices)
    assert set(acknowledged) <= set(indices)
    for item, index in zip(recorded, indices, strict=True):
        assert item == evaluation(f"{index:020b}", index / 3, -index / 7)
