"""The log of a study's drivers, read by ``status``."""

import json

import pytest

from diffcredit.study.tally import TaskLog

GIVEN = {"event": "task given", "coalition": "01", "replicate": 0, "worker": "a:1", "time": "2025-01-31T12:00:00+00:00"}


@pytest.mark.parametrize(
    "line",
    [
        *("", "{", "[]", "null", "7", "\xff", "[" * 100_000, '{"event": "task given"}'),
        json.dumps(GIVEN | {"replicate": float("inf")}),
        json.dumps(GIVEN | {"time": "noon"}),
        json.dumps({"event": "x", "coalition": [], "replicate": {}}),
    ],
)
def test_a_damaged_line_is_passed_over(line, tmp_path):
    file = tmp_path / "log.jsonl"
    file.write_text(f"{line}\n{json.dumps(GIVEN)}\n", encoding="latin-1")
    assert list(TaskLog(file).assigned()) == [("01", 0)]
