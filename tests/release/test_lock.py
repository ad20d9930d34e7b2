import pytest
from release.lock import Locked, read_lock, without_torch

A, B = "a" * 64, "b" * 64
LIST = f"""\
# a comment
cuda-toolkit==13.0.3.0 ; sys_platform == 'linux' \\
    --hash=sha256:{A}
    # via torch
psycopg==3.3.8 \\
    --hash=sha256:{A} \\
    --hash=sha256:{B}
    # via
    #   -c constraints.txt
    #   diffcredit (pyproject.toml)
torch-pruning==1.6.1 \\
    --hash=sha256:{A}
    # via diffcredit (pyproject.toml)
triton==3.7.1 ; python_full_version < '3.15' and sys_platform == 'linux' \\
    --hash=sha256:{B}
    # via torch
"""


def test_a_list_is_read():
    assert read_lock(LIST) == [
        Locked("cuda-toolkit", "13.0.3.0", (A,), ("torch",)),
        Locked("psycopg", "3.3.8", (A, B), ("diffcredit",)),
        Locked("torch-pruning", "1.6.1", (A,), ("diffcredit",)),
        Locked("triton", "3.7.1", (B,), ("torch",)),
    ]


def test_only_what_differs_from_machine_to_machine_is_left_out():
    assert [each.name for each in read_lock(without_torch(LIST))] == ["psycopg", "torch-pruning"]


@pytest.mark.parametrize(
    "line", ["mdurl>=0.1", "mdurl==0.1.2", "mdurl==0.1.2 \\\n    --hash=md5:abc", "mdurl @ file:///tmp/mdurl.whl"]
)
def test_a_package_without_its_hashes_is_refused(line):
    with pytest.raises(ValueError, match="not a version with its hashes"):
        read_lock(line + "\n")
