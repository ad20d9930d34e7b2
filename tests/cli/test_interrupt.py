"""Ctrl-C ends a run with exit code 130 and a word; what was finished stays, and nobody is left behind."""

import json
import os
import signal

import pytest
from safetensors import safe_open

from running_study import BASE, EVALUATING, is_running, read_until, running, workers_of
from tiny_study import recorded_values, rows, write_study

WORD = "Stopped. Everything finished is recorded; the same command goes on from there.\n"


def interrupt(process):
    """What Ctrl-C does: the signal reaches every process of the terminal. The rest of what is told."""
    os.killpg(process.pid, signal.SIGINT)
    told = process.communicate(timeout=100)[0]
    assert process.returncode == 130, told
    assert told.endswith(WORD)
    assert "Traceback" not in told
    return told


def test_in_the_base_training(diffcredit, tmp_path, monkeypatch):
    monkeypatch.setattr("diffcredit.diffusion.checkpoints.CHECKPOINT_SECONDS", 0.0)

    def stop(bars, what, done, total):
        if (what, done) == (BASE, 3):
            raise KeyboardInterrupt

    monkeypatch.setattr("diffcredit.cli.console.Bars.__call__", stop)
    code, out, _ = diffcredit("run", write_study(tmp_path, {"model.train.steps": 9}), "--workers", 1)
    assert (code, out.endswith(WORD)) == (130, True)
    (checkpoint,) = (tmp_path / "results/models").iterdir()
    assert checkpoint.name.endswith(".checkpoint.safetensors")
    with safe_open(checkpoint, framework="np") as saved:
        assert dict(json.loads(saved.metadata()["structure"])["dict"])["step"]["value"] >= 2


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_in_the_evaluations(finished, workers):
    before = recorded_values(finished)
    file = write_study(finished, {"stop.evaluations": 300})
    with running(file, workers) as process:
        read_until(process, EVALUATING, 3)
        pids = workers_of(process.pid)
        assert len(pids) == (workers if workers > 1 else 0)
        interrupt(process)
        assert not any(is_running(pid) for pid in pids)
    after = recorded_values(finished)
    assert {key: after[key] for key in before} == before
    assert len(after) >= len(before) + 3 * 3
    assert len(after) % 3 == 0  # an evaluation with all its properties, or none of it
    assert rows(finished, "SELECT count(*) FROM evaluations WHERE status <> 'done'") == [(0,)]
