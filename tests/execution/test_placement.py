import os
import subprocess
import sys
from collections import Counter

import pytest

from diffcredit.execution.placement import device_visible, spread, visible_devices


@pytest.mark.parametrize(
    ("count", "variable", "names"),
    [
        (0, None, ()),
        (3, None, ("0", "1", "2")),
        (2, "3,1", ("3", "1")),
        (2, " GPU-8932f937 , GPU-0d3c ", ("GPU-8932f937", "GPU-0d3c")),
        (2, "0,1,-1,2", ("0", "1")),  # CUDA stops at the first that is no device
        (0, "", ()),
        (1, "MIG-5a1e,MIG-77f0", ("MIG-5a1e", "MIG-77f0")),  # of which CUDA counts one
    ],
)
def test_devices_are_named_as_they_were_given(count, variable, names):
    assert visible_devices(count, variable) == names


def test_workers_are_spread_over_devices_in_turn():
    assert spread(2, ("a", "b")) == ["a", "b"]
    assert spread(1, ("a", "b")) == ["a"]
    assert spread(5, ("a", "b")) == ["a", "b", "a", "b", "a"]
    for workers in range(1, 20):
        counts = Counter(spread(workers, ("a", "b", "c")))
        assert counts.total() == workers
        assert max(counts.values()) - min(counts[name] for name in "abc") <= 1


def test_without_devices_workers_see_what_the_driver_sees():
    assert spread(3, ()) == [None] * 3


@pytest.mark.parametrize("before", [None, "4,5"])
@pytest.mark.parametrize(("device", "seen"), [("GPU-1", "GPU-1"), (None, None)])
def test_a_process_started_within_sees_its_device_and_this_one_what_it_saw(monkeypatch, before, device, seen):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    code = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), end='')"
    with device_visible(device):
        told = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True).stdout
    assert told == str(seen or before)
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before
