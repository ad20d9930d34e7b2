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
    path = tmp_path / "ledger.db"
    moments = random.Random(0)
    acknowledged: set[int] = set()
    for _ in range(4):
        command = [sys.executable, "-c", RECORDER, str(path), str(len(acknowledged))]
        recorder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for _ in range(moments.randrange(1, 30)):
            acknowledged.add(int(recorder.stdout.readline()))
        time.sleep(moments.uniform(0, 0.01))
        recorder.kill()
        acknowledged.update(int(line) for line in recorder.stdout.read().splitlines())
        recorder.wait()
        # before the next recorder comes, which would complete what this one left undone
        check(path, acknowledged)


def check(path, acknowledged):
    with Ledger.open(path) as ledger:
        recorded = ledger.evaluations(STUDY, RECIPE.name)
    indices = [int(item.coalition, 2) for item in recorded]
    assert len(set(indices)) == len(indices)
    assert acknowledged <= set(indices)
    for item, index in zip(recorded, indices, strict=True):
        assert item == evaluation(f"{index:020b}", index / 3, -index / 7)
