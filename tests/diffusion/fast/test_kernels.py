"""The kernels against torch's own layers, run by Triton's interpreter where there is no GPU."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="needs Triton")


def test_kernels_and_their_gradients_are_torchs():
    interpreted()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_also_where_all_around_them_is_compiled(tmp_path):
    for _ in range(2):  # compiled, and found again
        interpreted("compiled", XDG_CACHE_HOME=str(tmp_path))


def interpreted(*arguments: str, **environment: str) -> None:
    script = Path(__file__).with_name("interpreted_kernels.py")
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "equal\n"
